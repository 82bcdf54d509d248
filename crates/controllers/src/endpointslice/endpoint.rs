//! The endpoint that a pod is.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use plumb_controller_runtime::pods as pod_functions;

use crate::endpoints::{go_hash, is_headless, pods};

/// What identifies an endpoint: changes of all else are updates of it in place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointKey {
    addresses: Vec<String>,
    hostname: String,
    namespace: String,
    name: String,
}

impl EndpointKey {
    pub(crate) fn new(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.clone();
        addresses.sort();
        let target = endpoint.target_ref.as_ref();
        Self {
            addresses,
            hostname: endpoint.hostname.clone().unwrap_or_default(),
            namespace: target.and_then(|target| target.namespace.clone()).unwrap_or_default(),
            name: target.and_then(|target| target.name.clone()).unwrap_or_default(),
        }
    }
}

/// Whether two endpoints of the same key are equal, except for hints, which are assigned later.
pub(crate) fn is_same(a: &Endpoint, b: &Endpoint) -> bool {
    let conditions = |endpoint: &Endpoint| endpoint.conditions.clone().unwrap_or_default();
    // The resource version of the target changes with every write of the pod.
    let target = |endpoint: &Endpoint| {
        endpoint.target_ref.clone().map(|target| ObjectReference { resource_version: None, ..target })
    };
    a.node_name == b.node_name && a.zone == b.zone && conditions(a) == conditions(b) && target(a) == target(b)
}

/// The endpoint of a pod; none if it has no address of this type.
pub(crate) fn from_pod(
    pod: &Pod,
    zone: Option<&str>,
    service: &Service,
    address_type: &str,
) -> Option<Endpoint> {
    let is_of_type = |ip: &IpAddr| ip.is_ipv6() == (address_type == "IPv6");
    let addresses: Vec<String> = pods::addresses(pod).filter(is_of_type).map(|ip| ip.to_string()).collect();
    if addresses.is_empty() {
        return None;
    }
    let serving = pod_functions::is_ready(pod);
    let terminating = pod_functions::is_terminating(pod);
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publishes_not_ready(service) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: pods::hostname(pod, service).map(str::to_owned),
        node_name: pod_functions::node_of(pod).map(str::to_owned),
        zone: zone.map(str::to_owned),
        target_ref: Some(pods::target_ref(pod)),
        ..Endpoint::default()
    })
}

/// Whether a Service publishes the addresses of pods that are not ready.
pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default()
}

/// The ports of a Service as a pod has them, in upstream's order. A port whose name the pod does not declare is left out.
pub(crate) fn ports_of(pod: &Pod, service: &Service) -> Vec<EndpointPort> {
    let all = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    if all.is_empty() && is_headless(service) {
        return Vec::new();
    }
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(pods::target_port(pod, port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    };
    sorted(all.iter().filter_map(port).collect())
}

/// Ports in upstream's order.
pub(crate) fn sorted(mut ports: Vec<EndpointPort>) -> Vec<EndpointPort> {
    ports.sort_by_cached_key(go_hash::slice_port);
    ports
}

/// Ports that can be compared: slices are grouped by them.
pub(crate) type PortKey = Vec<(Option<String>, Option<i32>, Option<String>, Option<String>)>;

/// The key of sorted ports.
pub(crate) fn port_key(ports: &[EndpointPort]) -> PortKey {
    let key = |port: &EndpointPort| {
        let EndpointPort { name, port, protocol, app_protocol } = port.clone();
        (name, port, protocol, app_protocol)
    };
    ports.iter().map(key).collect()
}

/// Endpoints by what identifies them.
pub(crate) type EndpointSet = BTreeMap<EndpointKey, Endpoint>;
