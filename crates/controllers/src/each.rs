//! The loop of controllers that judge each object of a kind by itself.

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource};
use plumb_follow::{Followed, Known, follow};
use tokio::sync::mpsc;

use crate::panics::Guard;
use crate::workload::recorder::Subject;
use crate::workload::{Queue, Went};

/// Writes what is found wrong with any object, as often as it takes, until the future is dropped. An object that could
/// not be written, or was panicked over, is judged again after a while; the others go on.
pub(crate) async fn mend<K, W, F>(
    guard: Guard,
    watched: Api<K>,
    judge: impl Fn(&K) -> Option<W>,
    write: impl Fn(W) -> F,
) where
    K: Followed + Resource<DynamicType = ()>,
    F: Future<Output = kube::Result<()>>,
{
    let (tell, mut told) = mpsc::channel(64);
    let work = async {
        let mut known = Known::default();
        let queue = Queue::default();
        loop {
            let now = Timestamp::now();
            while let Some(at) = queue.take(now) {
                let Some(object) = known.get(&at) else {
                    queue.done(at, Went::Well, now);
                    continue;
                };
                let mended = async {
                    match judge(object) {
                        Some(wrong) => write(wrong).await,
                        None => Ok(()),
                    }
                };
                let mended = guard.reconcile(|| Some(Subject::of(object)), mended).await;
                let went = if matches!(mended, Some(Ok(()))) { Went::Well } else { Went::Badly };
                queue.done(at, went, Timestamp::now());
            }
            tokio::select! {
                event = told.recv() => match event.map(|event| known.take(event)) {
                    Some(Some(at)) => queue.touch(at),
                    Some(None) => known.iter().for_each(|(at, _)| queue.touch(at.clone())),
                    None => return,
                },
                () = queue.due(now) => {}
            }
        }
    };
    tokio::join!(follow(watched, None, tell), work);
}
