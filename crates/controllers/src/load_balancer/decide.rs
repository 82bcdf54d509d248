//! The addresses of a Service of type `LoadBalancer`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;

use super::{CLASS, wants_load_balancer};
use crate::endpoints::address_types;
use crate::nodes::health::is_ready;
use crate::workload::Note;

/// The label of nodes that no load balancer uses.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The taint of nodes that a cluster autoscaler is about to delete.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The addresses of a node that can take traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    name: String,
    external: Vec<IpAddr>,
    internal: Vec<IpAddr>,
}

impl NodeAddresses {
    /// The addresses of a node; none if it is not ready, excluded, or about to be deleted.
    pub fn new(node: &Node) -> Option<Self> {
        let status = node.status.as_ref()?;
        let excluded = node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED));
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let leaving = node.metadata.deletion_timestamp.is_some()
            || taints.into_iter().any(|taint| taint.key == TO_BE_DELETED);
        if !is_ready(node) || excluded || leaving {
            return None;
        }
        let of_type = |type_: &str| -> Vec<IpAddr> {
            let all = status.addresses.iter().flatten().filter(|address| address.type_ == type_);
            all.filter_map(|address| address.address.parse().ok()).collect()
        };
        Some(Self {
            name: node.metadata.name.clone()?,
            external: of_type("ExternalIP"),
            internal: of_type("InternalIP"),
        })
    }
}

/// A Service and all that its addresses depend on.
#[derive(Clone, Debug)]
pub struct State {
    /// The Service.
    pub service: Arc<Service>,
    /// The nodes that can take traffic.
    pub nodes: Vec<NodeAddresses>,
    /// Other Services with a load balancer that have a port of this one.
    pub rivals: Vec<Arc<Service>>,
    /// The `EndpointSlice`s of a Service whose traffic stays on the node.
    pub slices: Vec<Arc<EndpointSlice>>,
}

/// What is to be done about a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The addresses to write, if they differ.
    pub ingress: Option<Vec<LoadBalancerIngress>>,
    /// Events about the Service.
    pub notes: Vec<Note>,
}

/// Whether a Service gets its addresses from this implementation.
pub(super) fn is_ours(service: &Service) -> bool {
    let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
    wants_load_balancer(service) && class.is_none_or(|class| class == CLASS)
}

/// Whether a Service is to be reconciled: it has or may get addresses from this implementation. A status of another type of
/// Service was left by an implementation that has not cleared it.
pub(super) fn concerns(service: &Service) -> bool {
    is_ours(service) || (!wants_load_balancer(service) && !ingress(service).is_empty())
}

/// Whether traffic from outside stays on the node that it arrives at.
pub(super) fn is_local(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

/// The ports of a Service, such as `TCP/80`.
pub(super) fn port_keys(service: &Service) -> BTreeSet<String> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| format!("{}/{}", port.protocol.as_deref().unwrap_or("TCP"), port.port)).collect()
}

/// What other Services have to know of one that wants ports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) ports: BTreeSet<String>,
    has_addresses: bool,
}

/// The claim of a Service.
pub(super) fn claim(service: &Service) -> Claim {
    Claim { ports: port_keys(service), has_addresses: !ingress(service).is_empty() }
}

fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

/// Which of two Services gets a port: the smaller one.
fn precedence(service: &Service) -> (bool, Option<Timestamp>, Option<&str>, Option<&str>) {
    let metadata = &service.metadata;
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    (ingress(service).is_empty(), created, metadata.namespace.as_deref(), metadata.name.as_deref())
}

/// Decides the addresses of a Service.
pub fn decide(state: &State) -> Decision {
    let service = &*state.service;
    let mut decision = Decision::default();
    let has = ingress(service);
    if !wants_load_balancer(service) {
        if !has.is_empty() && service.metadata.deletion_timestamp.is_none() {
            decision.ingress = Some(Vec::new());
            decision.notes.push(Note::normal("DeletedLoadBalancer", "Deleted load balancer"));
        }
        return decision;
    }
    if !is_ours(service) {
        return decision;
    }
    let addresses = match addresses(state) {
        Ok(addresses) => addresses,
        Err(message) => {
            let message = format!("Error syncing load balancer: {message}");
            decision.notes.push(Note::warning("SyncLoadBalancerFailed", message));
            BTreeSet::new()
        }
    };
    let current: BTreeSet<IpAddr> =
        has.iter().filter_map(|one| one.ip.as_deref()).filter_map(|ip| ip.parse().ok()).collect();
    if current == addresses && has.len() == addresses.len() {
        // The event of a failure is repeated with each reconcile, and counted.
        return decision;
    }
    if decision.notes.is_empty() {
        decision.notes.push(match (has.is_empty(), addresses.is_empty()) {
            (true, _) => Note::normal("EnsuredLoadBalancer", "Ensured load balancer"),
            (false, false) => Note::normal("UpdatedLoadBalancer", "Updated load balancer with new hosts"),
            (false, true) => {
                Note::warning("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
            }
        });
    }
    let address =
        |ip: IpAddr| LoadBalancerIngress { ip: Some(ip.to_string()), ..LoadBalancerIngress::default() };
    decision.ingress = Some(addresses.into_iter().map(address).collect());
    decision
}

/// The addresses of a Service, or why it cannot have any.
fn addresses(state: &State) -> Result<BTreeSet<IpAddr>, String> {
    let service = &*state.service;
    let own = precedence(service);
    if let Some(winner) =
        state.rivals.iter().filter(|rival| precedence(rival) < own).min_by_key(|rival| precedence(rival))
    {
        let shared: Vec<String> = port_keys(service).intersection(&port_keys(winner)).cloned().collect();
        let [namespace, name] = [&winner.metadata.namespace, &winner.metadata.name]
            .map(|field| field.as_deref().unwrap_or_default());
        return Err(format!("port {} is used by the Service {namespace}/{name}", shared.join(", ")));
    }
    let local = local_nodes(state);
    let families = address_types(service);
    let fits = |ip: &IpAddr| families.contains(&if ip.is_ipv6() { "IPv6" } else { "IPv4" });
    let usable =
        state.nodes.iter().filter(|node| local.as_ref().is_none_or(|names| names.contains(&*node.name)));
    let (mut external, mut internal): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = Default::default();
    for node in usable {
        external.extend(node.external.iter().copied().filter(fits));
        internal.extend(node.internal.iter().copied().filter(fits));
    }
    if let Some(wanted) =
        service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref()).filter(|ip| !ip.is_empty())
    {
        let ip: IpAddr = wanted.parse().map_err(|_| format!("loadBalancerIP {wanted} is not an address"))?;
        let is_known = external.contains(&ip) || internal.contains(&ip);
        return if is_known {
            Ok([ip].into())
        } else {
            Err(format!("loadBalancerIP {wanted} is not an address of a node that can take traffic"))
        };
    }
    Ok(if external.is_empty() { internal } else { external })
}

/// The nodes with an endpoint that is ready; none if every node takes traffic.
fn local_nodes(state: &State) -> Option<BTreeSet<&str>> {
    if !is_local(&state.service) {
        return None;
    }
    let endpoints = state.slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|endpoint| {
        // SPEC: a condition that is missing is to be read as true.
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    });
    Some(ready.filter_map(|endpoint| endpoint.node_name.as_deref()).collect())
}
