//! Withdrawing a resize that is not applied: the desired resources become again what the containers have.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Pod;
use plumb_resize::resource::{Requirements, Resource};
use plumb_resize::status::Values;
use serde_json::{Map, Value, json};

use crate::reading::{self, POD_LEVEL};

/// The desired resources of a container, or at pod level, and those to go back to.
struct Change {
    name: String,
    desired: Requirements,
    back: Requirements,
}

/// The patch that withdraws the resize of a pod.
pub(super) fn patch(pod: &Pod) -> anyhow::Result<Value> {
    let spec = pod.spec.as_ref().context("the pod has no spec")?;
    let mut patch = json!({});
    for change in changes(pod)? {
        let resources = resources(&change);
        if change.name == POD_LEVEL {
            patch["resources"] = resources;
            continue;
        }
        let is_container = spec.containers.iter().any(|container| container.name == change.name);
        let list = if is_container { "containers" } else { "initContainers" };
        let container = json!({ "name": change.name, "resources": resources });
        match patch[list].as_array_mut() {
            Some(containers) => containers.push(container),
            None => patch[list] = json!([container]),
        }
    }
    Ok(json!({ "spec": patch }))
}

/// What a pod goes back to, for people: `app memory 256Mi/256Mi`.
pub(super) fn description(pod: &Pod) -> anyhow::Result<String> {
    let mut text = String::new();
    for change in changes(pod)? {
        for resource in Resource::ALL {
            let back = reading::pair(&change.back, resource);
            if back != reading::pair(&change.desired, resource) {
                let separator = if text.is_empty() { "" } else { ", " };
                // Writing to a string does not fail.
                let _ = write!(text, "{separator}{} {resource} {back}", change.name);
            }
        }
    }
    Ok(text)
}

/// The changes that withdraw the resize of a pod; never none.
fn changes(pod: &Pod) -> anyhow::Result<Vec<Change>> {
    let reading = reading::of(pod)?;
    let changes = reading::values(&reading).map(|(name, values)| Change {
        name: name.to_owned(),
        desired: values.desired,
        back: back(values),
    });
    let changes: Vec<Change> = changes.filter(|change| change.back != change.desired).collect();
    if changes.is_empty() {
        bail!(
            "pod {:?} has the resources that it is to have: there is no resize to undo (one that is applied is not recorded)",
            pod.metadata.name.as_deref().unwrap_or_default()
        );
    }
    Ok(changes)
}

/// The resources to go back to. The status has the allocated requests and the actual limits; once a decrease is allocated,
/// it has no request from before: a request that is to be the limit becomes the actual limit, as the pod's QoS class requires.
fn back(values: &Values) -> Requirements {
    let mut back = values.desired;
    for resource in Resource::ALL {
        let desired = (values.desired.requests[resource], values.desired.limits[resource]);
        if let Some(actual) = &values.actual {
            back.limits[resource] = actual.limits[resource];
        }
        let known = [values.allocated.map(|it| it[resource]), values.actual.map(|it| it.requests[resource])];
        let before = known.into_iter().flatten().find(|before| *before != desired.0);
        back.requests[resource] = match before {
            Some(before) => before,
            None if desired.0 == desired.1 => back.limits[resource],
            None => desired.0,
        };
    }
    back
}

/// The resources of a patch. An amount that the resize added is removed.
fn resources(change: &Change) -> Value {
    let lists = [
        ("requests", &change.desired.requests, &change.back.requests),
        ("limits", &change.desired.limits, &change.back.limits),
    ];
    let mut resources = Map::new();
    for (name, desired, back) in lists {
        let changed = Resource::ALL.into_iter().filter(|resource| desired[*resource] != back[*resource]);
        let changed = changed.map(|resource| {
            let amount = back[resource].map(|amount| reading::amount(resource, amount).to_string());
            (resource.name().to_owned(), json!(amount))
        });
        let changed: Map<String, Value> = changed.collect();
        if !changed.is_empty() {
            resources.insert(name.to_owned(), Value::Object(changed));
        }
    }
    Value::Object(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod with a container of so much memory: request and limit, allocated, and actual request and limit.
    fn pod(desired: [&str; 2], allocated: &str, actual: [&str; 2]) -> Pod {
        let amounts = |[request, limit]: [&str; 2]| {
            let list = |amount: &str| match amount {
                "" => json!({ "cpu": "100m" }),
                amount => json!({ "cpu": "100m", "memory": amount }),
            };
            json!({ "requests": list(request), "limits": list(limit) })
        };
        serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": { "containers": [{ "name": "app", "resources": amounts(desired) }] },
            "status": { "phase": "Running", "containerStatuses": [{
                "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": { "cpu": "100m", "memory": allocated }, "resources": amounts(actual),
            }] },
        }))
        .unwrap()
    }

    #[test]
    fn a_resize_that_is_not_applied_goes_back_to_what_the_container_has() {
        let table = [
            // Deferred or infeasible.
            (
                pod(["1Gi", "1Gi"], "64Mi", ["64Mi", "64Mi"]),
                json!({ "requests": { "memory": "64Mi" }, "limits": { "memory": "64Mi" } }),
                "app memory 64Mi/64Mi",
            ),
            // A decrease that is allocated and cannot be actuated.
            (
                pod(["64Mi", "64Mi"], "64Mi", ["64Mi", "256Mi"]),
                json!({ "requests": { "memory": "256Mi" }, "limits": { "memory": "256Mi" } }),
                "app memory 256Mi/256Mi",
            ),
            // The same of a limit alone.
            (
                pod(["32Mi", "64Mi"], "32Mi", ["32Mi", "256Mi"]),
                json!({ "limits": { "memory": "256Mi" } }),
                "app memory 32Mi/256Mi",
            ),
            // A limit that was not there.
            (
                pod(["64Mi", "1Gi"], "64Mi", ["64Mi", ""]),
                json!({ "limits": { "memory": null } }),
                "app memory 64Mi/-",
            ),
        ];
        for (pod, expected, text) in table {
            let patched = patch(&pod).unwrap();
            assert_eq!(
                patched,
                json!({ "spec": { "containers": [{ "name": "app", "resources": expected }] } })
            );
            assert_eq!(description(&pod).unwrap(), text);
        }
    }

    #[test]
    fn a_resize_that_is_applied_cannot_be_undone() {
        let pod = pod(["64Mi", "64Mi"], "64Mi", ["64Mi", "64Mi"]);
        assert!(patch(&pod).unwrap_err().to_string().contains("there is no resize to undo"));
    }
}
