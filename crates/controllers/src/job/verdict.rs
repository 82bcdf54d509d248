//! Whether a Job ends, and why.

use k8s_openapi::jiff::SignedDuration;

use super::policy::{Meaning, enough};
use super::state::{JobState, condition};
use super::tracking::PodTracking;
use crate::workload::pods as pod;

/// Why Jobs end.
const REASONS: [&str; 7] = [
    "PodFailurePolicy",
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "MaxFailedIndexesExceeded",
    "FailedIndexes",
    "SuccessPolicy",
    "CompletionsReached",
];

/// Whether a Job is to end, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    GoesOn,
    Fails(Why),
    Succeeds(Why),
}

/// Why a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Why {
    pub(super) fn new(reason: &'static str, message: &str) -> Self {
        Self { reason, message: message.to_owned() }
    }
}

/// Decides about a Job by its pods. An existing condition has precedence; otherwise failures come before successes.
pub(super) fn evaluate(state: &JobState<'_>, tracking: &PodTracking<'_>) -> Verdict {
    let existing = |wanted: &str| {
        let found = condition(state.job, wanted)?;
        let reason = REASONS.into_iter().find(|reason| found.reason.as_deref() == Some(*reason));
        Some(Why { reason: reason.unwrap_or("Unknown"), message: found.message.clone().unwrap_or_default() })
    };
    if let Some(why) = existing("SuccessCriteriaMet") {
        return Verdict::Succeeds(why);
    }
    if let Some(why) = existing("FailureTarget") {
        return Verdict::Fails(why);
    }
    let failed = state.pods.iter().filter(|pod| state.has_failed(pod));
    let fatal = failed.map(|pod| state.meaning(pod)).find_map(|meaning| match meaning {
        Meaning::FailsJob(message) => Some(message),
        _ => None,
    });
    if let Some(message) = fatal {
        return Verdict::Fails(Why { reason: "PodFailurePolicy", message });
    }
    let limit = state.spec().backoff_limit.unwrap_or(6);
    if tracking.total_failed() > limit || has_restarted_too_often(state, limit) {
        let message = "Job has reached the specified backoff limit";
        return Verdict::Fails(Why::new("BackoffLimitExceeded", message));
    }
    if deadline(state).is_some_and(|deadline| deadline <= state.now) {
        let message = "Job was active longer than specified deadline";
        return Verdict::Fails(Why::new("DeadlineExceeded", message));
    }
    if !state.is_indexed() {
        return Verdict::GoesOn;
    }
    let successes = state.successes();
    if state.fails_by_index() {
        let failures = state.failures().total();
        if state.spec().max_failed_indexes.is_some_and(|most| failures > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Verdict::Fails(Why::new("MaxFailedIndexesExceeded", message));
        }
        if failures > 0 && failures + successes.total() >= state.completions() {
            return Verdict::Fails(Why::new("FailedIndexes", "Job has failed indexes"));
        }
    }
    match enough(state.spec().success_policy.as_ref(), state.completions(), &successes) {
        Some(message) => Verdict::Succeeds(Why { reason: "SuccessPolicy", message }),
        None => Verdict::GoesOn,
    }
}

/// Until when a Job may be active.
pub(super) fn deadline(state: &JobState<'_>) -> Option<k8s_openapi::jiff::Timestamp> {
    let seconds = state.spec().active_deadline_seconds.filter(|_| !state.is_suspended())?;
    let start = state.job.status.as_ref()?.start_time.as_ref()?.0;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Whether containers were restarted as often as pods may fail: that is how a pod fails whose containers are
/// restarted.
fn has_restarted_too_often(state: &JobState<'_>, limit: i32) -> bool {
    let policy = state.spec().template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let running = state.pods.iter().filter(|pod| matches!(pod::phase(pod), "Running" | "Pending"));
    let statuses = running.filter_map(|pod| pod.status.as_ref());
    let containers =
        statuses.flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses));
    let restarts: i64 = containers.flatten().map(|container| i64::from(container.restart_count)).sum();
    restarts >= i64::from(limit.max(1))
}
