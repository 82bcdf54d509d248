//! Reports about a rollout: events, and the status on the workload.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use plumb_controller_runtime::events::{EventRecorder, NewEvent};

use super::object::Workload;
use super::record::WorkloadRecord;
use super::tracker::TrackerState;
use crate::engine::{Phase, PodFailure, RolloutStatus};
use crate::metrics::RolloutMetrics;

/// How often the status on a workload is written at most, while only its counts change.
const REPORT_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Emits events.
#[derive(Debug)]
pub(super) struct Reporter {
    recorder: EventRecorder,
    metrics: RolloutMetrics,
}

impl Reporter {
    pub(super) fn new(recorder: EventRecorder, metrics: RolloutMetrics) -> Self {
        Self { recorder, metrics }
    }

    /// Emits an event when the phase of a rollout changes, and one for each pod that is newly stuck.
    pub(super) fn announce(
        &self,
        workload: &Workload,
        record: &WorkloadRecord,
        status: &RolloutStatus,
        state: &mut TrackerState,
        now: Timestamp,
    ) {
        let revision = record.rollout.pod_revision();
        let phase = status.phase;
        let known = state.announced.as_ref();
        if known.is_none_or(|(of, was)| *of != revision || *was != phase) {
            let is_new = known.is_none_or(|(of, _)| *of != revision);
            state.announced = Some((revision, phase));
            if is_new {
                state.announced_stuck.clear();
            }
            self.recorder.record(workload.reference(), event(phase, status), now);
        }
        let stuck: Vec<&PodFailure> =
            status.stuck.iter().filter(|failure| !state.announced_stuck.contains(&failure.pod)).collect();
        for failure in stuck {
            state.announced_stuck.insert(failure.pod.clone());
            self.metrics.stuck(failure.reason);
            let message = format!("{}: {}", failure.reason, failure.message);
            let pod = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(failure.pod.clone()),
                namespace: workload.metadata().namespace.clone(),
                ..ObjectReference::default()
            };
            self.recorder.record(pod, NewEvent::warning("InPlaceRolloutStuck", message.clone()), now);
            let message = format!("pod {} is not resized: {message}", failure.pod);
            self.recorder.record(
                workload.reference(),
                NewEvent::warning("InPlaceRolloutStuck", message),
                now,
            );
        }
    }

    /// Reports that a workload is left to its own controller.
    pub(super) fn released(&self, workload: &Workload, why: &str, now: Timestamp) {
        let message = format!("pods are recreated and not resized in place: {why}");
        self.recorder.record(workload.reference(), NewEvent::warning("InPlaceRolloutReleased", message), now);
    }
}

fn event(phase: Phase, status: &RolloutStatus) -> NewEvent {
    let counts = &status.pods;
    let message =
        |text: String| if status.message.is_empty() { text } else { format!("{text}: {}", status.message) };
    let done = format!("{} of {} pods follow the template", counts.done, counts.total);
    match phase {
        Phase::Progressing => NewEvent::normal("InPlaceRolloutProgressing", message(done)),
        Phase::Paused => NewEvent::normal("InPlaceRolloutPaused", message(done)),
        Phase::Partitioned => NewEvent::normal("InPlaceRolloutPartitioned", message(done)),
        Phase::Complete => NewEvent::normal("InPlaceRolloutComplete", message(done)),
        Phase::Held => {
            NewEvent::warning("InPlaceRolloutHeld", message(format!("{done}, {} are stuck", counts.stuck)))
        }
        Phase::RollingBack => {
            NewEvent::warning("InPlaceRollbackStarted", message("pods are resized back".to_owned()))
        }
        Phase::RolledBack => {
            NewEvent::warning("InPlaceRolledBack", message("all pods were resized back".to_owned()))
        }
        Phase::RollbackFailed => {
            let pods: Vec<&str> = status.stuck.iter().map(|failure| failure.pod.as_str()).collect();
            let text = format!("pods could not be resized back: {}", pods.join(", "));
            NewEvent::warning("RollbackFailed", message(text))
        }
        Phase::Recreating => {
            NewEvent::warning("InPlaceRolloutReleased", message("pods are recreated".to_owned()))
        }
    }
}

/// When the status on the workload is to be written: at once if the phase changed, else once in a while. None if it is
/// current.
pub(super) fn due(state: &TrackerState, status: &RolloutStatus, now: Timestamp) -> Option<Duration> {
    if let Some((reported, at)) = &state.reported {
        if reported == status {
            return None;
        }
        let next = at.checked_add(REPORT_INTERVAL).unwrap_or(now);
        if reported.phase == status.phase && reported.revision == status.revision && now < next {
            return Duration::try_from(next.duration_since(now)).ok();
        }
    }
    Some(Duration::ZERO)
}

/// A status as the value of its annotation.
pub(super) fn text(status: &RolloutStatus) -> String {
    // A status is plain data: it can be written.
    serde_json::to_string(status).unwrap_or_default()
}
