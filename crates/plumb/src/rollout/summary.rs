//! How the rollout of a workload stands, in a row of a table and in a few lines.

use kube::api::DynamicObject;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::commands::Progress;
use serde_json::Value;

use super::cloneset::State;
use super::{Kind, Workload, is_replacing};

/// How many pods of a workload there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    pub(crate) desired: i64,
    pub(crate) updated: i64,
    pub(crate) available: i64,
}

/// A workload and its in-place rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The kind and the name, as kubectl prints them.
    pub(crate) workload: String,
    /// The phase of the rollout; `-` without one.
    pub(crate) state: String,
    /// How many pods the rollout is done with, and of how many.
    pub(crate) done: Option<(usize, usize)>,
    pub(crate) pods: Pods,
    /// The lines of `plumb rollout status`.
    pub(crate) text: String,
}

impl Summary {
    /// Reads it from the workload.
    pub(crate) fn of(kind: Kind, object: &DynamicObject) -> Self {
        let workload = Workload { kind, name: object.metadata.name.clone().unwrap_or_default() };
        let (progress, text) = match kind {
            Kind::Held(kind) => {
                let progress = Progress::from_metadata(&object.metadata);
                let text = workload.lines(&progress);
                if matches!(progress, Progress::None) && is_replacing(kind, object) {
                    let text =
                        format!("{workload}: no in-place rollout: its own controller replaces pods now\n");
                    (Err("Replacing"), text)
                } else {
                    (Ok(progress), text)
                }
            }
            Kind::CloneSet => match object.clone().try_parse::<CloneSet>() {
                Ok(set) => {
                    let state = State::read(&set);
                    let text = state.text(&workload, None).unwrap_or_else(|error| format!("{error:#}\n"));
                    (state.into_progress(), text)
                }
                Err(error) => (Err("Unknown"), format!("{workload}: cannot be read: {error}\n")),
            },
        };
        let (state, done) = match progress {
            Err(word) => (word, None),
            Ok(Progress::None) => ("-", None),
            Ok(Progress::Held) => ("Waiting", None),
            Ok(Progress::Reported { status, .. }) => {
                (status.phase.name(), Some((status.pods.done, status.pods.total)))
            }
        };
        Self {
            workload: workload.to_string(),
            state: state.to_owned(),
            done,
            pods: Pods::of(kind, object),
            text,
        }
    }
}

impl Pods {
    fn of(kind: Kind, object: &DynamicObject) -> Self {
        let (spec, status) = (&object.data["spec"], &object.data["status"]);
        let count = |value: &Value| value.as_i64().unwrap_or(0);
        if matches!(kind.resource().kind.as_str(), "DaemonSet") {
            return Self {
                desired: count(&status["desiredNumberScheduled"]),
                updated: count(&status["updatedNumberScheduled"]),
                available: count(&status["numberAvailable"]),
            };
        }
        Self {
            // The default of every kind with replicas.
            desired: spec["replicas"].as_i64().unwrap_or(1),
            updated: count(&status["updatedReplicas"]),
            available: count(&status["availableReplicas"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_rollout::workloads::{RECORD_ANNOTATION, STATUS_ANNOTATION, WorkloadKind};
    use serde_json::json;

    use super::*;

    fn object(annotations: &Value, spec: &Value, status: &Value) -> DynamicObject {
        let metadata =
            json!({ "name": "web", "namespace": "shop", "generation": 1, "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    }

    #[test]
    fn a_summary_has_the_phase_and_the_counts_of_a_workload() {
        let record = json!({ "revision": "r1", "base": "r0", "startedAt": "2026-01-01T00:00:00Z", "heading": "Forward" });
        let pods = json!({ "total": 6, "pending": 4, "resizing": 0, "soaking": 0, "done": 2, "stuck": 0,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0 });
        let progressing = json!({ "revision": "r1", "phase": "Progressing", "pods": pods });
        let annotations =
            json!({ RECORD_ANNOTATION: record.to_string(), STATUS_ANNOTATION: progressing.to_string() });
        let counts = json!({ "updatedReplicas": 2, "availableReplicas": 6, "observedGeneration": 1 });
        let rollout = object(&annotations, &json!({ "replicas": 6 }), &counts);
        let summary = Summary::of(Kind::Held(WorkloadKind::Deployment), &rollout);
        assert_eq!(summary.workload, "deployment/web");
        assert_eq!((summary.state.as_str(), summary.done), ("Progressing", Some((2, 6))));
        assert_eq!(summary.pods, Pods { desired: 6, updated: 2, available: 6 });
        assert!(
            summary.text.starts_with("deployment/web: Progressing, 2 of 6 pods done"),
            "{}",
            summary.text
        );

        let counts = json!({ "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": 1,
            "numberAvailable": 3, "observedGeneration": 1 });
        let daemons = object(&json!({}), &json!({}), &counts);
        let summary = Summary::of(Kind::Held(WorkloadKind::DaemonSet), &daemons);
        assert_eq!((summary.state.as_str(), summary.done), ("Replacing", None));
        assert_eq!(summary.pods, Pods { desired: 3, updated: 1, available: 3 });
    }

    #[test]
    fn an_object_that_cannot_be_read_is_no_failure_of_the_others() {
        let odd = object(&json!({}), &json!({ "replicas": "many" }), &json!({}));
        let summary = Summary::of(Kind::CloneSet, &odd);
        assert_eq!(summary.state, "Unknown");
        assert!(summary.text.contains("cannot be read"), "{}", summary.text);
    }
}
