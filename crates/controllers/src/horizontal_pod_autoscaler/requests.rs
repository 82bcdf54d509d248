//! What utilization is a share of: the requests that pods *have*.
//!
//! kube-controller-manager divides by the requests in the spec (kubernetes/kubernetes issue 142155). While a resize is
//! deferred, infeasible or in progress, the spec has what was asked for, and the usage still is that of the resources that
//! the node has allocated: a pod that uses all of its CPU and asks for four times as much would seem to be idle, and the
//! autoscaler would remove replicas. Here the allocated requests in the status count, where there are any.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use plumb_resize::Quantity;

/// Which requests are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOf<'a> {
    /// The resource.
    pub resource: &'a str,
    /// Of this container only.
    pub container: Option<&'a str>,
}

/// Why the request of a pod is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingRequest {
    /// A container has no request.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    OfContainer {
        /// The resource.
        resource: String,
        /// The container.
        container: String,
        /// The pod.
        pod: String,
    },
    /// The pod has requests of its own, and none for the resource.
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    OfPod {
        /// The resource.
        resource: String,
        /// The pod.
        pod: String,
    },
    /// There is no such container.
    #[error("container {container} not found in Pod {pod}")]
    NoContainer {
        /// The container.
        container: String,
        /// The pod.
        pod: String,
    },
}

/// The request of a pod in thousandths: its pod-level one if it has any pod-level requests (KEP-2837), otherwise the sum of
/// its containers and sidecars, or one of them.
pub fn milli_request(pod: &Pod, of: RequestOf<'_>) -> Result<i128, MissingRequest> {
    let (no_spec, no_status) = (PodSpec::default(), PodStatus::default());
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let status = pod.status.as_ref().unwrap_or(&no_status);
    let name = || pod.metadata.name.clone().unwrap_or_default();
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let has_own = own.is_some_and(|own| own.keys().any(|resource| is_pod_level(resource)));
    if has_own && of.container.is_none() {
        let missing = || MissingRequest::OfPod { resource: of.resource.to_owned(), pod: name() };
        return pod_level_request(spec, status, of.resource).ok_or_else(missing);
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let mut sum = 0;
    for container in spec.containers.iter().chain(sidecars) {
        if of.container.is_some_and(|wanted| wanted != container.name) {
            continue;
        }
        let request = container_request(container, status, of.resource);
        sum += request.ok_or_else(|| MissingRequest::OfContainer {
            resource: of.resource.to_owned(),
            container: container.name.clone(),
            pod: name(),
        })?;
        if of.container.is_some() {
            return Ok(sum);
        }
    }
    match of.container {
        Some(container) => Err(MissingRequest::NoContainer { container: container.to_owned(), pod: name() }),
        None => Ok(sum),
    }
}

/// The allocated request of a container, or that of its spec if nothing is allocated yet.
fn container_request(container: &Container, status: &PodStatus, resource: &str) -> Option<i128> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    let desired = milli(&requests.get(resource)?.0);
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let allocated = statuses
        .filter(|status| status.name == container.name)
        .find_map(|status| status.allocated_resources.as_ref()?.get(resource));
    Some(allocated.map_or(desired, |allocated| milli(&allocated.0)))
}

/// The request of a pod that has pod-level requests; containers count for resources that those leave out.
fn pod_level_request(spec: &PodSpec, status: &PodStatus, resource: &str) -> Option<i128> {
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let own = own.and_then(|own| own.get(resource)).filter(|_| is_pod_level(resource));
    let request = match own {
        Some(desired) => {
            let allocated = status.allocated_resources.as_ref().and_then(|all| all.get(resource));
            Some(milli(&allocated.unwrap_or(desired).0))
        }
        None => of_containers(spec, status, resource),
    };
    let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get(resource));
    match (request, overhead) {
        (None, None) => None,
        (request, overhead) => {
            Some(request.unwrap_or_default() + overhead.map_or(0, |overhead| milli(&overhead.0)))
        }
    }
}

/// The requests of containers by the rule for init containers: sidecars count from their start on, other init containers
/// only while they run.
fn of_containers(spec: &PodSpec, status: &PodStatus, resource: &str) -> Option<i128> {
    let request = |container: &Container| container_request(container, status, resource);
    let add = |sum: Option<i128>, more: Option<i128>| match (sum, more) {
        (None, None) => None,
        (sum, more) => Some(sum.unwrap_or_default() + more.unwrap_or_default()),
    };
    let mut sidecars = None;
    let mut starting = None;
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars = add(sidecars, request(init));
            starting = starting.max(sidecars);
        } else {
            starting = starting.max(add(sidecars, request(init)));
        }
    }
    let running = spec.containers.iter().map(request).fold(sidecars, add);
    running.max(starting)
}

/// Whether pods can have requests for a resource themselves.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// A quantity of a stored object in thousandths. The API server has validated it.
fn milli(quantity: &str) -> i128 {
    quantity.parse::<Quantity>().map_or(0, |quantity| quantity.saturating_milli().into())
}
