//! The loop of controllers that judge each object of a kind by itself.

use kube::{Api, Resource};
use plumb_follow::{Backoff, Followed, Known, follow};
use tokio::sync::mpsc;

/// Writes what is found wrong with any object, as often as it takes, until the future is dropped. After a failure all
/// are judged again.
pub(crate) async fn mend<K, W, F>(watched: Api<K>, judge: impl Fn(&K) -> Option<W>, write: impl Fn(W) -> F)
where
    K: Followed + Resource<DynamicType = ()>,
    F: Future<Output = kube::Result<()>>,
{
    let (tell, mut told) = mpsc::channel(64);
    let work = async {
        let mut known = Known::default();
        let mut backoff = Backoff::default();
        let mut failed = false;
        loop {
            let concerned = tokio::select! {
                event = told.recv() => match event {
                    Some(event) => known.take(event),
                    None => return,
                },
                () = backoff.wait(), if failed => None,
            };
            let wrong: Vec<W> = match &concerned {
                Some(at) if !failed => known.get(at).and_then(&judge).into_iter().collect(),
                _ => known.iter().filter_map(|(_, object)| judge(object)).collect(),
            };
            failed = false;
            for one in wrong {
                failed |= write(one).await.is_err();
            }
            if !failed {
                backoff.reset();
            }
        }
    };
    tokio::join!(follow(watched, None, tell), work);
}
