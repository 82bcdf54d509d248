//! The condition `InPlaceResizing` in the status of Deployments and `DaemonSets`. Pure.
//!
//! Their controllers leave conditions as they are that they do not know. That of `StatefulSets` does not: it writes a status
//! without any, so they have the annotation alone. So have the kinds of OpenKruise.
//!
//! `kubectl rollout status` reads the condition `Progressing` of a Deployment. Its controller sets it to `DeploymentPaused` during a
//! hold, unless it says `ProgressDeadlineExceeded`, which a pause does not replace. So a rollout that is held for longer than the
//! progress deadline sets that reason, as the controller does for its own rollouts, and `kubectl rollout status` fails.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_controller_runtime::clock::whole_seconds;
use serde_json::{Value, json};

use super::object::Workload;
use crate::engine::{CONDITION, Phase, RolloutStatus};

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
            let found = condition_of(deployment, CONDITION)?;
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
    let now = whole_seconds(now).to_string();
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

/// What is to be done about the condition `Progressing` of a Deployment.
#[derive(Debug)]
pub(super) enum Progress {
    /// It says what it should.
    Current,
    /// The progress deadline is exceeded at this time, unless the rollout goes on.
    Due(Timestamp),
    /// The strategic merge patch of the Deployment's status that sets the condition.
    Patch(Value),
}

impl Progress {
    /// Compares the condition with a rollout that began at this time: whether it has been `Held` for longer than the progress
    /// deadline. The time is that of the condition `InPlaceResizing`, so that a restart of this process does not extend it.
    pub(super) fn of(
        deployment: &Deployment,
        status: &RolloutStatus,
        started_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let Some(deadline) = deadline(deployment) else { return Self::Current };
        let held = condition_of(deployment, CONDITION)
            .filter(|one| status.phase == Phase::Held && one.reason.as_deref() == Some(Phase::Held.name()))
            .and_then(|one| one.last_update_time.as_ref());
        let ends_at = held.map(|since| {
            since.0.max(started_at).checked_add(SignedDuration::from_secs(deadline)).unwrap_or(Timestamp::MAX)
        });
        let exceeds = ends_at.is_some_and(|ends_at| ends_at <= now);
        match (exceeded(deployment).is_some(), exceeds) {
            (false, true) => {
                Self::Patch(progressing(deployment, "False", DEADLINE_EXCEEDED, &message(status), now))
            }
            (true, false) => Self::Patch(paused(deployment, now)),
            (true, true) => Self::Current,
            (false, false) => ends_at.map_or(Self::Current, Self::Due),
        }
    }

    /// Compares the condition with a rollout that began at this time and that nothing is decided about yet: whether it is about
    /// an earlier one, for which `kubectl rollout status` would fail.
    pub(super) fn before(deployment: &Deployment, started_at: Timestamp, now: Timestamp) -> Self {
        let since = exceeded(deployment).and_then(|one| one.last_update_time.as_ref());
        match since.filter(|since| since.0 < started_at) {
            Some(_) => Self::Patch(paused(deployment, now)),
            None => Self::Current,
        }
    }
}

const PROGRESSING: &str = "Progressing";
const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

/// The condition `Progressing` of a Deployment that has exceeded its progress deadline.
fn exceeded(deployment: &Deployment) -> Option<&DeploymentCondition> {
    condition_of(deployment, PROGRESSING).filter(|one| one.reason.as_deref() == Some(DEADLINE_EXCEEDED))
}

/// The patch with the condition that the Deployment's controller sets during a hold.
fn paused(deployment: &Deployment, now: Timestamp) -> Value {
    progressing(deployment, "Unknown", "DeploymentPaused", "Deployment is paused", now)
}

fn progressing(deployment: &Deployment, is: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = whole_seconds(now).to_string();
    json!({
        "metadata": { "uid": deployment.metadata.uid },
        "status": { "conditions": [{
            "type": PROGRESSING, "status": is, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now,
        }] },
    })
}

/// The progress deadline of a Deployment in seconds; none if it has none.
fn deadline(deployment: &Deployment) -> Option<i64> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then_some(i64::from(seconds))
}

fn condition_of<'a>(deployment: &'a Deployment, type_: &str) -> Option<&'a DeploymentCondition> {
    deployment.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == type_)
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

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;
    use crate::engine::Counts;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn deployment(deadline: i32, progressing: (&str, i64), in_place: (&str, i64)) -> Deployment {
        let condition = |type_: &str, (reason, since): (&str, i64)| {
            let since = at(since).to_string();
            json!({ "type": type_, "status": "True", "reason": reason, "lastUpdateTime": since })
        };
        from_value(json!({
            "metadata": { "name": "web", "uid": "1" },
            "spec": { "selector": {}, "template": {}, "progressDeadlineSeconds": deadline },
            "status": { "conditions": [condition(PROGRESSING, progressing), condition(CONDITION, in_place)] },
        }))
        .unwrap()
    }

    fn status(phase: Phase) -> RolloutStatus {
        from_value(json!({ "revision": "r", "phase": phase, "pods": Counts::default() })).unwrap()
    }

    /// What becomes of the reason of the condition, or when.
    fn outcome(progress: Progress) -> String {
        match progress {
            Progress::Current => "current".to_owned(),
            Progress::Due(at) => format!("at {}", at.as_second()),
            Progress::Patch(patch) => {
                patch["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
            }
        }
    }

    #[test]
    fn the_progress_deadline_counts_from_when_the_rollout_was_held_and_only_then() {
        let paused = ("DeploymentPaused", 90);
        let late = ("ProgressDeadlineExceeded", 120);
        // The deadline, the conditions, the phase, when the rollout began, and what comes of it at 160.
        let table = [
            (60, paused, ("Held", 100), Phase::Held, 80, "ProgressDeadlineExceeded"),
            (61, paused, ("Held", 100), Phase::Held, 80, "at 161"),
            (i32::MAX, paused, ("Held", 100), Phase::Held, 80, "current"),
            (60, paused, ("Progressing", 100), Phase::Progressing, 80, "current"),
            (60, paused, ("Paused", 100), Phase::Paused, 80, "current"),
            // Not reported yet.
            (60, paused, ("Progressing", 100), Phase::Held, 80, "current"),
            (60, late, ("Held", 60), Phase::Held, 50, "current"),
            (60, late, ("Held", 60), Phase::Progressing, 50, "DeploymentPaused"),
            (60, late, ("Held", 60), Phase::Complete, 50, "DeploymentPaused"),
            // Another template, whose pods are stuck, too.
            (60, late, ("Held", 60), Phase::Held, 150, "DeploymentPaused"),
        ];
        for (deadline, progressing, in_place, phase, started, expected) in table {
            let web = deployment(deadline, progressing, in_place);
            let progress = Progress::of(&web, &status(phase), at(started), at(160));
            assert_eq!(outcome(progress), expected, "{deadline} {progressing:?} {in_place:?} {phase:?}");
        }
    }

    #[test]
    fn an_exceeded_deadline_of_the_rollout_before_is_removed_before_anything_else() {
        let late = ("ProgressDeadlineExceeded", 120);
        for (progressing, started, expected) in [
            (late, 121, "DeploymentPaused"),
            (late, 120, "current"),
            (late, 50, "current"),
            (("DeploymentPaused", 90), 121, "current"),
        ] {
            let web = deployment(60, progressing, ("Held", 60));
            assert_eq!(outcome(Progress::before(&web, at(started), at(160))), expected, "{started}");
        }
    }
}
