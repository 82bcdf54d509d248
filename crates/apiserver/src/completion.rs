//! Writes that outlive their request.
//!
//! If a client disconnects or resets an HTTP/2 stream, hyper drops the future of the request at its current await. Before the
//! first effect that is right: the request has stored nothing, and the destructors release what the handler reserved. After
//! the first effect the handler must run to its end, since its remaining work belongs to the object that it has stored.
//!
//! So a handler marks its first effect ([`Effects::begin`]), and [`Completed`] moves a handler that is dropped after that to
//! a task. A request that is not dropped needs no task.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{Instrument as _, Span};

/// Whether a request has had an effect that dropping it does not undo.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects(Arc<AtomicBool>);

impl Effects {
    /// Marks the first effect. The caller marks it in the same poll, so that no await lies between.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether there was an effect.
    pub(crate) fn have_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The tasks that complete requests whose clients have disconnected.
///
/// The limit of writing requests in flight bounds their number: each task holds the permit of its request.
#[derive(Debug)]
pub(crate) struct Tasks {
    /// The runtime in which the server was created. The runtime of a client may shut down before the server does.
    runtime: Option<Handle>,
    running: watch::Sender<usize>,
}

/// One of the tasks, counted until it is dropped.
struct Running(Arc<Tasks>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::try_current().ok(), running: watch::Sender::new(0) }
    }

    /// Waits until no task runs.
    pub(crate) async fn finished(&self) {
        // An error would mean that the sender is dropped, and `self` has it.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }

    fn complete<T: Send + 'static>(self: &Arc<Self>, work: BoxFuture<'static, T>, span: Span) {
        let runtime = self.runtime.clone().or_else(|| Handle::try_current().ok());
        let Some(runtime) = runtime else {
            tracing::error!(
                "a request was dropped after its first effect, and there is no runtime to complete it"
            );
            return;
        };
        self.running.send_modify(|running| *running += 1);
        let running = Running(Arc::clone(self));
        runtime.spawn(
            async move {
                drop(work.await);
                drop(running);
                tracing::debug!("completed a request whose client has disconnected");
            }
            .instrument(span),
        );
    }
}

/// The future of a handler. After the first effect the handler runs to its end, even if this future is dropped.
pub(crate) struct Completed<T: Send + 'static> {
    /// None after the handler has returned.
    work: Option<BoxFuture<'static, T>>,
    effects: Effects,
    tasks: Arc<Tasks>,
    span: Span,
}

impl<T: Send + 'static> Completed<T> {
    pub(crate) fn new(work: BoxFuture<'static, T>, effects: Effects, tasks: Arc<Tasks>) -> Self {
        Self { work: Some(work), effects, tasks, span: Span::current() }
    }
}

impl<T: Send + 'static> Future for Completed<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else {
            // Polling again after completion is a bug of the caller, which must not affect other requests.
            return Poll::Pending;
        };
        let outcome = work.as_mut().poll(context);
        if outcome.is_ready() {
            self.work = None;
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for Completed<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && self.effects.have_begun()
        {
            self.tasks.complete(work, self.span.clone());
        }
    }
}

/// Runs a handler, and returns the value of `on_panic` if the handler panics.
pub(crate) async fn without_panic<T>(work: impl Future<Output = T>, on_panic: impl FnOnce(&str) -> T) -> T {
    // Locks without poisoning guard all state that handlers share, and the state is consistent between any two statements
    // under a lock: one call writes the store, and indexes follow the store.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        on_panic(text.unwrap_or("no message"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    /// A handler that has its effect, if any, at its first poll, waits, and sends a message at its end.
    fn handler(
        effects: &Effects,
        has_effect: bool,
    ) -> (BoxFuture<'static, ()>, oneshot::Sender<()>, oneshot::Receiver<()>) {
        let (proceed, wait) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let effects = effects.clone();
        let work = async move {
            if has_effect {
                effects.begin();
            }
            let _ = wait.await;
            let _ = end.send(());
        };
        (Box::pin(work), proceed, ended)
    }

    #[tokio::test]
    async fn a_handler_that_is_dropped_after_its_first_effect_runs_to_its_end_and_is_waited_for() {
        let (effects, tasks) = (Effects::default(), Arc::new(Tasks::new()));
        let (work, proceed, ended) = handler(&effects, true);
        let mut request = Completed::new(work, effects, Arc::clone(&tasks));
        assert!((&mut request).now_or_never().is_none());
        drop(request);
        assert!(tasks.finished().now_or_never().is_none());
        proceed.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(10), tasks.finished()).await.unwrap();
        assert_eq!(ended.await, Ok(()));
    }

    #[tokio::test]
    async fn a_handler_that_is_dropped_before_its_first_effect_ends() {
        let (effects, tasks) = (Effects::default(), Arc::new(Tasks::new()));
        let (work, proceed, ended) = handler(&effects, false);
        let mut request = Completed::new(work, effects, Arc::clone(&tasks));
        assert!((&mut request).now_or_never().is_none());
        drop(request);
        assert!(proceed.is_closed());
        assert!(ended.await.is_err());
        assert!(tasks.finished().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_panic_is_answered() {
        #[expect(clippy::panic, reason = "it is what is tested")]
        let work = async { panic!("the {}", "reason") };
        assert_eq!(without_panic(work, str::to_owned).await, "the reason");
    }
}
