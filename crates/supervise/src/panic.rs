//! Panics as values.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use tokio::task::JoinError;

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panicked: {message}")]
pub struct Panic {
    /// The message of the panic.
    pub message: String,
}

impl Panic {
    /// Converts the payload of a panic.
    pub fn from_payload(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self { message: text.unwrap_or_else(|| "no message".to_owned()) }
    }

    /// Converts the error of a tokio task; `None` if the task was cancelled.
    pub fn from_task(error: JoinError) -> Option<Self> {
        error.try_into_panic().ok().map(|payload| Self::from_payload(&*payload))
    }
}

/// Awaits a future and catches its panic. State that the future shares must stay consistent across a panic, since no mutex
/// is poisoned.
pub fn catch<T>(future: impl Future<Output = T>) -> impl Future<Output = Result<T, Panic>> {
    // The future is boxed, so that the returned future stays small.
    let mut future = Box::pin(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(payload) => Poll::Ready(Err(Panic::from_payload(&*payload))),
    })
}
