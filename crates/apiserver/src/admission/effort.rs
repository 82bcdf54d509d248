//! Limits on the work of CEL expressions on the threads that serve requests.
//!
//! ```text
//!   evaluation on the thread that serves the request ── within SHORT ──▶ its value; others run every SHORT units of work
//!       │ more
//!       ▼
//!   the same evaluation from its start on a thread for blocking work, within its budgets, until the request's deadline
//! ```
//!
//! Most expressions cost a few units and run on the thread of the request. More expensive ones, whose budgets allow for
//! seconds, must not block a thread that serves other requests. An evaluation has no side effects, so it can be aborted
//! and started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::Attributes;
use super::snapshot::Snapshot;
use crate::error::ApiError;

/// The total cost of expressions on a thread that serves requests: a few milliseconds.
const SHORT: u64 = 10_000;

/// Limits the evaluations on threads for blocking work to the number of CPUs, since they compete with the threads that
/// serve requests.
static LONG: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)))
});

/// The remaining work.
#[derive(Debug)]
pub(super) struct Effort {
    limit: u64,
    spent: u64,
    ends: Option<Ends>,
}

/// When an evaluation on a thread for blocking work is aborted.
#[derive(Debug)]
struct Ends {
    deadline: Instant,
    /// Set when the request is dropped.
    abandoned: Arc<AtomicBool>,
}

/// The limit was reached before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interrupted;

impl Effort {
    /// The limit of an evaluation on a thread that serves requests.
    pub(super) fn short() -> Self {
        Self { limit: SHORT, spent: 0, ends: None }
    }

    /// A budget, capped by the remaining work.
    pub(super) fn within(&self, budget: u64) -> u64 {
        budget.min(self.limit)
    }

    /// Subtracts the cost of an evaluation. At the limit, the failure of an expression may be due to the limit and not
    /// to the expression.
    pub(super) fn spend(&mut self, units: u64) -> Result<(), Interrupted> {
        self.spent = self.spent.saturating_add(units);
        if self.spent >= self.limit || self.is_over() {
            return Err(Interrupted);
        }
        Ok(())
    }

    /// Whether the deadline is over, or the request was dropped.
    pub(super) fn is_over(&self) -> bool {
        let is_over = |ends: &Ends| ends.abandoned.load(Ordering::Relaxed) || Instant::now() >= ends.deadline;
        self.ends.as_ref().is_some_and(is_over)
    }
}

/// The work of a request since it last yielded its thread.
#[derive(Debug, Default)]
pub(super) struct Pace(u64);

impl Pace {
    /// Yields the thread if the request has done enough work since it last did.
    pub(super) async fn after(&mut self, effort: &Effort) {
        self.0 = self.0.saturating_add(effort.spent);
        if self.0 >= SHORT {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Evaluates expressions about a write, on this thread if that is little work, else on a thread for blocking work.
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

/// Evaluates expressions on a thread for blocking work, until a deadline.
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
        // The panic of an evaluation is that of the request.
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => Err(ApiError::unavailable("the server is shutting down")),
    }
}

/// Aborts an evaluation when its request is dropped.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The error of a write that exceeds its deadline.
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
    async fn a_long_evaluation_ends_when_its_request_is_cancelled() {
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
