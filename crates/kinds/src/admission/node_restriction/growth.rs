//! Resizes that a node requests for its own pods: limits that grow, in pods that have opted in.
//!
//! The bounds are those of the stored pod. A node cannot set them: it may not change the annotations of a pod through the
//! pod's status.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::growth::{GrowthBounds, annotation, check as check_growth};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::{PerResource, Resource};
use serde_json::Value;

use crate::registry::pod::typed;

/// An annotation of a pod.
pub(super) fn annotation_of<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// Why a node may not make this of its pod.
pub(super) fn check(old: &Value, new: &Value) -> Result<(), String> {
    let opt_in = |resource: Resource| annotation_of(old, annotation(resource));
    if Resource::ALL.into_iter().all(|resource| opt_in(resource).is_none()) {
        let [cpu, memory] = Resource::ALL.map(annotation);
        return Err(format!(
            "a node can only resize pods that have opted in with the annotation {memory} or {cpu}"
        ));
    }
    if without_resources(old) != without_resources(new) {
        return Err("a node can only resize the cpu and memory of containers".to_owned());
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
    let mut bounds: PerResource<Option<GrowthBounds>> = PerResource::default();
    for resource in Resource::ALL {
        let changes =
            from.containers.iter().zip(&to.containers).any(|(a, b)| a.of(resource) != b.of(resource));
        let Some(text) = opt_in(resource).filter(|_| changes) else { continue };
        let parsed = GrowthBounds::parse(resource, text);
        let invalid = |error| format!("the annotation {} is invalid: {error}", annotation(resource));
        bounds[resource] = Some(parsed.map_err(invalid)?);
    }
    check_growth(&shape, &from, &to, &bounds).map_err(|violation| violation.to_string())
}

/// A pod without the cpu and memory of its containers, and without what the server itself writes in an update.
fn without_resources(pod: &Value) -> Value {
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
                    for resource in Resource::ALL {
                        amounts.remove(resource.name());
                    }
                }
            }
        }
    }
    pod
}
