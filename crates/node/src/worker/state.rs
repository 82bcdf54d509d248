//! The state of a pod worker, in the kubelet's words: `SyncPod`, `TerminatingPod`, `TerminatedPod`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::lifecycle::Phase;

/// The grace period of a pod that does not declare one.
pub(super) const DEFAULT_GRACE_PERIOD: i64 = 30;

/// The lifecycle of a pod worker. A state never returns to an earlier one.
///
/// ```text
///   pending admission (the agent has no `Worker` for the pod yet)
///        │ admitted                     │ rejected
///        ▼                              │
///     SyncPod ────── all containers ────┤
///        │           have exited        │
///        │ deleted, failed, or          │
///        │ another client wrote         │
///        │ a terminal phase             │
///        ▼                              ▼
///   Terminating ── none runs, and ────▶ Terminated
///        │         the phase is         │
///        │         terminal             │
///        │ deleted, and                 │ deleted
///        │ none runs                    │
///        ▼                              │
///    CleanedUp ◀────────────────────────┘
///        │ the API does not have the pod any more
///        ▼
///   the worker ends
/// ```
///
/// A pod fails by itself if it exceeds its active deadline, if the node shuts down, or if an agent that was restarted would
/// not admit it any more. How far its deletion is, is a fact of its own: see [`Deletion`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The kubelet's `SyncPod`: containers are started, restarted, probed and resized to match the spec.
    SyncPod,
    /// The kubelet's `SyncTerminatingPod`: no container is started or resized, and those that run are stopped within their
    /// grace period. The pod retains its allocation until no container of it runs.
    Terminating(FinalStatus),
    /// The pod has finished, and its allocation is released. Its containers stay in the runtime for their logs until the
    /// pod is deleted. Only an agent that was started after the pod had finished finds containers that run: it stops them.
    Terminated(FinalStatus),
    /// The kubelet's `SyncTerminatedPod` is done: everything of the pod was removed from this node.
    CleanedUp,
}

/// The cause of a pod's final status, other than its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FinalStatus {
    /// The reason and message of the pod's failure, if that is not the failure of its containers.
    pub(super) failure: Option<Failure>,
    /// The terminal phase in the API, which is final even if another client wrote it.
    pub(super) phase: Option<Phase>,
    /// The pod was rejected, by this agent or by one before it: it has no containers and no allocation.
    pub(super) rejected: bool,
}

/// Why a pod has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// `status.reason`.
    pub(super) reason: String,
    /// `status.message`.
    pub(super) message: String,
}

impl State {
    /// The first state of an admitted pod: one that has finished already is not started again.
    pub(super) fn of(pod: &Pod) -> Self {
        match final_phase(pod) {
            Some(phase) => Self::Terminated(FinalStatus {
                failure: None,
                phase: Some(phase),
                rejected: !has_statuses(pod),
            }),
            None => Self::SyncPod,
        }
    }

    /// The state of a pod that was rejected.
    pub(super) fn rejected(failure: Failure) -> Self {
        Self::Terminated(FinalStatus { failure: Some(failure), phase: None, rejected: true })
    }

    /// Terminates the pod, if it does not terminate already.
    pub(super) fn terminate(&mut self) {
        if *self == Self::SyncPod {
            *self = Self::Terminating(FinalStatus::default());
        }
    }

    /// Terminates the pod because it has failed. A pod that has finished stays as it is.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.terminate();
        if let Self::Terminating(status @ FinalStatus { phase: None, .. }) = self {
            status.failure = Some(failure);
        }
    }

    /// Terminates the pod if its phase in the API is terminal.
    pub(super) fn observe_phase(&mut self, pod: &Pod) {
        let Some(phase) = final_phase(pod) else { return };
        self.terminate();
        if let Self::Terminating(status) | Self::Terminated(status) = self {
            status.phase = Some(phase);
        }
    }

    /// The pod has finished: no container of it runs, and its phase is terminal. Returns whether that is new.
    pub(super) fn finish(&mut self) -> bool {
        self.terminate();
        let Self::Terminating(status) = self else { return false };
        *self = Self::Terminated(std::mem::take(status));
        true
    }

    /// Everything of the pod was removed from the node.
    pub(super) fn clean_up(&mut self) {
        *self = Self::CleanedUp;
    }

    /// Whether containers may be started and resized.
    pub(super) fn is_syncing(&self) -> bool {
        *self == Self::SyncPod
    }

    /// Whether the pod has an allocation: until it has finished.
    pub(super) fn holds_allocation(&self) -> bool {
        matches!(self, Self::SyncPod | Self::Terminating(_))
    }

    /// The cause of the final status of a pod that terminates or has terminated.
    fn final_status(&self) -> Option<&FinalStatus> {
        match self {
            Self::Terminating(status) | Self::Terminated(status) => Some(status),
            Self::SyncPod | Self::CleanedUp => None,
        }
    }

    /// Why the pod has failed.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.final_status()?.failure.as_ref()
    }

    /// The terminal phase that the API has.
    pub(super) fn phase(&self) -> Option<Phase> {
        self.final_status()?.phase
    }

    /// Whether the pod was rejected.
    pub(super) fn is_rejected(&self) -> bool {
        self.final_status().is_some_and(|status| status.rejected)
    }
}

/// How far the deletion of the pod from the API is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Deletion {
    /// The pod is not deleted.
    #[default]
    None,
    /// The pod has a deletion timestamp.
    Requested(GracePeriod),
    /// The API does not have the pod any more.
    Done(GracePeriod),
}

/// The grace period of a pod that was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GracePeriod {
    /// When it began.
    pub(super) since: Timestamp,
    /// How long it is.
    pub(super) length: Duration,
}

impl Deletion {
    /// The deletion after an update of the pod. A deletion is never reverted.
    pub(super) fn observe(self, pod: &Pod) -> Self {
        let Some(at) = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0) else { return self };
        let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_else(|| grace_period(pod));
        // The deletion timestamp is when the grace period will be over.
        let since = at.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(at);
        let grace = GracePeriod { since, length: to_duration(seconds) };
        if self.is_done() { Self::Done(grace) } else { Self::Requested(grace) }
    }

    /// The deletion once the API does not have the pod any more.
    pub(super) fn done(self, pod: &Pod, now: Timestamp) -> Self {
        let grace = self.observe(pod).grace_period();
        Self::Done(
            grace.unwrap_or_else(|| GracePeriod { since: now, length: to_duration(grace_period(pod)) }),
        )
    }

    /// Whether the pod was deleted.
    pub(super) fn is_requested(self) -> bool {
        self != Self::None
    }

    /// Whether the API does not have the pod any more.
    pub(super) fn is_done(self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// The grace period, once the pod was deleted.
    pub(super) fn grace_period(self) -> Option<GracePeriod> {
        match self {
            Self::None => None,
            Self::Requested(grace) | Self::Done(grace) => Some(grace),
        }
    }
}

/// The grace period in a pod's spec, in seconds.
pub(crate) fn grace_period(pod: &Pod) -> i64 {
    let declared = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    declared.unwrap_or(DEFAULT_GRACE_PERIOD)
}

/// A number of seconds as a duration; a negative one is none.
pub(crate) fn to_duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The terminal phase of a pod, if its status has one.
fn final_phase(pod: &Pod) -> Option<Phase> {
    match pod.status.as_ref()?.phase.as_deref()? {
        "Succeeded" => Some(Phase::Succeeded),
        "Failed" => Some(Phase::Failed),
        _ => None,
    }
}

/// Whether a pod's status has a terminal phase.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    final_phase(pod).is_some()
}

/// Whether a pod's status has container statuses.
fn has_statuses(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| status.container_statuses.as_ref().is_some_and(|all| !all.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn with_phase(phase: &str) -> Pod {
        pod(json!({ "status": { "phase": phase, "containerStatuses": [
            { "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0 },
        ] } }))
    }

    fn failure(reason: &str) -> Failure {
        Failure { reason: reason.to_owned(), message: String::new() }
    }

    #[test]
    fn a_pod_that_exits_by_itself_finishes_once() {
        let mut state = State::of(&with_phase("Running"));
        assert!(state.is_syncing() && state.holds_allocation());
        assert!(state.finish());
        assert_eq!(state, State::Terminated(FinalStatus::default()));
        assert!(!state.holds_allocation() && !state.finish());
        state.clean_up();
        assert!(!state.finish() && !state.holds_allocation());
    }

    #[test]
    fn a_failed_pod_holds_its_allocation_until_nothing_of_it_runs_and_keeps_its_reason() {
        let mut state = State::SyncPod;
        state.fail(failure("DeadlineExceeded"));
        assert!(!state.is_syncing() && state.holds_allocation());
        state.fail(failure("Terminated"));
        assert!(state.finish());
        state.fail(failure("DeadlineExceeded"));
        state.terminate();
        assert_eq!(state.failure(), Some(&failure("Terminated")), "the node shut down meanwhile");
        assert!(!state.is_rejected());
    }

    #[test]
    fn a_terminal_phase_in_the_api_is_final_even_if_another_client_wrote_it() {
        let mut state = State::SyncPod;
        state.observe_phase(&with_phase("Failed"));
        state.observe_phase(&with_phase("Running"));
        state.fail(failure("Terminated"));
        assert_eq!((state.phase(), state.failure()), (Some(Phase::Failed), None));
        assert!(state.finish());
        assert_eq!(state.phase(), Some(Phase::Failed));
    }

    #[test]
    fn a_pod_that_finished_before_is_not_started_again_and_was_rejected_if_it_never_had_containers() {
        for (found, rejected) in
            [(with_phase("Succeeded"), false), (pod(json!({ "status": { "phase": "Failed" } })), true)]
        {
            let state = State::of(&found);
            assert!(matches!(state, State::Terminated(_)));
            assert_eq!(state.is_rejected(), rejected);
        }
        assert!(State::rejected(failure("OutOfcpu")).is_rejected());
    }

    #[test]
    fn a_deletion_has_the_grace_period_of_the_request_and_is_never_taken_back() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let spec = json!({ "containers": [], "terminationGracePeriodSeconds": 5 });
        let exists = pod(json!({ "spec": spec }));
        let deleted = pod(json!({ "spec": spec, "metadata": {
            "deletionTimestamp": "1970-01-01T00:01:40Z", "deletionGracePeriodSeconds": 60,
        } }));
        let grace =
            |since: i64, length: u64| GracePeriod { since: at(since), length: Duration::from_secs(length) };
        assert_eq!(Deletion::None.observe(&exists), Deletion::None);
        let requested = Deletion::None.observe(&deleted);
        assert_eq!(requested, Deletion::Requested(grace(40, 60)));
        assert_eq!(requested.observe(&exists), requested);
        let done = requested.done(&exists, at(200));
        assert_eq!(done, Deletion::Done(grace(40, 60)));
        assert_eq!(done.observe(&deleted), done);
        assert_eq!(Deletion::None.done(&exists, at(200)), Deletion::Done(grace(200, 5)), "without a request");
    }
}
