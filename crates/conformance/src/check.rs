//! What a pod must look like, by what is known of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use crate::case::{Amounts, Dialect};
use crate::pod;
use crate::wait::Objection;

/// What containers have, by name.
pub(crate) type Sizes = BTreeMap<&'static str, Amounts>;

/// How a pod must stand: what its containers are to have, were promised last, and had in force last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) desired: Sizes,
    pub(crate) allocated: Sizes,
    pub(crate) actual: Sizes,
}

impl Standing {
    /// All of it is the same.
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

/// Whether every container runs.
fn runs(pod: &Pod) -> Result<(), Objection> {
    let is_running = |status: &&ContainerStatus| {
        status.ready && status.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    let running = statuses(pod).iter().filter(is_running).count();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    if running == all && all > 0 {
        return Ok(());
    }
    // Whoever has no node is told why by the scheduler.
    let why = condition(pod, "PodScheduled").and_then(|found| found.message.as_deref());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Objection::not_yet(format!("{running} of {all} containers run{why}"))
}

/// Whether `status.resize` says this in the dialect that has it, and nothing in the other.
pub(crate) fn word(pod: &Pod, dialect: Dialect, word: Option<&str>) -> Result<(), Objection> {
    let found = pod.status.as_ref().and_then(|status| status.resize.as_deref());
    let expected = word.filter(|_| dialect == Dialect::Kep);
    if found == expected {
        return Ok(());
    }
    let text = |word: Option<&str>| word.map_or_else(|| "nothing".to_owned(), |word| format!("{word:?}"));
    Objection::not_yet(format!("status.resize says {} and not {}", text(found), text(expected)))
}

/// Whether containers are promised and have in force what is said.
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

/// Whether the node has looked at the pod as it is now: what is wished for may be what was there before, and then the
/// status says nothing about it yet.
fn looked_at(seen: Option<i64>, pod: &Pod) -> Result<(), Objection> {
    match (seen, pod.metadata.generation) {
        (Some(seen), Some(last)) if seen < last => {
            Objection::not_yet(format!("generation {seen} of {last} was looked at"))
        }
        _ => Ok(()),
    }
}

/// Whether every container runs with what is desired, is allocated exactly that, and was restarted as often as expected.
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
    looked_at(pod.status.as_ref().and_then(|status| status.observed_generation), pod)?;
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

/// Whether the node has promised what is desired, and what was in force still is.
pub(crate) fn underway(pod: &Pod, standing: &Standing, dialect: Dialect) -> Result<(), Objection> {
    sizes(pod, &standing.desired, &standing.actual)?;
    match condition(pod, "PodResizeInProgress") {
        Some(found) if found.status == "True" => looked_at(found.observed_generation, pod)?,
        _ => return Objection::not_yet("PodResizeInProgress is not there"),
    }
    word(pod, dialect, Some("InProgress"))
}

/// Whether the node says that it won't take what is desired, for this reason, and all stands as before.
pub(crate) fn pending(
    pod: &Pod,
    reason: &str,
    standing: &Standing,
    dialect: Dialect,
) -> Result<(), Objection> {
    match condition(pod, "PodResizePending") {
        Some(found) if found.status == "True" && found.reason.as_deref() == Some(reason) => {
            looked_at(found.observed_generation, pod)?;
        }
        Some(found) => return Objection::not_yet(format!("PodResizePending says {:?}", found.reason)),
        None => return Objection::not_yet("PodResizePending is not there"),
    }
    if let Some(found) = condition(pod, "PodResizeInProgress") {
        return Objection::not_yet(format!("PodResizeInProgress is there: {:?}", found.message));
    }
    // What was promised last is in force by the time that nothing is in progress.
    sizes(pod, &standing.allocated, &standing.allocated)?;
    word(pod, dialect, Some(reason))
}

/// Whether the node says that it fails to apply what is desired.
pub(crate) fn failing(pod: &Pod, dialect: Dialect) -> Result<(), Objection> {
    match condition(pod, "PodResizeInProgress") {
        Some(found) if found.status == "True" && found.reason.as_deref() == Some("Error") => {
            looked_at(found.observed_generation, pod)?;
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

/// Whether the pod fits no node.
pub(crate) fn unschedulable(pod: &Pod) -> Result<(), Objection> {
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
        return Err(Objection::Never(String::from("it got a node")));
    }
    match condition(pod, "PodScheduled") {
        Some(found) if found.reason.as_deref() == Some("Unschedulable") => Ok(()),
        found => Objection::not_yet(format!("PodScheduled is {:?}", found.map(|found| &found.reason))),
    }
}

/// Whether the node did not take the pod in, for this reason.
pub(crate) fn turned_away(pod: &Pod, reason: &str) -> Result<(), Objection> {
    let status = pod.status.as_ref();
    let (phase, found) =
        status.map_or((None, None), |status| (status.phase.as_deref(), status.reason.as_deref()));
    match phase {
        Some("Failed") if found == Some(reason) => Ok(()),
        Some("Failed") => Err(Objection::Never(format!("it was turned away for {found:?}"))),
        Some("Running") => Err(Objection::Never(String::from("it was taken in"))),
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
        promised: Amounts,
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
                    "allocatedResources": pod::requirements(promised).requests,
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
        for (what, (actual, promised, restarted, conditions), restarts, expected) in [
            ("all is as desired", (LARGE, LARGE, 0, json!([])), 0, "holds"),
            ("one restart was asked for", (LARGE, LARGE, 1, json!([])), 1, "holds"),
            ("the container has the old amounts", (SMALL, LARGE, 0, json!([])), 0, "not yet"),
            ("the node still promises the old", (LARGE, SMALL, 0, json!([])), 0, "not yet"),
            ("the node says it is at it", (LARGE, LARGE, 0, in_progress), 0, "not yet"),
            ("the node says it won't", (LARGE, LARGE, 0, pending), 0, "not yet"),
            ("the restart is still to come", (LARGE, LARGE, 0, json!([])), 1, "not yet"),
            ("one restart too many", (LARGE, LARGE, 2, json!([])), 1, "never"),
        ] {
            let pod = mk_pod(actual, promised, restarted, conditions, None);
            let desired = Sizes::from([("main", LARGE)]);
            let found = applied(&pod, &desired, &[("main", restarts)], Dialect::Kep);
            assert_eq!(verdict(found), expected, "{what}");
        }
    }

    #[test]
    fn a_refused_resize_leaves_what_is_promised_and_says_so_in_the_words_of_the_dialect() {
        let says = |reason: &str, generation: i64| json!([{ "type": "PodResizePending", "status": "True", "reason": reason, "observedGeneration": generation }]);
        let standing = Standing {
            desired: Sizes::from([("main", LARGE)]),
            ..Standing::settled(Sizes::from([("main", SMALL)]))
        };
        let (deferred, kep, v1_36) = (Some("Deferred"), Dialect::Kep, Dialect::V1_36);
        for (what, promised, condition, word, dialect, expected) in [
            ("as the proposal", SMALL, says("Deferred", 2), deferred, kep, "holds"),
            ("without the word", SMALL, says("Deferred", 2), None, kep, "not yet"),
            ("as Kubernetes", SMALL, says("Deferred", 2), None, v1_36, "holds"),
            ("a word too many", SMALL, says("Deferred", 2), deferred, v1_36, "not yet"),
            ("another reason", SMALL, says("Infeasible", 2), None, v1_36, "not yet"),
            ("about what was before", SMALL, says("Deferred", 1), None, v1_36, "not yet"),
            ("promised after all", LARGE, says("Deferred", 2), None, v1_36, "not yet"),
        ] {
            let pod = mk_pod(SMALL, promised, 0, condition, word);
            assert_eq!(verdict(pending(&pod, "Deferred", &standing, dialect)), expected, "{what}");
        }
    }

    #[test]
    fn a_resize_is_under_way_while_the_promise_is_ahead_of_what_is_in_force() {
        let at_it = || json!([{ "type": "PodResizeInProgress", "status": "True", "observedGeneration": 2 }]);
        let standing = Standing {
            desired: Sizes::from([("main", LARGE)]),
            ..Standing::settled(Sizes::from([("main", SMALL)]))
        };
        for (what, actual, promised, conditions, expected) in [
            ("it is", SMALL, LARGE, at_it(), "holds"),
            ("it is over", LARGE, LARGE, at_it(), "not yet"),
            ("it was not promised", SMALL, SMALL, at_it(), "not yet"),
            ("nobody says so", SMALL, LARGE, json!([]), "not yet"),
        ] {
            let pod = mk_pod(actual, promised, 0, conditions, Some("InProgress"));
            assert_eq!(verdict(underway(&pod, &standing, Dialect::Kep)), expected, "{what}");
        }
    }
}
