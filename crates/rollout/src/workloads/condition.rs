//! The condition `InPlaceResizing` in the status of Deployments and `DaemonSets`. Pure.
//!
//! Their controllers leave conditions as they are that they do not know. That of `StatefulSets` does not: it writes a status
//! without any, so they have the annotation alone. So have the kinds of OpenKruise.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::Workload;
use crate::engine::{Phase, RolloutStatus};

/// The type of the condition.
pub const CONDITION: &str = "InPlaceResizing";

/// The strategic merge patch of a workload's status that sets the condition; none if it is set, or the kind has none.
pub(super) fn patch(workload: &Workload, status: &RolloutStatus, now: Timestamp) -> Option<Value> {
    let is = if is_under_way(status.phase) { "True" } else { "False" };
    let (reason, message) = (status.phase.name(), message(status));
    // Conditions have whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let mut condition = json!({ "type": CONDITION, "status": is, "reason": reason, "message": message, "lastTransitionTime": now });
    let before = match workload {
        Workload::Deployment(deployment) => {
            condition["lastUpdateTime"] = json!(now);
            let conditions = deployment.status.as_ref().and_then(|status| status.conditions.as_ref());
            let before = conditions.into_iter().flatten().find(|one| one.type_ == CONDITION);
            before.map(|one| (&one.status, &one.reason, &one.message, &one.last_transition_time))
        }
        Workload::DaemonSet(set) => {
            let conditions = set.status.as_ref().and_then(|status| status.conditions.as_ref());
            let before = conditions.into_iter().flatten().find(|one| one.type_ == CONDITION);
            before.map(|one| (&one.status, &one.reason, &one.message, &one.last_transition_time))
        }
        Workload::StatefulSet(_) | Workload::AdvancedStatefulSet(_) | Workload::AdvancedDaemonSet(_) => {
            return None;
        }
    };
    if let Some((status, known, text, since)) = before {
        if status == is && known.as_deref() == Some(reason) && text.as_deref() == Some(message.as_str()) {
            return None;
        }
        if let Some(since) = since.as_ref().filter(|_| status == is) {
            condition["lastTransitionTime"] = json!(since);
        }
    }
    let uid = &workload.metadata().uid;
    Some(json!({ "metadata": { "uid": uid }, "status": { "conditions": [condition] } }))
}

/// Whether pods may still be resized: the workload is held.
const fn is_under_way(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Progressing | Phase::Paused | Phase::Partitioned | Phase::Held | Phase::RollingBack
    )
}

/// The message of the condition. It has no counts, which change with each pod: the annotation has them.
fn message(status: &RolloutStatus) -> String {
    let text = match status.phase {
        Phase::Progressing => "pods are resized to the resources of the template",
        Phase::Paused => "the rollout is paused",
        Phase::Partitioned => "all pods that the partition allows have the resources of the template",
        Phase::Held => "pods are stuck, and no other can be resized",
        Phase::RollingBack => "pods are resized back",
        Phase::Complete => "all pods have the resources of the template",
        Phase::RolledBack => "all pods were resized back",
        Phase::RollbackFailed => {
            let pods: Vec<&str> = status.stuck.iter().map(|failure| failure.pod.as_str()).collect();
            return format!("pods could not be resized back: {}", pods.join(", "));
        }
        Phase::Recreating => "pods are recreated by the workload's controller",
    };
    if status.message.is_empty() { text.to_owned() } else { format!("{text}: {}", status.message) }
}
