//! Checks of pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use crate::case::{Amounts, Dialect};
use crate::pod;
use crate::wait::Objection;

/// Resources by container.
pub(crate) type Sizes = BTreeMap<&'static str, Amounts>;

/// The expected resources of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpectedResources {
    pub(crate) desired: Sizes,
    pub(crate) allocated: Sizes,
    pub(crate) actual: Sizes,
}

impl ExpectedResources {
    /// Desired, allocated and actual resources are the same.
    pub(crate) fn settled(sizes: Sizes) -> Self {
        Self { desired: sizes.clone(), allocated: sizes.clone(), actual: sizes }
    }
}

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default()
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Whether all containers are running.
fn runs(pod: &Pod) -> Result<(), Objection> {
    let is_running = |status: &&ContainerStatus| {
        status.ready && status.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    let running = statuses(pod).iter().filter(is_running).count();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    if running == all && all > 0 {
        return Ok(());
    }
    // The scheduler writes why a pod has no node.
    let why = condition(pod, "PodScheduled").and_then(|found| found.message.as_deref());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Objection::not_yet(format!("{running} of {all} containers run{why}"))
}

/// Whether `status.resize` has this value in the dialect that has the field, and is absent in the other.
pub(crate) fn word(pod: &Pod, dialect: Dialect, word: Option<&str>) -> Result<(), Objection> {
    let found = pod.status.as_ref().and_then(|status| status.resize.as_deref());
    let expected = word.filter(|_| dialect == Dialect::Kep);
    if found == expected {
        return Ok(());
    }
    let text = |word: Option<&str>| word.map_or_else(|| "nothing".to_owned(), |word| format!("{word:?}"));
    Objection::not_yet(format!("status.resize says {} and not {}", text(found), text(expected)))
}

/// Whether containers have these allocated and actual resources.
fn sizes(pod: &Pod, allocated: &Sizes, actual: &Sizes) -> Result<(), Objection> {
    for status in statuses(pod) {
        let name = status.name.as_str();
        let (Some(allocated), Some(actual)) = (allocated.get(name), actual.get(name)) else { continue };
        let (allocated, actual) = (pod::requirements(*allocated), pod::requirements(*actual));
        if status.resources.as_ref() != Some(&actual) {
            return Objection::not_yet(format!("{name} has {:?} and not {actual:?}", status.resources));
        }
        if status.allocated_resources != allocated.requests {
            let found = &status.allocated_resources;
            return Objection::not_yet(format!(
                "{name} is allocated {found:?} and not {:?}",
                allocated.requests
            ));
        }
    }
    Ok(())
}

/// Whether the node has observed this generation of the pod. A resize back to earlier resources would else look as if
/// the node had applied it.
fn is_observed(seen: Option<i64>, pod: &Pod) -> Result<(), Objection> {
    match (seen, pod.metadata.generation) {
        (Some(seen), Some(last)) if seen < last => {
            Objection::not_yet(format!("the node has observed generation {seen} of {last}"))
        }
        _ => Ok(()),
    }
}

/// Whether every container runs with its desired resources, has exactly them allocated, and was restarted as often as
/// expected.
pub(crate) fn applied(
    pod: &Pod,
    desired: &Sizes,
    restarts: &[(&str, i32)],
    dialect: Dialect,
) -> Result<(), Objection> {
    let expected =
        |name: &str| restarts.iter().find(|(container, _)| *container == name).map_or(0, |(_, count)| *count);
    for status in statuses(pod) {
        let (name, count) = (&status.name, status.restart_count);
        if count > expected(name) {
            let why = format!("{name} was restarted {count} times instead of {}", expected(name));
            return Err(Objection::Never(why));
        }
    }
    if let Some(status) = &pod.status
        && status.phase.as_deref() == Some("Failed")
    {
        return Err(Objection::Never(format!("it failed: {:?} {:?}", status.reason, status.message)));
    }
    runs(pod)?;
    is_observed(pod.status.as_ref().and_then(|status| status.observed_generation), pod)?;
    sizes(pod, desired, desired)?;
    for status in statuses(pod) {
        if status.restart_count != expected(&status.name) {
            return Objection::not_yet(format!("{} was not restarted yet", status.name));
        }
    }
    for kind in ["PodResizePending", "PodResizeInProgress"] {
        if let Some(PodCondition { reason, message, .. }) = condition(pod, kind) {
            return Objection::not_yet(format!("{kind} is there: {reason:?} {message:?}"));
        }
    }
    word(pod, dialect, None)
}

/// Whether the node has allocated the desired resources, and the actual ones are still the old ones.
pub(crate) fn in_progress(
    pod: &Pod,
    expected_resources: &ExpectedResources,
    dialect: Dialect,
) -> Result<(), Objection> {
    sizes(pod, &expected_resources.desired, &expected_resources.actual)?;
    match condition(pod, "PodResizeInProgress") {
        Some(found) if found.status == "True" => is_observed(found.observed_generation, pod)?,
        _ => return Objection::not_yet("PodResizeInProgress is not there"),
    }
    word(pod, dialect, Some("InProgress"))
}

/// Whether the node reports the resize as pending for this reason, with unchanged allocated and actual resources.
pub(crate) fn pending(
    pod: &Pod,
    reason: &str,
    expected_resources: &ExpectedResources,
    dialect: Dialect,
) -> Result<(), Objection> {
    match condition(pod, "PodResizePending") {
        Some(found) if found.status == "True" && found.reason.as_deref() == Some(reason) => {
            is_observed(found.observed_generation, pod)?;
        }
        Some(found) => return Objection::not_yet(format!("PodResizePending says {:?}", found.reason)),
        None => return Objection::not_yet("PodResizePending is not there"),
    }
    if let Some(found) = condition(pod, "PodResizeInProgress") {
        return Objection::not_yet(format!("PodResizeInProgress is there: {:?}", found.message));
    }
    // Without a resize in progress, the actual resources are the allocated ones.
    sizes(pod, &expected_resources.allocated, &expected_resources.allocated)?;
    word(pod, dialect, Some(reason))
}

/// Whether the node reports that it cannot actuate the desired resources.
pub(crate) fn failing(pod: &Pod, dialect: Dialect) -> Result<(), Objection> {
    match condition(pod, "PodResizeInProgress") {
        Some(found) if found.status == "True" && found.reason.as_deref() == Some("Error") => {
            is_observed(found.observed_generation, pod)?;
        }
        found => {
            let found = found.map(|found| &found.reason);
            return Objection::not_yet(format!("PodResizeInProgress is {found:?}"));
        }
    }
    word(pod, dialect, Some("InProgress"))
}

/// Whether the pod is Pending on a node.
pub(crate) fn initializing(pod: &Pod) -> Result<(), Objection> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_begun = condition(pod, "Initialized").is_some_and(|found| found.status == "False");
    if phase == Some("Pending") && has_begun {
        return Ok(());
    }
    Objection::not_yet(format!("its phase is {phase:?}"))
}

/// Whether the scheduler finds no node for the pod.
pub(crate) fn unschedulable(pod: &Pod) -> Result<(), Objection> {
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
        return Err(Objection::Never(String::from("it got a node")));
    }
    match condition(pod, "PodScheduled") {
        Some(found) if found.reason.as_deref() == Some("Unschedulable") => Ok(()),
        found => Objection::not_yet(format!("PodScheduled is {:?}", found.map(|found| &found.reason))),
    }
}

/// Whether the node rejected the pod for this reason.
pub(crate) fn rejected(pod: &Pod, reason: &str) -> Result<(), Objection> {
    let status = pod.status.as_ref();
    let (phase, found) =
        status.map_or((None, None), |status| (status.phase.as_deref(), status.reason.as_deref()));
    match phase {
        Some("Failed") if found == Some(reason) => Ok(()),
        Some("Failed") => Err(Objection::Never(format!("the node rejected it for {found:?}"))),
        Some("Running") => Err(Objection::Never(String::from("the node admitted it"))),
        phase => Objection::not_yet(format!("its phase is {phase:?}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SMALL: Amounts = Amounts::new(("100m", "200m"), ("32Mi", "64Mi"));
    const LARGE: Amounts = Amounts::new(("200m", "400m"), ("64Mi", "128Mi"));

    fn mk_pod(
        actual: Amounts,
        allocated: Amounts,
        restarts: i32,
        conditions: Value,
        word: Option<&str>,
    ) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "generation": 2 },
            "spec": { "containers": [{ "name": "main" }] },
            "status": {
                "resize": word,
                "observedGeneration": 2,
                "conditions": conditions,
                "containerStatuses": [{
                    "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": restarts,
                    "state": { "running": {} },
                    "resources": pod::requirements(actual),
                    "allocatedResources": pod::requirements(allocated).requests,
                }],
            },
        }))
        .expect("the pod is well formed")
    }

    fn verdict(found: Result<(), Objection>) -> &'static str {
        match found {
            Ok(()) => "holds",
            Err(Objection::NotYet(_)) => "not yet",
            Err(Objection::Never(_)) => "never",
        }
    }

    #[test]
    fn a_resize_is_applied_only_when_nothing_is_left_to_do() {
        let in_progress = json!([{ "type": "PodResizeInProgress", "status": "True" }]);
        let pending = json!([{ "type": "PodResizePending", "status": "True", "reason": "Deferred" }]);
        for (what, (actual, allocated, restarted, conditions), restarts, expected) in [
            ("all is as desired", (LARGE, LARGE, 0, json!([])), 0, "holds"),
            ("one restart is expected", (LARGE, LARGE, 1, json!([])), 1, "holds"),
            ("the container has the old amounts", (SMALL, LARGE, 0, json!([])), 0, "not yet"),
            ("the old amounts are still allocated", (LARGE, SMALL, 0, json!([])), 0, "not yet"),
            ("the resize is in progress", (LARGE, LARGE, 0, in_progress), 0, "not yet"),
            ("the resize is pending", (LARGE, LARGE, 0, pending), 0, "not yet"),
            ("the restart is still to come", (LARGE, LARGE, 0, json!([])), 1, "not yet"),
            ("one restart too many", (LARGE, LARGE, 2, json!([])), 1, "never"),
        ] {
            let pod = mk_pod(actual, allocated, restarted, conditions, None);
            let desired = Sizes::from([("main", LARGE)]);
            let found = applied(&pod, &desired, &[("main", restarts)], Dialect::Kep);
            assert_eq!(verdict(found), expected, "{what}");
        }
    }

    #[test]
    fn a_pending_resize_leaves_the_allocation_and_is_reported_as_the_dialect_does() {
        let says = |reason: &str, generation: i64| json!([{ "type": "PodResizePending", "status": "True", "reason": reason, "observedGeneration": generation }]);
        let expected_resources = ExpectedResources {
            desired: Sizes::from([("main", LARGE)]),
            ..ExpectedResources::settled(Sizes::from([("main", SMALL)]))
        };
        let (deferred, kep, v1_36) = (Some("Deferred"), Dialect::Kep, Dialect::V1_36);
        for (what, allocated, condition, word, dialect, expected) in [
            ("as the proposal", SMALL, says("Deferred", 2), deferred, kep, "holds"),
            ("without status.resize", SMALL, says("Deferred", 2), None, kep, "not yet"),
            ("as Kubernetes", SMALL, says("Deferred", 2), None, v1_36, "holds"),
            ("with status.resize", SMALL, says("Deferred", 2), deferred, v1_36, "not yet"),
            ("another reason", SMALL, says("Infeasible", 2), None, v1_36, "not yet"),
            ("of an earlier generation", SMALL, says("Deferred", 1), None, v1_36, "not yet"),
            ("allocated", LARGE, says("Deferred", 2), None, v1_36, "not yet"),
        ] {
            let pod = mk_pod(SMALL, allocated, 0, condition, word);
            assert_eq!(verdict(pending(&pod, "Deferred", &expected_resources, dialect)), expected, "{what}");
        }
    }

    #[test]
    fn a_resize_is_in_progress_while_the_allocation_is_ahead_of_the_actual_resources() {
        let resizing =
            || json!([{ "type": "PodResizeInProgress", "status": "True", "observedGeneration": 2 }]);
        let expected_resources = ExpectedResources {
            desired: Sizes::from([("main", LARGE)]),
            ..ExpectedResources::settled(Sizes::from([("main", SMALL)]))
        };
        for (what, actual, allocated, conditions, expected) in [
            ("it is", SMALL, LARGE, resizing(), "holds"),
            ("it is done", LARGE, LARGE, resizing(), "not yet"),
            ("it is not allocated", SMALL, SMALL, resizing(), "not yet"),
            ("no condition", SMALL, LARGE, json!([]), "not yet"),
        ] {
            let pod = mk_pod(actual, allocated, 0, conditions, Some("InProgress"));
            assert_eq!(
                verdict(super::in_progress(&pod, &expected_resources, Dialect::Kep)),
                expected,
                "{what}"
            );
        }
    }
}
