//! What the kernel is to do with connections to one port of a Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::endpoint::{Chosen, Node};
use super::name::{Protocol, ServicePortName};
use super::service::{Network, ServicePort};

/// The maps of the table that several Services share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SharedMap {
    /// Addresses within the cluster, for connections from pods of this cluster and from the machine.
    Cluster,
    /// Addresses of load balancers and `externalIPs`, for connections from everywhere.
    External,
    /// Ports of the machine.
    NodePorts,
    /// Addresses of load balancers that are for some clients only.
    Firewall,
    /// Addresses within the cluster that have no endpoint.
    ClusterUnavailable,
    /// Other addresses that have no endpoint.
    ExternalUnavailable,
    /// Ports of the machine that have no endpoint.
    NodePortsUnavailable,
}

/// An entry of a shared map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry {
    pub(crate) map: SharedMap,
    pub(crate) protocol: Protocol,
    /// The address; `None` in the maps of ports of the machine.
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) port: u16,
}

/// What becomes of a connection that an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The rules of this chain say.
    Chain(String),
    /// It is refused.
    Reject,
    /// Its packets are dropped.
    Drop,
}

/// An endpoint of a port with session affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointWithClients {
    pub(crate) chain: String,
    /// The set of clients that it remembers.
    pub(crate) clients: String,
}

/// The content of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChainRules {
    /// Sends connections to one of these, at random.
    Endpoints(Vec<SocketAddrV4>),
    /// Sends connections to the endpoint that remembers the client, or to one at random.
    Affinity(Vec<EndpointWithClients>),
    /// Remembers the client in the set, and sends the connection to the endpoint.
    Endpoint { endpoint: SocketAddrV4, clients: String },
    /// Sends connections from outside on to a chain, masqueraded, so that answers come back through this machine.
    Masqueraded { to: String },
    /// Sends connections from outside to endpoints on this node, with the address of the client. Those of pods and of the
    /// machine itself go wherever those to the address within the cluster go.
    OnNode {
        /// The chain for pods and the machine.
        cluster: Option<String>,
        /// The chain for others.
        local: Option<String>,
    },
    /// Drops packets from addresses other than these.
    Firewall { allowed: Vec<Network> },
}

/// The rules of one port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortRules {
    pub(crate) chains: BTreeMap<String, ChainRules>,
    /// The sets of clients that stay with an endpoint, with the time that one is remembered.
    pub(crate) affinities: BTreeMap<String, Duration>,
    pub(crate) entries: BTreeMap<Entry, Target>,
    /// Endpoints that may be on this node: a connection from one to itself needs another source address.
    pub(crate) hairpins: BTreeSet<Ipv4Addr>,
    /// All endpoints that connections may be sent to.
    pub(crate) reachable: BTreeSet<SocketAddrV4>,
}

impl PortRules {
    /// Decides about a port with the endpoints that were chosen for it. Connections to `local` are served by this machine itself.
    pub(crate) fn decide(
        name: &ServicePortName,
        port: &ServicePort,
        chosen: Chosen,
        node: &Node,
        local: &BTreeSet<SocketAddrV4>,
    ) -> Self {
        let cluster_chain = format!("service/{name}");
        let local_chain = format!("local/{name}");
        let external_chain = format!("external/{name}");
        let internal = if port.internal_policy_local { &chosen.local } else { &chosen.cluster };
        let external = if port.external_policy_local { &chosen.local } else { &chosen.cluster };
        // kube-proxy rejects where no node has an endpoint, and drops where only others have.
        let unavailable = if chosen.any { Target::Drop } else { Target::Reject };
        let mut rules = Self::default();

        let entry = |map, address, port| Entry { map, protocol: name.protocol, address, port };
        if !local.contains(&SocketAddrV4::new(port.cluster_ip, port.port)) {
            let chain = if port.internal_policy_local { &local_chain } else { &cluster_chain };
            let (map, target) = if internal.is_empty() {
                (SharedMap::ClusterUnavailable, unavailable.clone())
            } else {
                (SharedMap::Cluster, Target::Chain(chain.clone()))
            };
            rules.entries.insert(entry(map, Some(port.cluster_ip), port.port), target);
        }
        let mut outside: Vec<(Option<Ipv4Addr>, u16)> = Vec::new();
        outside.extend(port.external_ips.union(&port.load_balancer_ips).map(|ip| (Some(*ip), port.port)));
        outside.extend(port.node_port.map(|port| (None, port)));
        let uses_external = !outside.is_empty()
            && (!external.is_empty() || (port.external_policy_local && !chosen.cluster.is_empty()));
        for (address, number) in outside {
            let (available, unavailable_map) = match address {
                Some(_) => (SharedMap::External, SharedMap::ExternalUnavailable),
                None => (SharedMap::NodePorts, SharedMap::NodePortsUnavailable),
            };
            if uses_external {
                let target = Target::Chain(external_chain.clone());
                rules.entries.insert(entry(available, address, number), target);
            }
            if external.is_empty() {
                rules.entries.insert(entry(unavailable_map, address, number), unavailable.clone());
            }
        }
        if !port.source_ranges.is_empty() && !port.load_balancer_ips.is_empty() {
            let chain = format!("firewall/{name}");
            for address in &port.load_balancer_ips {
                let target = Target::Chain(chain.clone());
                rules.entries.insert(entry(SharedMap::Firewall, Some(*address), port.port), target);
            }
            rules.chains.insert(chain, ChainRules::Firewall { allowed: allowed(port, node) });
        }

        let is_local_used = (port.internal_policy_local && !chosen.local.is_empty())
            || (uses_external && port.external_policy_local && !chosen.local.is_empty());
        let is_cluster_used = !chosen.cluster.is_empty() && (!port.internal_policy_local || uses_external);
        if uses_external {
            let content = if port.external_policy_local {
                ChainRules::OnNode {
                    cluster: is_cluster_used.then(|| cluster_chain.clone()),
                    local: is_local_used.then(|| local_chain.clone()),
                }
            } else {
                ChainRules::Masqueraded { to: cluster_chain.clone() }
            };
            rules.chains.insert(external_chain, content);
        }
        for (used, chain, endpoints) in
            [(is_cluster_used, cluster_chain, chosen.cluster), (is_local_used, local_chain, chosen.local)]
        {
            if used {
                rules.reachable.extend(&endpoints);
                let content = match port.affinity {
                    None => ChainRules::Endpoints(endpoints),
                    Some(timeout) => rules.add_affinity(name, timeout, endpoints),
                };
                rules.chains.insert(chain, content);
            }
        }
        if !rules.reachable.is_empty() {
            rules.hairpins = chosen.on_node;
        }
        rules
    }

    /// Adds a chain and a set of clients for each endpoint, and returns the rules that choose one of them.
    pub(super) fn add_affinity(
        &mut self,
        name: &ServicePortName,
        timeout: Duration,
        endpoints: Vec<SocketAddrV4>,
    ) -> ChainRules {
        let mut choices = Vec::new();
        for endpoint in endpoints {
            let chain = format!("endpoint/{name}/{endpoint}");
            // The kernel cannot change the timeout of a set: another timeout is another set.
            let clients = format!("clients/{name}/{endpoint}/{}", timeout.as_secs());
            self.affinities.insert(clients.clone(), timeout);
            let rules = ChainRules::Endpoint { endpoint, clients: clients.clone() };
            self.chains.insert(chain.clone(), rules);
            choices.push(EndpointWithClients { chain, clients });
        }
        ChainRules::Affinity(choices)
    }
}

/// The clients that the addresses of a load balancer are for. Where this node is among them, its own connections come from the
/// load balancer's address, if that is an address of the node, as with a load balancer of virtual addresses.
fn allowed(port: &ServicePort, node: &Node) -> Vec<Network> {
    let mut allowed = port.source_ranges.clone();
    let contains = |(network, prefix): &Network| {
        let mask = u32::MAX.checked_shl(32 - u32::from(*prefix)).unwrap_or(0);
        node.addresses.iter().any(|address| (u32::from(*address) ^ u32::from(*network)) & mask == 0)
    };
    if port.source_ranges.iter().any(contains) {
        allowed.extend(port.load_balancer_ips.iter().map(|address| (*address, 32)));
    }
    allowed
}
