//! A resize that is announced before it is requested.
//!
//! The API server takes a new image and other resources of a container in two requests: it allows images in updates of the pod and
//! resources in `/resize`. A node that acts on the first before it observes the second restarts a container twice whose resize policy is
//! `RestartContainer`. So a client that sends both announces the resources with the image, in an annotation, and the node waits for
//! the resize, for a short time, before it restarts the container. A kubelet does not know the annotation and ignores it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};

use crate::list::{ResourceList, WireList};

/// The annotation of a pod that announces a resize: [`Announced`] as JSON.
pub const ANNOTATION: &str = "plumb.dev/announced-resize";

/// The resources that a resize will set, by container.
pub type Announced = BTreeMap<String, ResourceRequirements>;

/// The value of the annotation.
pub fn text(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(ANNOTATION).map(String::as_str)
}

/// The containers whose announced resources the spec does not have yet.
pub fn outstanding(pod: &Pod, announced: &Announced) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let outstanding = containers.filter(|container| {
        let announced = announced.get(&container.name);
        announced.is_some_and(|announced| !has(container.resources.as_ref(), announced))
    });
    outstanding.map(|container| container.name.clone()).collect()
}

/// Whether resources include the announced ones.
fn has(resources: Option<&ResourceRequirements>, announced: &ResourceRequirements) -> bool {
    let includes = |list: Option<&WireList>, announced: Option<&WireList>| {
        match (ResourceList::read(list), ResourceList::read(announced)) {
            (Ok(list), Ok(announced)) => {
                announced.iter().all(|(name, quantity)| list.get(name) == Some(quantity))
            }
            // No resize sets such a quantity.
            _ => true,
        }
    };
    includes(resources.and_then(|one| one.requests.as_ref()), announced.requests.as_ref())
        && includes(resources.and_then(|one| one.limits.as_ref()), announced.limits.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resize_is_outstanding_until_the_spec_has_what_was_announced() {
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [
            { "name": "app", "resources": { "requests": { "cpu": "200m", "memory": "64Mi" } } },
            { "name": "other" },
        ] } }))
        .unwrap();
        let outstanding = |container: &str, cpu: &str| {
            let announced = json!({ container: { "requests": { "cpu": cpu } } });
            outstanding(&pod, &serde_json::from_value(announced).unwrap())
        };
        assert_eq!(outstanding("app", "0.3"), ["app"]);
        assert_eq!(outstanding("app", "0.2"), [""; 0]);
        assert_eq!(outstanding("other", "0.2"), ["other"]);
        assert_eq!(outstanding("removed", "1"), [""; 0]);
        assert_eq!(outstanding("app", "much"), [""; 0], "no resize sets that");
    }
}
