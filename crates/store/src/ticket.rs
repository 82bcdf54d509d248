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

use crate::{Event, WriteError};

pub(crate) type CommitResult = Result<(), WriteError>;

/// The outcome of a transaction of a [`crate::Remote`].
pub(crate) type Transacted = oneshot::Receiver<Result<Vec<Arc<Event>>, WriteError>>;

/// An accepted write. Await it, or block with [`Ticket::wait`]: it resolves once the write is durable.
///
/// Dropping a ticket does not undo the write.
#[derive(Debug)]
#[must_use = "a write is acknowledged once its ticket resolves"]
pub struct Ticket<T, E = WriteError> {
    /// The outcome; `None` once it was returned, or if it is not known yet.
    outcome: Option<Result<T, E>>,
    waits: Waits<T>,
}

/// What a ticket waits for.
#[derive(Debug)]
enum Waits<T> {
    /// Nothing any more.
    Nothing,
    /// Until the write is durable, whose outcome is known.
    Committed(oneshot::Receiver<CommitResult>),
    /// The outcome, which a [`crate::Remote`] decides.
    Decided(Transacted, fn(Vec<Arc<Event>>) -> Option<T>),
}

impl<T, E> Ticket<T, E> {
    pub(crate) fn new(outcome: Result<T, E>, committed: Option<oneshot::Receiver<CommitResult>>) -> Self {
        Self { outcome: Some(outcome), waits: committed.map_or(Waits::Nothing, Waits::Committed) }
    }

    /// A ticket for a transaction elsewhere, whose events the function takes.
    pub(crate) fn decided_elsewhere(
        transacted: Transacted,
        outcome: fn(Vec<Arc<Event>>) -> Option<T>,
    ) -> Self {
        Self { outcome: None, waits: Waits::Decided(transacted, outcome) }
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
        match &mut self.waits {
            Waits::Nothing => {}
            Waits::Committed(committed) => {
                let Poll::Ready(result) = Pin::new(committed).poll(context) else { return Poll::Pending };
                self.waits = Waits::Nothing;
                // The committer drops senders only when the store is closed.
                if let Err(error) = result.unwrap_or(Err(WriteError::Closed)) {
                    self.outcome = None;
                    return Poll::Ready(Err(error.into()));
                }
            }
            Waits::Decided(transacted, outcome) => {
                let outcome = *outcome;
                let Poll::Ready(result) = Pin::new(transacted).poll(context) else { return Poll::Pending };
                self.waits = Waits::Nothing;
                // A remote drops senders only when it is closed, after the write may have been sent.
                let closed = || Err(WriteError::Unknown("the store was closed".into()));
                let decided = result.unwrap_or_else(|_| closed()).map_err(E::from);
                self.outcome = match decided {
                    Ok(events) => outcome(events).map(Ok),
                    Err(error) => Some(Err(error)),
                };
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
