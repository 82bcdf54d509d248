//! Where a workload is in its rollout, as a whole. What happens to its pods is decided by [`crate::engine::decide`].

use jiff::Timestamp;

use super::object::Workload;
use super::record::WorkloadRecord;
use crate::engine::RolloutOutcome;

/// The state of a workload with a record. [`decide`] reads it off the workload; the reconciler performs it.
///
/// ```text
///   the webhook holds the workload and writes the record
///     │
///     ▼             the template is edited, no webhook answers
///   Active ◀──────────────────────────────────────────────────── Overtaken
///     │  ▲                                                            ▲
///     │  └─ a pod drifts, and the policy enforces the resources       │
///     │                                                               │
///     ├── feature gate off, workload opts out ──▶ Abandoned ─┐        │
///     ▼ the outcome is recorded                              │        │
///   Ended ── released ──▶ Closed ◀───────────────────────────┘   (while held)
///                           │
///                           ├── edited without the webhook: its own controller rolled it out ──▶ Replaced ──┐
///                           ├── its own controller has recreated all pods ─────────────────────▶ Recreated ─┤
///                           ▼                                                                               │
///                        Closed, superseded ◀───────────────────────────────────────────────────────────────┘
///
///   Terminating: from any state, once the workload is deleted
/// ```
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RolloutState {
    /// The workload is being deleted: only objects that outlive it are cleaned up.
    Terminating,
    /// The workload is held although rollouts are disabled for it: its own controller takes over. The reason is for users.
    Abandoned(&'static str),
    /// The template was edited while the workload was held and the webhook did not answer. The record is that of the new
    /// rollout.
    Overtaken(Box<WorkloadRecord>),
    /// The rollout has an outcome, and the workload is still held.
    Ended,
    /// An edit that the webhook was not called for was rolled out by the workload's own controller. The record says so.
    Replaced(Box<WorkloadRecord>),
    /// The workload's own controller has recreated the pods of a rollout that was left to it. The record says so.
    Recreated(Box<WorkloadRecord>),
    /// The rollout is over.
    Closed,
    /// Pods follow the template: the rollout is under way, or is complete and the policy enforces the resources.
    Active,
}

/// What the state depends on apart from the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// The feature gate.
    pub(super) enabled: bool,
    /// Whether the policy of the workload enforces the resources of pods after a complete rollout.
    pub(super) enforces_drift: bool,
    pub(super) now: Timestamp,
}

/// The state of a workload with a record.
///
/// The order of the checks matters. A workload that rollouts are disabled for is released before its template is looked at, so
/// that no rollout begins anew. An edit counts before the release, which hands over the resources of the record.
pub(super) fn decide(
    workload: &Workload,
    record: &WorkloadRecord,
    surroundings: Surroundings,
) -> RolloutState {
    let Surroundings { enabled, enforces_drift, now } = surroundings;
    let metadata = workload.metadata();
    if metadata.deletion_timestamp.is_some() {
        return RolloutState::Terminating;
    }
    let is_held = record.hold.is_some();
    if is_held && !enabled {
        return RolloutState::Abandoned("the feature gate is off");
    }
    if is_held && workload.opts() == Some(false) {
        return RolloutState::Abandoned("the workload opted out");
    }
    let template = workload.template();
    let generation = metadata.generation.unwrap_or(0);
    if let Some(overtaken) = template.and_then(|template| record.overtaken(template, generation, now)) {
        return RolloutState::Overtaken(Box::new(overtaken));
    }
    let Some(outcome) = record.rollout.outcome else { return RolloutState::Active };
    if is_held {
        return RolloutState::Ended;
    }
    let superseded = || Box::new(WorkloadRecord { superseded: true, ..record.clone() });
    if record.superseded {
        // Nothing is reported any more.
    } else if outcome == RolloutOutcome::Recreated {
        if workload.is_rolled_out() {
            return RolloutState::Recreated(superseded());
        }
    } else if template.is_some_and(|template| record.is_of_other_resources(template)) {
        return RolloutState::Replaced(superseded());
    }
    if enforces_drift && outcome == RolloutOutcome::Complete {
        return RolloutState::Active;
    }
    RolloutState::Closed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::{Desired, Heading, RolloutRecord};
    use crate::workloads::{Hold, TemplateResources};

    const NEW: &str = "200m";
    const OLD: &str = "100m";
    const OTHER: &str = "300m";

    fn template(cpu: &str) -> Value {
        json!({ "spec": { "containers": [
            { "name": "app", "image": "app", "resources": { "requests": { "cpu": cpu } } },
        ] } })
    }

    /// A Deployment with a pod whose template requests so much CPU.
    fn deployment(cpu: &str) -> Value {
        json!({
            "metadata": { "name": "web", "namespace": "default", "generation": 7, "annotations": {} },
            "spec": { "replicas": 1, "selector": {}, "template": template(cpu) },
            "status": {
                "observedGeneration": 7, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
            },
        })
    }

    /// The record of a rollout from [`OLD`] to [`NEW`] that has begun.
    fn record() -> WorkloadRecord {
        let resources = |cpu: &str| TemplateResources::of(&serde_json::from_value(template(cpu)).unwrap());
        let began = "2026-01-01T00:00:00Z".parse().unwrap();
        WorkloadRecord {
            rollout: RolloutRecord::new("new-7".to_owned(), "old-6".to_owned(), Desired::default(), began),
            previous_template: resources(OLD),
            template: Some(resources(NEW)),
            hold: Some(Hold { restored: json!({ "paused": null }) }),
            ended: None,
            superseded: false,
        }
    }

    fn ended(outcome: RolloutOutcome, hold: Option<Hold>) -> WorkloadRecord {
        let heading = match outcome {
            RolloutOutcome::Complete => Heading::Forward,
            RolloutOutcome::RolledBack | RolloutOutcome::RollbackFailed => Heading::Back,
            RolloutOutcome::Recreated => Heading::Recreate,
        };
        let rollout = RolloutRecord { heading, outcome: Some(outcome), ..record().rollout };
        WorkloadRecord { rollout, hold, ..record() }
    }

    fn decided(
        workload: Value,
        record: &WorkloadRecord,
        enabled: bool,
        enforces_drift: bool,
    ) -> RolloutState {
        let workload: Deployment = serde_json::from_value(workload).unwrap();
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let surroundings = Surroundings { enabled, enforces_drift, now };
        decide(&Workload::Deployment(Arc::new(workload)), record, surroundings)
    }

    fn name(state: &RolloutState) -> &'static str {
        match state {
            RolloutState::Terminating => "terminating",
            RolloutState::Abandoned(why) => why,
            RolloutState::Overtaken(_) => "overtaken",
            RolloutState::Ended => "ended",
            RolloutState::Replaced(_) => "replaced",
            RolloutState::Recreated(_) => "recreated",
            RolloutState::Closed => "closed",
            RolloutState::Active => "active",
        }
    }

    #[test]
    fn every_state_is_read_off_a_workload() {
        use RolloutOutcome::{Complete, Recreated, RollbackFailed, RolledBack};
        let held = record().hold;
        let superseded = |outcome| WorkloadRecord { superseded: true, ..ended(outcome, None) };
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:30Z" });
        let opted_out = json!({ "annotations": { "rollout.plumb.dev/in-place": "false" } });
        let opted_in = json!({ "annotations": { "rollout.plumb.dev/in-place": "true" } });
        let behind = json!({ "generation": 8 });
        let none = json!({});
        // On the heap: the records are large.
        let cases = vec![
            // The metadata, the CPU of the template, the record, whether the gate is on and drift is enforced, the state.
            (&none, NEW, record(), true, false, "active"),
            (&opted_in, NEW, record(), true, false, "active"),
            (&none, NEW, record(), false, false, "the feature gate is off"),
            (&opted_out, NEW, record(), true, false, "the workload opted out"),
            (&opted_out, NEW, record(), false, false, "the feature gate is off"),
            (&none, OTHER, record(), true, false, "overtaken"),
            (&none, OLD, record(), true, false, "overtaken"),
            (&opted_out, OTHER, record(), true, false, "the workload opted out"),
            (&deleted, OTHER, record(), false, false, "terminating"),
            (&deleted, NEW, ended(Complete, held.clone()), true, true, "terminating"),
            (&none, NEW, ended(Complete, held.clone()), true, true, "ended"),
            (&none, NEW, ended(Complete, held.clone()), false, false, "the feature gate is off"),
            (&none, OTHER, ended(Complete, held.clone()), true, false, "overtaken"),
            (&none, OLD, ended(RolledBack, held.clone()), true, false, "ended"),
            (&none, OTHER, ended(RolledBack, held.clone()), true, false, "overtaken"),
            (&none, OTHER, ended(Recreated, held), true, false, "ended"),
            (&none, NEW, ended(Complete, None), true, false, "closed"),
            (&none, NEW, ended(Complete, None), true, true, "active"),
            // The gate and the annotation are about holds alone.
            (&none, NEW, ended(Complete, None), false, false, "closed"),
            (&opted_out, NEW, ended(Complete, None), true, false, "closed"),
            (&none, OTHER, ended(Complete, None), true, false, "replaced"),
            (&none, OTHER, ended(Complete, None), true, true, "replaced"),
            (&none, OLD, ended(RolledBack, None), true, true, "closed"),
            (&none, NEW, ended(RolledBack, None), true, false, "replaced"),
            (&none, OLD, ended(RollbackFailed, None), true, false, "closed"),
            (&none, OTHER, superseded(Complete), true, false, "closed"),
            (&none, NEW, ended(Recreated, None), true, false, "recreated"),
            (&none, OTHER, ended(Recreated, None), true, false, "recreated"),
            (&behind, NEW, ended(Recreated, None), true, false, "closed"),
            (&none, NEW, superseded(Recreated), true, false, "closed"),
        ];
        for (metadata, cpu, record, enabled, enforces_drift, expected) in cases {
            let mut workload = deployment(cpu);
            for (field, value) in metadata.as_object().unwrap() {
                workload["metadata"][field] = value.clone();
            }
            let state = decided(workload, &record, enabled, enforces_drift);
            assert_eq!(name(&state), expected, "{metadata} {cpu} {:?}", record.rollout.outcome);
        }
    }

    #[test]
    fn an_edit_while_the_workload_is_held_begins_another_rollout() {
        let state = decided(deployment(OTHER), &record(), true, false);
        let RolloutState::Overtaken(overtaken) = state else { panic!("{state:?}") };
        assert_ne!(overtaken.rollout.revision, record().rollout.revision);
        assert!(overtaken.is_open() && overtaken.hold == record().hold);
        assert_eq!(decided(deployment(OTHER), &overtaken, true, false), RolloutState::Active);
    }

    #[test]
    fn a_record_that_is_superseded_is_written_once() {
        for (cpu, outcome) in [(OTHER, RolloutOutcome::Complete), (NEW, RolloutOutcome::Recreated)] {
            let state = decided(deployment(cpu), &ended(outcome, None), true, false);
            let (RolloutState::Replaced(record) | RolloutState::Recreated(record)) = state else {
                panic!("{state:?}")
            };
            assert!(record.superseded);
            assert_eq!(decided(deployment(cpu), &record, true, false), RolloutState::Closed);
        }
    }
}
