//! How much work expressions may do where they are evaluated.
//!
//! ```text
//!   evaluation on the thread that serves the request ── within SHORT ──▶ its value; others run every SHORT units of work
//!       │ more
//!       ▼
//!   the same evaluation from its start on a thread for blocking work, within its budgets, until the request's deadline
//! ```
//!
//! Most expressions cost a few units, and stay where they are. What costs more must not hold a thread that others are
//! served by: budgets allow for seconds. An evaluation has no effects, so it can be given up and started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::Attributes;
use super::snapshot::Snapshot;
use crate::error::ApiError;

/// What expressions may cost together where requests are served: a few milliseconds.
const SHORT: u64 = 10_000;

/// How many evaluations may run on threads for blocking work. They compete with the threads that serve requests for the
/// processors, so that it is no more than there are of these.
static LONG: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)))
});

/// How much work may still be done.
#[derive(Debug)]
pub(super) struct Effort {
    limit: u64,
    spent: u64,
    ends: Option<Ends>,
}

/// When an evaluation ends that has all the work to do that its budgets allow.
#[derive(Debug)]
struct Ends {
    deadline: Instant,
    /// Set when the request is gone.
    abandoned: Arc<AtomicBool>,
}

/// The effort did not last, and nothing is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interrupted;

impl Effort {
    /// That of an evaluation where requests are served.
    pub(super) fn short() -> Self {
        Self { limit: SHORT, spent: 0, ends: None }
    }

    /// A budget, as far as the effort goes.
    pub(super) fn within(&self, budget: u64) -> u64 {
        budget.min(self.limit)
    }

    /// Counts what was spent. If that reaches the limit, an expression may have failed for want of effort and not by itself.
    pub(super) fn spend(&mut self, units: u64) -> Result<(), Interrupted> {
        self.spent = self.spent.saturating_add(units);
        let is_over = |ends: &Ends| ends.abandoned.load(Ordering::Relaxed) || Instant::now() >= ends.deadline;
        if self.spent >= self.limit || self.ends.as_ref().is_some_and(is_over) {
            return Err(Interrupted);
        }
        Ok(())
    }
}

/// The work that a request has done since others could last run on its thread.
#[derive(Debug, Default)]
pub(super) struct Pace(u64);

impl Pace {
    /// Lets others run, if it is time.
    pub(super) async fn after(&mut self, effort: &Effort) {
        self.0 = self.0.saturating_add(effort.spent);
        if self.0 >= SHORT {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Evaluates something about a write, here if that is little work, else on another thread.
pub(super) async fn evaluate<C: Clone + Send + 'static, T: Send + 'static>(
    context: &C,
    attributes: &Attributes<'_>,
    new: &Value,
    pace: &mut Pace,
    part: impl Fn(&C, &Attributes<'_>, &Value, &mut Effort) -> Result<T, Interrupted> + Send + 'static,
) -> Result<T, ApiError> {
    let mut effort = Effort::short();
    if let Ok(value) = part(context, attributes, new, &mut effort) {
        pace.after(&effort).await;
        return Ok(value);
    }
    let (context, snapshot) = (context.clone(), Snapshot::of(attributes, new));
    let whole =
        move |effort: &mut Effort| part(&context, &snapshot.attributes(), snapshot.new_object(), effort);
    evaluate_long(attributes.deadline, whole).await
}

/// Evaluates something on another thread, until a deadline.
pub(super) async fn evaluate_long<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce(&mut Effort) -> Result<T, Interrupted> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = tokio::time::timeout_at(deadline.into(), LONG.clone().acquire_owned());
    let Ok(turn) = turn.await else { return Err(out_of_time()) };
    let guard = Abandon(Arc::default());
    let ends = Ends { deadline, abandoned: guard.0.clone() };
    let done = tokio::task::spawn_blocking(move || {
        let mut effort = Effort { limit: u64::MAX, spent: 0, ends: Some(ends) };
        let done = work(&mut effort);
        drop(turn);
        done
    });
    match done.await.map_err(JoinError::try_into_panic) {
        Ok(done) => done.map_err(|Interrupted| out_of_time()),
        // As if it had happened here.
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => Err(ApiError::unavailable("the server is shutting down")),
    }
}

/// Tells an evaluation when its request is dropped.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The refusal of a write that is past its deadline.
pub(super) fn out_of_time() -> ApiError {
    ApiError::timeout("request did not complete within requested timeout - context deadline exceeded")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_effort_that_is_spent_to_the_last_unit_did_not_last() {
        let mut effort = Effort::short();
        assert_eq!(effort.within(1_000_000), SHORT);
        assert_eq!(effort.spend(SHORT - 1), Ok(()));
        assert_eq!(effort.spend(1), Err(Interrupted));
    }

    #[tokio::test]
    async fn a_long_evaluation_ends_after_its_deadline() {
        let deadline = Instant::now();
        let error = evaluate_long(deadline, |effort| effort.spend(1)).await.unwrap_err();
        assert_eq!((error.code.as_u16(), error.reason), (504, "Timeout"));
        let later = Instant::now() + Duration::from_mins(10);
        assert!(evaluate_long(later, |effort| effort.spend(1)).await.is_ok());
    }

    #[tokio::test]
    async fn a_long_evaluation_ends_when_its_request_is_gone() {
        let (ended, end) = tokio::sync::oneshot::channel();
        let (started, start) = tokio::sync::oneshot::channel();
        let later = Instant::now() + Duration::from_hours(1);
        let evaluation = evaluate_long(later, |effort| {
            let _ = started.send(());
            while effort.spend(1).is_ok() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
            Err::<(), _>(Interrupted)
        });
        tokio::select! {
            _ = evaluation => {}
            _ = start => {}
        }
        assert_eq!(end.await, Ok(()));
    }
}
