//! The ephemeral storage that a pod requests, and its limit.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use plumb_resize::list::WireList;
use plumb_resize::quantity::Quantity;

/// The resource in lists.
pub(crate) const NAME: &str = "ephemeral-storage";

/// The bytes that a pod requests, as the scheduler counts them: those of its containers and sidecars together, or those of an
/// init container with the sidecars before it, if that is more.
pub(crate) fn requested(spec: &PodSpec) -> i64 {
    let requests = |resources: &ResourceRequirements| bytes(resources.requests.as_ref());
    let requested = aggregate(spec, |container| container.resources.as_ref().and_then(requests));
    requested.unwrap_or(0).saturating_add(overhead(spec))
}

/// The limit of a pod, by the same rule; `None` if none of its containers has one. As in the kubelet, a limit of zero is one,
/// which any use of the pod exceeds, and only another one is raised by the overhead of the pod.
pub(crate) fn limit(spec: &PodSpec) -> Option<Quantity> {
    let limits = |resources: &ResourceRequirements| bytes(resources.limits.as_ref());
    let limit = aggregate(spec, |container| container.resources.as_ref().and_then(limits))?;
    let limit = if limit == 0 { 0 } else { limit.saturating_add(overhead(spec)) };
    Some(Quantity::from_bytes(limit))
}

fn overhead(spec: &PodSpec) -> i64 {
    bytes(spec.overhead.as_ref()).unwrap_or(0)
}

/// The bytes in a list of requests or limits.
fn bytes(list: Option<&WireList>) -> Option<i64> {
    Some(list?.get(NAME)?.0.parse::<Quantity>().ok()?.saturating_units())
}

/// The sum of what containers have, by the rule for init containers; `None` if none of them has any.
fn aggregate(spec: &PodSpec, of: impl Fn(&Container) -> Option<i64>) -> Option<i64> {
    let mut sidecars = None::<i64>;
    let mut largest = None::<i64>;
    let sum = |a: Option<i64>, b: Option<i64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    for container in spec.init_containers.iter().flatten() {
        let with_sidecars = sum(sidecars, of(container));
        largest = largest.max(with_sidecars);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = with_sidecars;
        }
    }
    let running = spec.containers.iter().map(&of).fold(sidecars, sum);
    running.max(largest)
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

    #[test]
    fn a_pod_has_a_limit_if_one_of_its_containers_has() {
        let container = |limit: Option<&str>| {
            let limits = limit.map(|limit| json!({ "ephemeral-storage": limit }));
            json!({ "name": "c", "resources": { "limits": limits } })
        };
        let limit = |containers| {
            let spec = json!({ "containers": containers, "overhead": { "ephemeral-storage": "1Ki" } });
            limit(&serde_json::from_value(spec).unwrap()).map(|limit| limit.to_string())
        };
        assert_eq!(limit(json!([container(None)])), None);
        assert_eq!(
            limit(json!([container(Some("0")), container(None)])),
            Some("0".into()),
            "as in the kubelet"
        );
        assert_eq!(
            limit(json!([container(Some("1Ki")), container(Some("2Ki")), container(None)])),
            Some("4Ki".into())
        );
    }
}
