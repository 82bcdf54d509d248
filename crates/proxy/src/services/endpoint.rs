//! The endpoints of an EndpointSlice, and which of them a node uses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::name::{Protocol, ServicePortName};
use super::service::{ServicePort, is_forwardable, number};

/// An endpoint without its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: Ipv4Addr,
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
    /// The node that it is on, if the slice says so.
    pub(crate) node: Option<Arc<str>>,
    /// The zones that the controller hints at.
    pub(crate) zone_hints: BTreeSet<Arc<str>>,
    /// The nodes that the controller hints at.
    pub(crate) node_hints: BTreeSet<Arc<str>>,
}

impl Endpoint {
    fn is_serving_and_terminating(&self) -> bool {
        self.serving && self.terminating
    }
}

/// The ports and endpoints of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    ports: Vec<(Protocol, Arc<str>, u16)>,
    endpoints: Vec<Endpoint>,
}

impl Slice {
    /// Reads a slice of IPv4 addresses; one of another type has no endpoints.
    pub(crate) fn parse(slice: &EndpointSlice) -> Self {
        if slice.address_type != "IPv4" {
            return Self::default();
        }
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let protocol = Protocol::from_api(port.protocol.as_deref())?;
            Some((protocol, Arc::from(port.name.as_deref().unwrap_or_default()), number(port.port?)?))
        });
        let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            let ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
            let hints = endpoint.hints.as_ref();
            Some(Endpoint {
                // All addresses of an endpoint are of one pod, and consumers use the first (API reference).
                address: endpoint
                    .addresses
                    .first()?
                    .parse()
                    .ok()
                    .filter(|address| is_forwardable(*address))?,
                ready,
                serving: conditions.and_then(|conditions| conditions.serving).unwrap_or(ready),
                terminating: conditions.and_then(|conditions| conditions.terminating).unwrap_or(false),
                node: endpoint.node_name.as_deref().map(Arc::from),
                zone_hints: hints
                    .iter()
                    .flat_map(|hints| hints.for_zones.iter().flatten())
                    .map(|zone| Arc::from(zone.name.as_str()))
                    .collect(),
                node_hints: hints
                    .iter()
                    .flat_map(|hints| hints.for_nodes.iter().flatten())
                    .map(|node| Arc::from(node.name.as_str()))
                    .collect(),
            })
        });
        Self { ports: ports.collect(), endpoints: endpoints.collect() }
    }
}

/// The node that a proxy runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) addresses: BTreeSet<Ipv4Addr>,
}

impl Node {
    fn has(&self, endpoint: &Endpoint) -> bool {
        endpoint.node.as_ref() == Some(&self.name)
    }
}

/// Endpoints of a port of a Service: by address and port, each once.
pub(crate) type PortEndpoints<'a> = BTreeMap<SocketAddrV4, &'a Endpoint>;

/// The endpoints that the slices of a Service have for one of its ports. Where two slices have the same endpoint, as while it
/// moves from one to the other, one on this node is preferred.
pub(crate) fn endpoints_of<'a>(
    name: &ServicePortName,
    slices: impl Iterator<Item = &'a Slice>,
    node: &Node,
) -> PortEndpoints<'a> {
    let mut found = PortEndpoints::new();
    for slice in slices {
        let ports = slice.ports.iter();
        for (_, _, port) in
            ports.filter(|(protocol, port, _)| *protocol == name.protocol && *port == name.port)
        {
            for endpoint in &slice.endpoints {
                let address = SocketAddrV4::new(endpoint.address, *port);
                let known = found.entry(address).or_insert(endpoint);
                if !node.has(known) {
                    *known = endpoint;
                }
            }
        }
    }
    found
}

/// Which endpoints of a port a node uses (`CategorizeEndpoints` of kube-proxy).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// For the traffic policy `Cluster`.
    pub(crate) cluster: Vec<SocketAddrV4>,
    /// For the traffic policy `Local`.
    pub(crate) local: Vec<SocketAddrV4>,
    /// Whether any node has one that is usable.
    pub(crate) any: bool,
    /// Those that may be on this node, to which a connection from themselves may come back.
    pub(crate) on_node: BTreeSet<Ipv4Addr>,
}

/// Chooses among the endpoints of a port.
pub(crate) fn choose(port: &ServicePort, endpoints: &PortEndpoints<'_>, node: &Node) -> Chosen {
    let select = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<SocketAddrV4> {
        let found = endpoints.iter().filter(|(_, endpoint)| wanted(endpoint));
        found.map(|(address, _)| *address).collect()
    };
    let mut chosen = Chosen::default();
    if port.uses_cluster_endpoints() {
        let topology = Topology::from_hints(endpoints, node);
        chosen.cluster = select(&|endpoint| endpoint.ready && topology.admits(endpoint));
        if chosen.cluster.is_empty() {
            chosen.cluster = select(&Endpoint::is_serving_and_terminating);
        }
        chosen.any = !chosen.cluster.is_empty();
    }
    if port.uses_local_endpoints() {
        chosen.any =
            endpoints.values().any(|endpoint| endpoint.ready || endpoint.is_serving_and_terminating());
        chosen.local = select(&|endpoint| node.has(endpoint) && endpoint.ready);
        if chosen.local.is_empty() {
            chosen.local = select(&|endpoint| node.has(endpoint) && endpoint.is_serving_and_terminating());
        }
    }
    chosen.on_node = chosen
        .cluster
        .iter()
        .chain(&chosen.local)
        // A slice that a user wrote may not name the node.
        .filter(|address| {
            endpoints.get(*address).is_some_and(|found| found.node.is_none() || node.has(found))
        })
        .map(|address| *address.ip())
        .collect();
    chosen
}

/// Which endpoints are used of those that are ready (`topologyModeFromHints`).
enum Topology<'a> {
    /// All.
    Any,
    /// Those with a hint for this node.
    Node(&'a str),
    /// Those with a hint for the zone of this node.
    Zone(&'a str),
}

impl<'a> Topology<'a> {
    /// Hints are followed if every ready endpoint has some, and one of them is for this node, or else its zone.
    fn from_hints(endpoints: &PortEndpoints<'_>, node: &'a Node) -> Self {
        let ready = || endpoints.values().filter(|endpoint| endpoint.ready);
        if ready().all(|endpoint| !endpoint.node_hints.is_empty())
            && ready().any(|endpoint| endpoint.node_hints.contains(&node.name))
        {
            return Self::Node(&node.name);
        }
        match &node.zone {
            Some(zone)
                if ready().all(|endpoint| !endpoint.zone_hints.is_empty())
                    && ready().any(|endpoint| endpoint.zone_hints.contains(zone)) =>
            {
                Self::Zone(zone)
            }
            _ => Self::Any,
        }
    }

    fn admits(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Any => true,
            Self::Node(node) => endpoint.node_hints.contains(*node),
            Self::Zone(zone) => endpoint.zone_hints.contains(*zone),
        }
    }
}

/// How many endpoints on this node are ready, each address once however many ports it has: what health checks report.
pub(crate) fn ready_on_node<'a>(slices: impl Iterator<Item = &'a Slice>, node: &Node) -> usize {
    let endpoints = slices.flat_map(|slice| &slice.endpoints);
    let ready = endpoints.filter(|endpoint| endpoint.ready && node.has(endpoint));
    ready.map(|endpoint| endpoint.address).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests;
