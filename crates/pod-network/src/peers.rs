//! Which nodes there are, and the networks of their pods.
//!
//! A node writes its own addresses, and a user with its credentials may write any. Its network is written by the controller,
//! and cannot be changed by the node. So an address is believed where it can harm only the pods of that node itself: it is no
//! address of this machine, of the loopback or of a pod.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use plumb_controller_runtime::WatchEvent;
use plumb_validation::network::Ipv4Network;

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address, the first IPv4 `InternalIP`.
    pub address: Ipv4Addr,
    /// The network of its pods.
    pub network: Ipv4Network,
    /// When its object was created: of two nodes with the same addresses the older one has them.
    created: Option<Timestamp>,
}

impl Peer {
    /// A peer of which no object is known.
    pub fn new(address: Ipv4Addr, network: Ipv4Network) -> Self {
        Self { address, network, created: None }
    }

    /// What a Node says of itself, if it has an address and a network.
    pub fn from_node(node: &Node) -> Option<Self> {
        let networks = node.spec.as_ref()?.pod_cidrs.as_deref()?;
        let addresses = node.status.as_ref()?.addresses.as_deref()?;
        let mut internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
        Some(Self {
            address: internal.find_map(|address| address.address.parse().ok())?,
            network: networks.iter().find_map(|network| network.parse().ok())?,
            created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        })
    }

    /// Why a node with a network, of a cluster, does not believe it; `own` says which addresses its machine has.
    pub fn refusal(
        &self,
        cluster: Ipv4Network,
        network: Ipv4Network,
        own: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<&'static str> {
        let address = self.address;
        let table = [
            (
                !cluster.covers(self.network) || cluster == self.network,
                "its podCIDR is not in the cluster CIDR",
            ),
            (self.network.overlaps(network), "its podCIDR overlaps that of this node"),
            (
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_multicast()
                    || address.is_broadcast()
                    || address.is_link_local(),
                "other nodes do not reach it at its address",
            ),
            (cluster.contains(address), "its address is one of pods"),
            (own(address), "its address is one of this machine"),
        ];
        table.into_iter().find_map(|(refused, why)| refused.then_some(why))
    }
}

/// The other nodes of a cluster, by name.
#[derive(Debug, Default)]
pub struct Peers {
    all: BTreeMap<String, Peer>,
    /// Whether all are known: a list was received.
    is_complete: bool,
}

impl Peers {
    /// Whether all nodes are known.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Applies an event. Whether that changes a peer: most events are heartbeats.
    pub fn apply(&mut self, own: &str, event: WatchEvent<Node>) -> bool {
        let named = |node: &Node| node.metadata.name.clone().filter(|name| name != own);
        match event {
            WatchEvent::Restarted(nodes) => {
                let peers = nodes.iter().filter_map(|node| Some((named(node)?, Peer::from_node(node)?)));
                let all = peers.collect();
                let changed = !self.is_complete || self.all != all;
                self.is_complete = true;
                self.all = all;
                changed
            }
            WatchEvent::Applied(node) => match (named(&node), Peer::from_node(&node)) {
                (None, _) => false,
                (Some(name), None) => self.all.remove(&name).is_some(),
                (Some(name), Some(peer)) => {
                    self.all.insert(name, peer.clone()).is_none_or(|before| before != peer)
                }
            },
            WatchEvent::Deleted(node) => self.all.remove(&node.name).is_some(),
        }
    }

    /// All of them, those with precedence first.
    pub fn by_age(&self) -> Vec<(&str, &Peer)> {
        let mut all: Vec<_> = self.all.iter().map(|(name, peer)| (name.as_str(), peer)).collect();
        // A missing timestamp sorts last.
        all.sort_by_key(|(name, peer)| (peer.created.is_none(), peer.created, *name));
        all
    }
}

#[cfg(test)]
mod tests {
    use plumb_controller_runtime::ObjectRef;
    use serde_json::json;

    use super::*;

    fn node(name: &str, network: Option<&str>, address: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "podCIDRs": network.map(|network| vec!["fd00::/64", network]) },
            "status": { "addresses": [
                { "type": "Hostname", "address": name },
                { "type": "InternalIP", "address": "fd00::1" },
                { "type": "InternalIP", "address": address },
            ] },
        }))
        .unwrap()
    }

    #[test]
    fn only_what_concerns_routes_is_a_change() {
        let mut peers = Peers::default();
        let applied = |node: &Node| WatchEvent::Applied(Box::new(node.clone()));
        let (one, own) =
            (node("one", Some("10.64.1.0/24"), "192.0.2.1"), node("own", Some("10.64.0.0/24"), "192.0.2.9"));
        assert!(!peers.is_complete());
        assert!(peers.apply("own", WatchEvent::Restarted(vec![one.clone(), own.clone()])));
        assert!(peers.is_complete());
        assert!(!peers.apply("own", WatchEvent::Restarted(vec![one.clone()])));
        assert!(!peers.apply("own", applied(&one)));
        assert!(!peers.apply("own", applied(&own)));
        assert!(!peers.apply("own", applied(&node("two", None, "192.0.2.2"))));
        assert!(peers.apply("own", applied(&node("two", Some("10.64.2.0/24"), "192.0.2.2"))));
        assert!(peers.apply("own", applied(&node("two", Some("10.64.2.0/24"), "192.0.2.3"))));
        let known = peers.by_age();
        assert_eq!(known.len(), 2);
        let two = Peer::new(Ipv4Addr::new(192, 0, 2, 3), "10.64.2.0/24".parse().unwrap());
        assert_eq!(known[1], ("two", &two));
        assert!(peers.apply("own", WatchEvent::Deleted(ObjectRef::cluster("two"))));
        assert!(!peers.apply("own", WatchEvent::Deleted(ObjectRef::cluster("two"))));
    }

    #[test]
    fn a_node_is_not_believed_what_would_harm_others() {
        let own = Ipv4Addr::new(192, 0, 2, 9);
        let table = [
            ("10.64.1.0/24", "192.0.2.1", None),
            ("10.64.1.0/24", "127.0.0.1", Some("other nodes do not reach it at its address")),
            ("10.64.1.0/24", "224.0.0.1", Some("other nodes do not reach it at its address")),
            ("10.64.1.0/24", "169.254.169.254", Some("other nodes do not reach it at its address")),
            ("10.64.1.0/24", "10.64.0.7", Some("its address is one of pods")),
            ("10.64.1.0/24", "192.0.2.9", Some("its address is one of this machine")),
            ("10.64.0.0/25", "192.0.2.1", Some("its podCIDR overlaps that of this node")),
            ("10.64.0.0/16", "192.0.2.1", Some("its podCIDR is not in the cluster CIDR")),
            ("10.0.0.0/8", "192.0.2.1", Some("its podCIDR is not in the cluster CIDR")),
            ("0.0.0.0/0", "192.0.2.1", Some("its podCIDR is not in the cluster CIDR")),
        ];
        for (network, address, expected) in table {
            let peer = Peer::new(address.parse().unwrap(), network.parse().unwrap());
            let (cluster, here) = ("10.64.0.0/16".parse().unwrap(), "10.64.0.0/24".parse().unwrap());
            assert_eq!(
                peer.refusal(cluster, here, |address| address == own),
                expected,
                "{network} {address}"
            );
        }
    }
}
