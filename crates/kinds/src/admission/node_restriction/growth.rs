//! Resizes that a node requests for its own pods: memory limits that grow under pressure, in pods that have opted in.
//!
//! The bounds are those of the stored pod. A node cannot set them: it may not change the annotation of a pod through the
//! pod's status.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::growth::{GrowthBounds, MEMORY_PRESSURE_GROWTH, check as check_growth};
use plumb_resize::pod::{PodResources, PodShape};
use serde_json::Value;

use crate::registry::pod::typed;

/// The annotation with which a pod has opted in.
pub(super) fn opt_in(pod: &Value) -> Option<&str> {
    pod.get("metadata")?.get("annotations")?.get(MEMORY_PRESSURE_GROWTH)?.as_str()
}

/// Why a node may not make this of its pod.
pub(super) fn check(old: &Value, new: &Value) -> Result<(), String> {
    let annotation = opt_in(old).ok_or_else(|| {
        format!("a node can only resize pods that have opted in with the annotation {MEMORY_PRESSURE_GROWTH}")
    })?;
    let bounds: GrowthBounds = annotation
        .parse()
        .map_err(|error| format!("the annotation {MEMORY_PRESSURE_GROWTH} is invalid: {error}"))?;
    if without_memory(old) != without_memory(new) {
        return Err("a node can only resize the memory of containers".to_owned());
    }
    let stored = typed(old).map_err(|error| error.message)?;
    let desired = typed(new).map_err(|error| error.message)?;
    let shape = PodShape::of(&stored).map_err(|error| error.to_string())?;
    let resources = |pod: &Pod| match &pod.spec {
        Some(spec) => PodResources::desired(spec).map_err(|error| error.to_string()),
        None => Ok(PodResources::default()),
    };
    let from = resources(&stored)?;
    let to = resources(&desired)?;
    check_growth(&shape, &from, &to, &bounds).map_err(|violation| violation.to_string())
}

/// A pod without the memory of its containers, and without what the server itself writes in an update.
fn without_memory(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(pod) = pod.as_object_mut() {
        pod.remove("status");
    }
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "generation", "resourceVersion"] {
            metadata.remove(field);
        }
    }
    for list in ["containers", "initContainers"] {
        let containers =
            pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for amounts in ["limits", "requests"] {
                let amounts = container.get_mut("resources").and_then(|resources| resources.get_mut(amounts));
                if let Some(amounts) = amounts.and_then(Value::as_object_mut) {
                    amounts.remove("memory");
                }
            }
        }
    }
    pod
}
