//! What a Service says about its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::name::{Protocol, ServiceName, ServicePortName};

/// The label of a Service that another proxy implements, and of its slices.
pub(crate) const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// The label of a Service without a virtual address, and of its slices.
pub(crate) const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// `timeoutSeconds` of `sessionAffinityConfig` where a Service has none.
const DEFAULT_AFFINITY: Duration = Duration::from_hours(3);

/// A network: its address and the length of its prefix.
pub type Network = (Ipv4Addr, u8);

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    pub(crate) cluster_ip: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
    pub(crate) external_ips: BTreeSet<Ipv4Addr>,
    pub(crate) load_balancer_ips: BTreeSet<Ipv4Addr>,
    /// Which clients the load balancer's addresses are for; all if there are none.
    pub(crate) source_ranges: Vec<Network>,
    /// How long a client's connections go to the same endpoint.
    pub(crate) affinity: Option<Duration>,
    pub(crate) internal_policy_local: bool,
    pub(crate) external_policy_local: bool,
}

impl ServicePort {
    /// Whether it has other addresses than the one within the cluster (`ExternallyAccessible`).
    pub(crate) fn is_externally_accessible(&self) -> bool {
        self.node_port.is_some() || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// `UsesClusterEndpoints`. A port with the external policy `Local` uses endpoints of all nodes for connections that come from
    /// this node.
    pub(crate) fn uses_cluster_endpoints(&self) -> bool {
        !self.internal_policy_local || self.is_externally_accessible()
    }

    /// `UsesLocalEndpoints`.
    pub(crate) fn uses_local_endpoints(&self) -> bool {
        self.internal_policy_local || (self.external_policy_local && self.is_externally_accessible())
    }
}

/// The ports of a Service that has an address, and the port of its health checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServicePorts {
    pub(crate) ports: BTreeMap<ServicePortName, ServicePort>,
    pub(crate) health_check_port: Option<u16>,
}

/// Reads a Service; one that the proxy leaves out has no ports.
pub(crate) fn parse(name: &ServiceName, service: &Service) -> ServicePorts {
    let Some(spec) = &service.spec else { return ServicePorts::default() };
    let labels = service.metadata.labels.as_ref();
    let is_labelled = |label: &str| labels.is_some_and(|labels| labels.contains_key(label));
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let Some(cluster_ip) = cluster_ip(spec) else { return ServicePorts::default() };
    if kind == "ExternalName" || is_labelled(PROXY_NAME_LABEL) || is_labelled(HEADLESS_LABEL) {
        return ServicePorts::default();
    }
    let external_ips = ipv4(spec.external_ips.iter().flatten().map(String::as_str));
    let accepts_external = matches!(kind, "LoadBalancer" | "NodePort")
        || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    let external_policy_local = accepts_external && spec.external_traffic_policy.as_deref() == Some("Local");
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    // An address of the mode Proxy is one of the load balancer itself, which connects to the node.
    let virtual_ips =
        ingress.into_iter().flatten().filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    let load_balancer_ips = ipv4(virtual_ips.filter_map(|ingress| ingress.ip.as_deref()));
    let source_ranges: Vec<Network> =
        spec.load_balancer_source_ranges.iter().flatten().filter_map(|range| network(range.trim())).collect();
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|client| u64::try_from(client.timeout_seconds?).ok());
        seconds.map_or(DEFAULT_AFFINITY, Duration::from_secs)
    });
    let ports = spec.ports.iter().flatten().filter_map(|port| {
        let protocol = Protocol::from_api(port.protocol.as_deref())?;
        let key = ServicePortName {
            service: name.clone(),
            protocol,
            port: Arc::from(port.name.as_deref().unwrap_or_default()),
        };
        let value = ServicePort {
            cluster_ip,
            port: number(port.port)?,
            node_port: port.node_port.and_then(number),
            external_ips: external_ips.clone(),
            load_balancer_ips: load_balancer_ips.clone(),
            source_ranges: source_ranges.clone(),
            affinity,
            internal_policy_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_policy_local,
        };
        Some((key, value))
    });
    let needs_health_check = kind == "LoadBalancer" && external_policy_local;
    ServicePorts {
        ports: ports.collect(),
        health_check_port: spec.health_check_node_port.and_then(number).filter(|_| needs_health_check),
    }
}

fn cluster_ip(spec: &ServiceSpec) -> Option<Ipv4Addr> {
    let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    all.into_iter().find_map(|address| address.parse().ok())
}

fn ipv4<'a>(addresses: impl Iterator<Item = &'a str>) -> BTreeSet<Ipv4Addr> {
    addresses.filter_map(|address| address.parse().ok()).filter(|address| is_forwardable(*address)).collect()
}

/// Whether packets to an address may come from a pod or go to one. The API server refuses others in endpoints and Services; with
/// `route_localnet` an endpoint of 127.0.0.0/8 would be a server on the machine's loopback.
pub(crate) fn is_forwardable(address: Ipv4Addr) -> bool {
    !(address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_unspecified())
}

/// A port; 0 is none.
pub(crate) fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Reads `address/prefix`.
fn network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some((address.parse().ok()?, prefix))
}
