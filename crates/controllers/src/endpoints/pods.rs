//! What of a pod its Services' endpoints depend on.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_controller_runtime::pods;

/// Whether a pod is an endpoint of the Services that select it.
pub(crate) fn is_endpoint(pod: &Pod, include_terminating: bool) -> bool {
    !pods::has_ended(pod) && has_ip(pod) && (include_terminating || !pods::is_terminating(pod))
}

fn has_ip(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let single = status.pod_ip.as_ref().is_some_and(|ip| !ip.is_empty());
    single || status.pod_ips.as_ref().is_some_and(|all| !all.is_empty())
}

/// The addresses of a pod, as the API writes them: a runtime may report an IPv6 address in another form.
pub(crate) fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let all = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    all.iter().filter_map(|pod_ip| pod_ip.ip.parse().ok())
}

/// The pod that an endpoint belongs to.
pub(crate) fn target_ref(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The hostname of a pod in the subdomain of a Service, which DNS resolves.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_deref().filter(|hostname| !hostname.is_empty())?;
    let of_service = spec.subdomain.as_deref().unwrap_or_default() == service.metadata.name.as_deref()?
        && pod.metadata.namespace == service.metadata.namespace;
    of_service.then_some(hostname)
}

/// The port of a pod that a port of a Service leads to: a number as it is, a name as the containers of the pod declare it.
pub(crate) fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let declared =
        spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    declared
        .filter(|own| own.name.as_ref() == Some(name) && protocol(&own.protocol) == protocol(&port.protocol))
        .map(|own| own.container_port)
        .next()
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether a change of a pod changes the endpoint that it is. Upstream overlooks that a pod which never was ready has ended,
/// and leaves it among the endpoints that are not ready until something else changes.
pub(crate) fn endpoint_changed(before: &Pod, after: &Pod) -> bool {
    let ips = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ips.clone()).unwrap_or_default();
    let names = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        spec.map(|spec| (spec.hostname.clone(), spec.subdomain.clone(), spec.node_name.clone()))
    };
    before.metadata.deletion_timestamp.is_some() != after.metadata.deletion_timestamp.is_some()
        || pods::is_ready(before) != pods::is_ready(after)
        || pods::has_ended(before) != pods::has_ended(after)
        || before.metadata.uid != after.metadata.uid
        || ips(before) != ips(after)
        || names(before) != names(after)
}
