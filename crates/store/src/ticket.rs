//! Waiting for a write to become durable, with or without a runtime.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

use crate::WriteError;

pub(crate) type CommitResult = Result<(), WriteError>;

/// An accepted write. Await it, or block with [`Ticket::wait`]: it resolves once the write is durable.
///
/// Dropping a ticket does not undo the write.
#[derive(Debug)]
#[must_use = "a write is acknowledged once its ticket resolves"]
pub struct Ticket<T, E = WriteError> {
    /// The outcome; `None` once it was returned.
    outcome: Option<Result<T, E>>,
    /// Resolves when the write is durable; `None` if it is already.
    committed: Option<oneshot::Receiver<CommitResult>>,
}

impl<T, E> Ticket<T, E> {
    pub(crate) fn new(outcome: Result<T, E>, committed: Option<oneshot::Receiver<CommitResult>>) -> Self {
        Self { outcome: Some(outcome), committed }
    }
}

impl<T: Unpin, E: From<WriteError> + Unpin> Ticket<T, E> {
    /// Blocks this thread until the ticket resolves.
    pub fn wait(self) -> Result<T, E> {
        block_on(self)
    }
}

impl<T: Unpin, E: From<WriteError> + Unpin> Future for Ticket<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(committed) = &mut self.committed {
            let result = match Pin::new(committed).poll(context) {
                Poll::Pending => return Poll::Pending,
                // The committer drops senders only when the store is closed.
                Poll::Ready(result) => result.unwrap_or(Err(WriteError::Closed)),
            };
            self.committed = None;
            if let Err(error) = result {
                self.outcome = None;
                return Poll::Ready(Err(error.into()));
            }
        }
        // The outcome is missing only if the ticket is polled again after completion.
        Poll::Ready(self.outcome.take().unwrap_or_else(|| Err(WriteError::Closed.into())))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread, which may be a worker of a Tokio runtime.
///
/// A task of Tokio's must yield after 128 polls that made progress: the next poll is pending, and its waker is called when
/// the task has yielded. A task that is blocked here never yields, so the future is polled outside of that budget.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
