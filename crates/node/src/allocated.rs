//! A pod with its allocation in its spec.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use plumb_resize::list::{WireList, declared};
use plumb_resize::pod::PodResources;
use plumb_resize::quantity::Quantity;
use plumb_resize::resource::{Declared, Requirements, Resource};

/// The pod with its allocated cpu and memory instead of the desired ones, `desired`, of its spec. Other resources are
/// those of the spec.
pub(crate) fn with_allocation(pod: &Arc<Pod>, desired: &PodResources, allocated: &PodResources) -> Arc<Pod> {
    if desired == allocated {
        return pod.clone();
    }
    let mut pod = Pod::clone(pod);
    if let Some(spec) = &mut pod.spec {
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        for (container, allocated) in containers.zip(&allocated.containers) {
            set(&mut container.resources, *allocated);
        }
        set(&mut spec.resources, allocated.pod.unwrap_or_default());
    }
    Arc::new(pod)
}

fn set(resources: &mut Option<ResourceRequirements>, allocated: Requirements) {
    if resources.is_none() && allocated == Requirements::default() {
        return;
    }
    let resources = resources.get_or_insert_default();
    set_list(&mut resources.requests, allocated.requests);
    set_list(&mut resources.limits, allocated.limits);
}

fn set_list(list: &mut Option<WireList>, allocated: Declared) {
    // An invalid quantity differs from any allocation.
    let written = declared(list.as_ref()).unwrap_or_default();
    for resource in Resource::ALL {
        let Some(amount) = allocated[resource] else {
            if let Some(list) = list {
                list.remove(resource.name());
            }
            continue;
        };
        // An equal amount is written as in the spec.
        if written[resource] == Some(amount) {
            continue;
        }
        let quantity = match resource {
            Resource::Cpu => Quantity::from_milli(amount),
            Resource::Memory => Quantity::from_bytes(amount),
        };
        let quantity = WireQuantity(quantity.to_string());
        list.get_or_insert_default().insert(resource.name().to_owned(), quantity);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &serde_json::Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap())
    }

    fn resources(pod: &Pod) -> PodResources {
        PodResources::desired(pod.spec.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn cpu_and_memory_are_those_that_are_allocated_and_the_rest_is_as_it_was() {
        let before = pod(&json!({
            "initContainers": [{ "name": "i", "resources": { "limits": { "memory": "32Mi" } } }],
            "containers": [
                { "name": "a", "resources": { "requests": { "cpu": "0.5", "memory": "1Gi" }, "limits": { "memory": "1Gi", "example.com/gpu": "1" } } },
                { "name": "b" },
            ],
        }));
        let after = pod(&json!({
            "resources": { "limits": { "memory": "200Gi" } },
            "initContainers": [{ "name": "i", "resources": { "limits": { "memory": "64Gi" } } }],
            "containers": [
                { "name": "a", "resources": { "requests": { "cpu": "500m", "memory": "100Gi" }, "limits": { "cpu": "4", "memory": "100Gi", "example.com/gpu": "1" } } },
                { "name": "b", "resources": { "limits": { "memory": "100Gi" } } },
            ],
        }));
        let shown = with_allocation(&after, &resources(&after), &resources(&before));
        assert_eq!(resources(&shown).containers, resources(&before).containers);
        let spec = shown.spec.as_ref().unwrap();
        let first = spec.containers[0].resources.as_ref().unwrap();
        assert_eq!(
            first.requests.as_ref().unwrap()["cpu"].0,
            "500m",
            "the same amount stays as it is spelled"
        );
        let limits = first.limits.as_ref().unwrap();
        assert_eq!((limits["memory"].0.as_str(), limits["example.com/gpu"].0.as_str()), ("1Gi", "1"));
        assert_eq!(spec.resources.as_ref().and_then(|pod| pod.limits.as_ref()).map(WireList::len), Some(0));
        assert!(Arc::ptr_eq(&with_allocation(&after, &resources(&after), &resources(&after)), &after));
    }
}
