//! How far the in-place rollout of a workload is, by the annotations that the controller writes to it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::commands::status;
use crate::engine::{Heading, Phase, RolloutStatus};
use crate::workloads::WorkloadRecord;

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The workload had no in-place rollout.
    None,
    /// The workload is held, and the controller has reported nothing yet.
    Held,
    /// The status that the controller has reported.
    Reported {
        /// The status.
        status: Box<RolloutStatus>,
        /// Whether a pod was stuck, and the policy had the rollout left for that reason.
        failed: bool,
    },
}

impl Progress {
    /// Reads the record and the reported status of a workload.
    pub fn from_metadata(workload: &ObjectMeta) -> Self {
        let record = WorkloadRecord::read(workload);
        // The reported status may be of the rollout before, or of this one before it was undone.
        let is_of = |status: &RolloutStatus, record: &WorkloadRecord| {
            status.revision == record.rollout.revision && status.heading == record.rollout.heading
        };
        // The outcome is reported with the release.
        let is_under_way = |record: &WorkloadRecord| record.is_open() || record.hold.is_some();
        match (status(workload), record) {
            (Some(status), Some(record))
                if is_under_way(&record) && (status.phase.is_outcome() || !is_of(&status, &record)) =>
            {
                Self::Held
            }
            (Some(status), record) => {
                let failed = record.is_none_or(|record| record.rollout.failure.is_some());
                Self::Reported { status: Box::new(status), failed }
            }
            (None, Some(record)) if is_under_way(&record) => Self::Held,
            (None, _) => Self::None,
        }
    }

    /// Whether it goes no further. One that is paused is to go on.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::None => true,
            Self::Held => false,
            Self::Reported { status, .. } => status.phase.has_ended() && status.phase != Phase::Paused,
        }
    }

    /// Whether the requested result was not reached. A rollback that a user requested was.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::None | Self::Held => false,
            Self::Reported { status, failed } => match status.phase {
                Phase::Held | Phase::RollbackFailed | Phase::Recreating => true,
                // On the way forward each pod has failed, and was resized back.
                Phase::RolledBack => *failed || status.heading == Heading::Forward,
                Phase::Complete => status.pods.rolled_back > 0,
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workloads::{RECORD_ANNOTATION, STATUS_ANNOTATION};

    /// How far a workload is that has this record and this status.
    fn progress(record: &Value, status: &Value) -> Progress {
        let mut annotations = json!({ RECORD_ANNOTATION: record.to_string() });
        if !status.is_null() {
            annotations[STATUS_ANNOTATION] = json!(status.to_string());
        }
        let metadata = json!({ "name": "web", "annotations": annotations });
        Progress::from_metadata(&serde_json::from_value(metadata).unwrap())
    }

    fn record(heading: &str, fields: &Value) -> Value {
        let mut record = json!({ "revision": "r1", "base": "r0", "startedAt": "2026-01-01T00:00:00Z", "heading": heading });
        record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        record
    }

    fn status(phase: &str, fields: &Value) -> Value {
        let pods = json!({ "total": 6, "pending": 0, "resizing": 0, "soaking": 0, "done": 0, "stuck": 6,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0 });
        let mut status = json!({ "revision": "r1", "phase": phase, "pods": pods });
        status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        status
    }

    #[test]
    fn a_status_from_before_an_undo_does_not_end_the_wait_for_it() {
        let (forward, back) = (record("Forward", &json!({})), record("Back", &json!({})));
        let held = status("Held", &json!({}));
        assert!(progress(&forward, &held).has_failed());
        let undone = progress(&back, &held);
        assert!(matches!(undone, Progress::Held) && !undone.has_ended() && !undone.has_failed());
        let going = progress(&back, &status("RollingBack", &json!({ "heading": "Back" })));
        assert!(matches!(going, Progress::Reported { .. }) && !going.has_ended());
    }

    #[test]
    fn a_rollout_has_not_ended_before_its_workload_is_released() {
        let (complete, partitioned) = (status("Complete", &json!({})), status("Partitioned", &json!({})));
        let outcome = json!({ "outcome": "Complete", "hold": { "restored": { "paused": null } } });
        let of_before = status("Complete", &json!({ "revision": "r0" }));
        for reported in [&complete, &of_before, &Value::Null] {
            let held = progress(&record("Forward", &outcome), reported);
            assert!(matches!(held, Progress::Held) && !held.has_ended(), "{reported}");
        }
        assert!(progress(&record("Forward", &json!({ "outcome": "Complete" })), &complete).has_ended());
        // The partition holds the workload for good.
        let hold = json!({ "hold": { "restored": { "paused": null } } });
        assert!(progress(&record("Forward", &hold), &partitioned).has_ended());
    }

    #[test]
    fn a_rollback_fails_unless_a_user_asked_for_it() {
        let failure = json!({ "pod": "web-0", "reason": "Infeasible", "message": "too large" });
        let table = [
            ("RolledBack", json!({ "outcome": "RolledBack" }), false),
            ("RolledBack", json!({ "outcome": "RolledBack", "failure": failure }), true),
            ("RollbackFailed", json!({ "outcome": "RollbackFailed" }), true),
        ];
        for (phase, fields, failed) in table {
            let ended = progress(&record("Back", &fields), &status(phase, &json!({ "heading": "Back" })));
            assert!(ended.has_ended());
            assert_eq!(ended.has_failed(), failed, "{phase} {fields}");
        }
    }

    #[test]
    fn pods_that_were_resized_back_because_they_failed_are_a_failure() {
        let pods = |done: usize, back: usize| {
            json!({ "pods": { "total": 4, "pending": 0, "resizing": 0, "soaking": 0, "done": done, "stuck": 0,
                "rollingBack": 0, "rolledBack": back, "rollbackFailed": 0 } })
        };
        let table = [
            ("Complete", pods(4, 0), false),
            ("Complete", pods(3, 1), true),
            ("RolledBack", pods(0, 4), true),
        ];
        for (phase, fields, failed) in table {
            let ended = progress(&record("Forward", &json!({ "outcome": phase })), &status(phase, &fields));
            assert!(ended.has_ended());
            assert_eq!(ended.has_failed(), failed, "{phase} {fields}");
        }
    }

    #[test]
    fn a_rollout_that_the_native_controller_superseded_is_none() {
        let complete = record("Forward", &json!({ "outcome": "Complete", "superseded": true }));
        let progress = progress(&complete, &Value::Null);
        assert!(matches!(progress, Progress::None) && !progress.has_failed());
    }
}
