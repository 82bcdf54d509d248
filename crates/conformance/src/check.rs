//! Waits for what a case expects. Every wait is a watch with a deadline: nothing is asked again and again, and a wait
//! that ends in vain says what the pod looked like last.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::watch_object;
use serde_json::Value;

use crate::case::{Amounts, Door, Expectation, Refusal, Step};
use crate::pod;

/// Waits until `holds` says nothing against the pod, or until `patience` is over.
pub(crate) async fn until(
    pods: &Api<Pod>,
    name: &str,
    patience: Duration,
    mut holds: impl FnMut(&Pod) -> Result<(), Objection>,
) -> Result<Pod, String> {
    let mut last = String::from("it was never seen");
    let watch = async {
        let mut changes = std::pin::pin!(watch_object(pods.clone(), name));
        while let Some(change) = changes.next().await {
            match change {
                Ok(Some(pod)) => match holds(&pod) {
                    Ok(()) => return Ok(pod),
                    Err(Objection::NotYet(why)) => last = why,
                    Err(Objection::Never(why)) => return Err(why),
                },
                Ok(None) => last = String::from("it is not there"),
                // The watch goes on by itself, with a backoff of its own.
                Err(error) => last = error.to_string(),
            }
        }
        Err(String::from("the watch ended"))
    };
    let ended = tokio::time::timeout(patience, watch).await;
    ended.unwrap_or_else(|_| Err(format!("not within {} s: {last}", patience.as_secs())))
}

/// What speaks against a pod.
pub(crate) enum Objection {
    /// It may still come.
    NotYet(String),
    /// It can't be right any more.
    Never(String),
}

/// Whether every container runs.
pub(crate) fn runs(pod: &Pod) -> Result<(), Objection> {
    let running = statuses(pod).iter().filter(|status| is_running(status)).count();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    if running == all && all > 0 {
        return Ok(());
    }
    Err(Objection::NotYet(format!("{running} of {all} containers run")))
}

fn is_running(status: &ContainerStatus) -> bool {
    status.ready && status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Whether every container runs with what is desired, is promised exactly that, and was restarted as often as expected.
pub(crate) fn applied(
    pod: &Pod,
    desired: &BTreeMap<&str, Amounts>,
    restarts: &[(&str, i32)],
) -> Result<(), Objection> {
    let expected =
        |name: &str| restarts.iter().find(|(container, _)| *container == name).map_or(0, |(_, count)| *count);
    for status in statuses(pod) {
        if status.restart_count > expected(&status.name) {
            return Err(Objection::Never(format!(
                "{} was restarted {} times instead of {}",
                status.name,
                status.restart_count,
                expected(&status.name)
            )));
        }
    }
    runs(pod)?;
    // What is wished for may be what was there before: then the status says nothing about it yet.
    let seen = pod.status.as_ref().and_then(|status| status.observed_generation);
    if let (Some(seen), Some(last)) = (seen, pod.metadata.generation)
        && seen < last
    {
        return Err(Objection::NotYet(format!("generation {seen} of {last} was looked at")));
    }
    for status in statuses(pod) {
        let Some(amounts) = desired.get(status.name.as_str()) else { continue };
        let wanted = pod::requirements(*amounts);
        if status.resources.as_ref() != Some(&wanted) {
            return Err(Objection::NotYet(format!("{} has {:?}", status.name, status.resources)));
        }
        if status.allocated_resources != wanted.requests {
            return Err(Objection::NotYet(format!(
                "{} is promised {:?}",
                status.name, status.allocated_resources
            )));
        }
        if status.restart_count != expected(&status.name) {
            return Err(Objection::NotYet(format!("{} was not restarted yet", status.name)));
        }
    }
    for kind in ["PodResizePending", "PodResizeInProgress"] {
        if let Some(found) = condition(pod, kind) {
            return Err(Objection::NotYet(format!(
                "{kind} is there: {:?} {:?}",
                found.reason, found.message
            )));
        }
    }
    Ok(())
}

fn pending(pod: &Pod, reason: &str) -> Result<(), Objection> {
    match condition(pod, "PodResizePending") {
        Some(found) if found.status == "True" && found.reason.as_deref() == Some(reason) => Ok(()),
        Some(found) => Err(Objection::NotYet(format!("PodResizePending says {:?}", found.reason))),
        None => Err(Objection::NotYet(String::from("PodResizePending is not there"))),
    }
}

/// Asks for a step's resize and waits for what must come of it; the pod, if all that is desired is in force then.
pub(crate) async fn step(
    pods: &Api<Pod>,
    name: &str,
    step: &Step,
    expectation: &Expectation,
    desired: &BTreeMap<&str, Amounts>,
    patience: Duration,
) -> Result<Option<Pod>, String> {
    let before = pods.get(name).await.map_err(|error| error.to_string())?;
    let answer = ask(pods, name, step).await;
    match expectation {
        Expectation::Applied { restarts } => {
            answer.map_err(|error| format!("refused: {error}"))?;
            return until(pods, name, patience, |pod| applied(pod, desired, restarts)).await.map(Some);
        }
        Expectation::Overtaken => {
            answer.map_err(|error| format!("refused: {error}"))?;
        }
        Expectation::Pending { reason } => {
            answer.map_err(|error| format!("refused: {error}"))?;
            until(pods, name, patience, |pod| pending(pod, reason)).await?;
        }
        Expectation::Refused(refusal) => {
            refused(answer, refusal)?;
            let after = pods.get(name).await.map_err(|error| error.to_string())?;
            if after.spec != before.spec || after.metadata.generation != before.metadata.generation {
                return Err(String::from("the request was refused but the pod changed"));
            }
        }
    }
    Ok(None)
}

async fn ask(pods: &Api<Pod>, name: &str, step: &Step) -> Result<Pod, kube::Error> {
    let patch: Patch<Value> = Patch::Strategic(pod::patch(step));
    let params = PatchParams::default();
    match step.door {
        Door::Resize => pods.patch_resize(name, &params, &patch).await,
        Door::Pod => pods.patch(name, &params, &patch).await,
    }
}

fn refused(answer: Result<Pod, kube::Error>, refusal: &Refusal) -> Result<(), String> {
    let status = match answer {
        Ok(_) => return Err(String::from("accepted, but should have been refused")),
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Err(error.to_string()),
    };
    let causes: Vec<&str> = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .map(|cause| cause.reason.as_str())
        .collect();
    let as_expected = status.code == refusal.code
        && status.reason == refusal.reason
        && status.message.contains(refusal.message)
        && refusal.cause.is_none_or(|cause| causes.contains(&cause));
    if as_expected {
        return Ok(());
    }
    Err(format!(
        "refused otherwise: {} {} {:?} with causes {causes:?}",
        status.code, status.reason, status.message
    ))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::{StatusCause, StatusDetails};
    use serde_json::json;

    use super::*;

    const SMALL: Amounts = Amounts::new(("100m", "200m"), ("32Mi", "64Mi"));
    const LARGE: Amounts = Amounts::new(("200m", "400m"), ("64Mi", "128Mi"));

    fn mk_pod(actual: Amounts, promised: Amounts, restarts: i32, conditions: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "pod" },
            "spec": { "containers": [{ "name": "main" }] },
            "status": {
                "conditions": conditions,
                "containerStatuses": [{
                    "name": "main", "image": "", "imageID": "", "ready": true,
                    "restartCount": restarts,
                    "state": { "running": {} },
                    "resources": pod::requirements(actual),
                    "allocatedResources": pod::requirements(promised).requests,
                }],
            },
        }))
        .expect("the pod is well formed")
    }

    #[test]
    fn a_resize_is_applied_only_when_nothing_is_left_to_do() {
        let in_progress = json!([{ "type": "PodResizeInProgress", "status": "True" }]);
        let pending = json!([{ "type": "PodResizePending", "status": "True", "reason": "Deferred" }]);
        for (what, (actual, promised, restarted, conditions), restarts, verdict) in [
            ("all is as desired", (LARGE, LARGE, 0, json!([])), 0, "holds"),
            ("one restart was asked for", (LARGE, LARGE, 1, json!([])), 1, "holds"),
            ("the container has the old amounts", (SMALL, LARGE, 0, json!([])), 0, "not yet"),
            ("the node still promises the old", (LARGE, SMALL, 0, json!([])), 0, "not yet"),
            ("the node says it is at it", (LARGE, LARGE, 0, in_progress), 0, "not yet"),
            ("the node says it won't", (LARGE, LARGE, 0, pending), 0, "not yet"),
            ("the restart is still to come", (LARGE, LARGE, 0, json!([])), 1, "not yet"),
            ("one restart too many", (LARGE, LARGE, 2, json!([])), 1, "never"),
        ] {
            let pod = mk_pod(actual, promised, restarted, conditions);
            let found = match applied(&pod, &BTreeMap::from([("main", LARGE)]), &[("main", restarts)]) {
                Ok(()) => "holds",
                Err(Objection::NotYet(_)) => "not yet",
                Err(Objection::Never(_)) => "never",
            };
            assert_eq!(found, verdict, "{what}");
        }
    }

    #[test]
    fn a_refusal_counts_only_with_its_code_reason_text_and_cause() {
        let refusal =
            Refusal { code: 403, reason: "Forbidden", message: "too big", cause: Some("NodeCapacity") };
        let status = |code, reason: &str, message: &str, cause: &str| {
            let cause =
                StatusCause { reason: cause.to_owned(), message: String::new(), field: String::new() };
            let details = StatusDetails {
                name: String::new(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: vec![cause],
                retry_after_seconds: 0,
            };
            let status = Status::failure(message, reason).with_code(code).with_details(details);
            Err(kube::Error::Api(status.boxed()))
        };
        for (what, answer, holds) in [
            ("as expected", status(403, "Forbidden", "it is too big", "NodeCapacity"), true),
            ("another code", status(422, "Forbidden", "it is too big", "NodeCapacity"), false),
            ("another reason", status(403, "Invalid", "it is too big", "NodeCapacity"), false),
            ("another text", status(403, "Forbidden", "it is too small", "NodeCapacity"), false),
            ("another cause", status(403, "Forbidden", "it is too big", "UnsupportedPlatform"), false),
            ("accepted", Ok(Pod::default()), false),
        ] {
            assert_eq!(refused(answer, &refusal).is_ok(), holds, "{what}");
        }
    }
}
