//! The ephemeral storage that a pod requests.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use plumb_resize::quantity::Quantity;

/// The resource in lists.
pub(crate) const NAME: &str = "ephemeral-storage";

/// The bytes that a pod requests, as the scheduler counts them: those of its containers and sidecars together, or those of an
/// init container with the sidecars before it, if that is more.
pub(crate) fn requested(spec: &PodSpec) -> i64 {
    let of_container = |container: &Container| -> i64 {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let amount = requests.and_then(|requests| requests.get(NAME));
        amount.and_then(|amount| amount.0.parse::<Quantity>().ok()).map_or(0, Quantity::saturating_units)
    };
    let mut sidecars = 0_i64;
    let mut largest = 0_i64;
    for container in spec.init_containers.iter().flatten() {
        let with_sidecars = sidecars.saturating_add(of_container(container));
        largest = largest.max(with_sidecars);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = with_sidecars;
        }
    }
    let running = spec.containers.iter().map(of_container).fold(sidecars, i64::saturating_add);
    let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get(NAME));
    let overhead = overhead.and_then(|amount| amount.0.parse::<Quantity>().ok());
    running.max(largest).saturating_add(overhead.map_or(0, Quantity::saturating_units))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_count_unless_the_others_need_more() {
        let container = |name: &str, bytes: &str, policy: Option<&str>| {
            let requests = json!({ "requests": { "ephemeral-storage": bytes } });
            json!({ "name": name, "resources": requests, "restartPolicy": policy })
        };
        let requested = |spec| requested(&serde_json::from_value::<PodSpec>(spec).unwrap());
        let main = container("main", "1Ki", None);
        assert_eq!(requested(json!({ "containers": [main, { "name": "none" }] })), 1024);
        let sidecar = container("sidecar", "1Ki", Some("Always"));
        let init = container("init", "4Ki", None);
        let spec = json!({ "initContainers": [sidecar, init], "containers": [main] });
        assert_eq!(requested(spec), 5 << 10);
        let spec = json!({ "initContainers": [init, sidecar], "containers": [main, main, main, main],
                           "overhead": { "ephemeral-storage": "1" } });
        assert_eq!(requested(spec), (5 << 10) + 1);
    }
}
