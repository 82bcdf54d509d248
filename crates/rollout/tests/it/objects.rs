//! Objects that tests start from.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use plumb_testkit::object;
use serde_json::{Value, json};

/// A time, in seconds since the tests began.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// The template of one container, `app`, with these requests and limits.
pub(crate) fn template(requests: Value, limits: Value) -> PodTemplateSpec {
    template_of(json!([{ "name": "app", "image": "app:1",
        "resources": { "requests": requests, "limits": limits } }]))
}

/// The template of these containers.
pub(crate) fn template_of(containers: Value) -> PodTemplateSpec {
    object(json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": containers } }))
}

/// The template of a container that requests this much cpu and memory.
pub(crate) fn sized(cpu: &str, memory: &str) -> PodTemplateSpec {
    let requests = json!({ "cpu": cpu, "memory": memory });
    template_of(json!([{ "name": "app", "image": "app:1", "resources": { "requests": requests } }]))
}

/// A running pod of a template, to which its resources are applied.
pub(crate) fn pod(template: &PodTemplateSpec) -> Pod {
    let mut pod = Pod { spec: template.spec.clone(), ..Pod::default() };
    plumb_resize::defaulting::default_pod(&mut pod, &plumb_resize::rules::Rules::v1_36()).unwrap();
    (pod.metadata.name, pod.metadata.uid) = (Some("web-0".to_owned()), Some("uid-0".to_owned()));
    pod.metadata.generation = Some(1);
    pod.metadata.labels = template.metadata.clone().unwrap_or_default().labels;
    let qos = plumb_resize::qos::QosClass::of_spec(pod.spec.as_ref().unwrap()).unwrap();
    pod.status = Some(object(json!({
        "phase": "Running", "qosClass": qos.name(), "observedGeneration": 1,
        "conditions": [{ "type": "Ready", "status": "True" }],
    })));
    apply_resources(&mut pod);
    pod
}

/// Does what a node does when it has applied the resources of the spec.
pub(crate) fn apply_resources(pod: &mut Pod) {
    let spec = pod.spec.clone().unwrap();
    let status = pod.status.as_mut().unwrap();
    let before = status.container_statuses.take().unwrap_or_default();
    let statuses = spec.containers.iter().map(|container| {
        let restarts = before.iter().find(|status| status.name == container.name).map_or(0, |s| s.restart_count);
        object(json!({
            "name": container.name, "image": container.image, "imageID": "", "ready": true, "restartCount": restarts,
            "state": { "running": {} }, "resources": container.resources.clone().unwrap_or_default(),
            "allocatedResources": container.resources.clone().unwrap_or_default().requests,
        }))
    });
    status.container_statuses = Some(statuses.collect());
    status.observed_generation = pod.metadata.generation;
    status.conditions.iter_mut().for_each(|all| all.retain(|one| !one.type_.starts_with("PodResize")));
}

/// Sets a condition of a pod, as its node does for the latest generation.
pub(crate) fn set_condition(pod: &mut Pod, type_: &str, status: &str, reason: &str) {
    let generation = pod.metadata.generation;
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.push(object(json!({
        "type": type_, "status": status, "reason": reason, "message": format!("because of {reason}"),
        "observedGeneration": generation,
    })));
}

/// Applies a merge patch.
pub(crate) fn patched(pod: &Pod, patch: &Value) -> Pod {
    object(plumb_rollout::engine::merged(serde_json::to_value(pod).unwrap(), Some(patch.clone())))
}

/// Applies the patch of a resize, as the API server does.
pub(crate) fn resized(pod: &Pod, patch: &Value) -> Pod {
    let mut pod = pod.clone();
    let spec = pod.spec.as_mut().unwrap();
    let lists =
        [("containers", Some(&mut spec.containers)), ("initContainers", spec.init_containers.as_mut())];
    for (field, containers) in lists {
        let Some(containers) = containers else { continue };
        for changed in patch["spec"][field].as_array().into_iter().flatten() {
            let container = containers.iter_mut().find(|container| json!(container.name) == changed["name"]);
            let container = container.expect("a container of the pod");
            let before = serde_json::to_value(container.resources.clone().unwrap_or_default()).unwrap();
            let after = plumb_rollout::engine::merged(before, Some(changed["resources"].clone()));
            container.resources = Some(object(after));
        }
    }
    if !patch["spec"]["resources"].is_null() {
        let before = serde_json::to_value(spec.resources.clone().unwrap_or_default()).unwrap();
        spec.resources =
            Some(object(plumb_rollout::engine::merged(before, Some(patch["spec"]["resources"].clone()))));
    }
    pod.metadata.generation = Some(pod.metadata.generation.unwrap_or(0) + 1);
    pod
}
