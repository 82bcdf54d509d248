//! The condition `InPlaceResizing` in the status of Deployments and `DaemonSets`. Pure.
//!
//! Their controllers leave conditions as they are that they do not know. That of `StatefulSets` does not: it writes a status
//! without any, so they have the annotation alone. So have the kinds of OpenKruise.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::object::Workload;
use crate::engine::{Phase, RolloutStatus};

/// The type of the condition.
pub const CONDITION: &str = "InPlaceResizing";

/// The reason once the workload's controller has recreated the pods.
const RECREATED: &str = "Recreated";

/// The strategic merge patch of a workload's status that sets the condition; none if it is set, or the kind has none.
pub(super) fn patch(workload: &Workload, status: &RolloutStatus, now: Timestamp) -> Option<Value> {
    set(workload, is_under_way(status.phase), status.phase.name(), &message(status), now)
}

/// The same once the workload's controller has recreated the pods; none unless the condition says that it does.
pub(super) fn patch_recreated(workload: &Workload, now: Timestamp) -> Option<Value> {
    known(workload).filter(|known| known.reason == Some(Phase::Recreating.name()))?;
    set(workload, false, RECREATED, "pods were recreated by the workload's controller", now)
}

/// The condition as a workload has it.
struct Known<'a> {
    status: &'a str,
    reason: Option<&'a str>,
    message: Option<&'a str>,
    since: Option<&'a Time>,
}

/// The condition of a workload, if it has it.
fn known(workload: &Workload) -> Option<Known<'_>> {
    match workload {
        Workload::Deployment(deployment) => {
            let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
            let found = conditions.iter().find(|one| one.type_ == CONDITION)?;
            Some(Known {
                status: &found.status,
                reason: found.reason.as_deref(),
                message: found.message.as_deref(),
                since: found.last_transition_time.as_ref(),
            })
        }
        Workload::DaemonSet(set) => {
            let conditions = set.status.as_ref()?.conditions.as_ref()?;
            let found = conditions.iter().find(|one| one.type_ == CONDITION)?;
            Some(Known {
                status: &found.status,
                reason: found.reason.as_deref(),
                message: found.message.as_deref(),
                since: found.last_transition_time.as_ref(),
            })
        }
        Workload::StatefulSet(_) | Workload::AdvancedStatefulSet(_) | Workload::AdvancedDaemonSet(_) => None,
    }
}

fn set(workload: &Workload, is_true: bool, reason: &str, message: &str, now: Timestamp) -> Option<Value> {
    if !matches!(workload, Workload::Deployment(_) | Workload::DaemonSet(_)) {
        return None;
    }
    let is = if is_true { "True" } else { "False" };
    // Conditions have whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let mut condition = json!({ "type": CONDITION, "status": is, "reason": reason, "message": message, "lastTransitionTime": now });
    if let Workload::Deployment(_) = workload {
        condition["lastUpdateTime"] = json!(now);
    }
    if let Some(known) = known(workload) {
        if known.status == is && known.reason == Some(reason) && known.message == Some(message) {
            return None;
        }
        if let Some(since) = known.since.filter(|_| known.status == is) {
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
