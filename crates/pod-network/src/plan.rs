//! Which routes and tunnels a node must have.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use plumb_validation::network::Ipv4Network;

use crate::config::{Config, Mode};
use crate::peers::Peers;

/// An address of this machine, on one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The index of the interface.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The address.
    pub address: Ipv4Addr,
    /// The network that is reached over it.
    pub network: Ipv4Network,
}

/// How the pods of a peer are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Via the peer, over an interface.
    Direct {
        /// Its address.
        via: Ipv4Addr,
        /// The index of the interface.
        link: u32,
    },
    /// Through a tunnel.
    Tunnel {
        /// Its address.
        peer: Ipv4Addr,
    },
}

/// What there must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The route to each network.
    pub routes: BTreeMap<Ipv4Network, Route>,
    /// The nodes whose pods are not reached, and why.
    pub left_out: BTreeMap<String, &'static str>,
}

impl Plan {
    /// The tunnels: the network of each peer, and its address.
    pub fn tunnels(&self) -> impl Iterator<Item = (Ipv4Network, Ipv4Addr)> {
        self.routes.iter().filter_map(|(network, route)| match route {
            Route::Tunnel { peer } => Some((*network, *peer)),
            Route::Direct { .. } => None,
        })
    }
}

/// Decides how each peer is reached, with the addresses that this machine has.
pub fn decide(config: &Config, links: &[Link], peers: &Peers) -> Plan {
    let mut plan = Plan::default();
    if config.mode == Mode::None {
        return plan;
    }
    let is_own =
        |address: Ipv4Addr| address == config.address || links.iter().any(|link| link.address == address);
    for (name, peer) in peers.by_age() {
        let refusal = peer.refusal(config.cluster, config.network, is_own).or_else(|| {
            let overlaps = plan.routes.keys().any(|known| known.overlaps(peer.network));
            overlaps.then_some("its podCIDR overlaps that of an older node")
        });
        if let Some(why) = refusal {
            plan.left_out.insert(name.to_owned(), why);
            continue;
        }
        let direct =
            || shared_link(config, links, peer.address).map(|link| Route::Direct { via: peer.address, link });
        let route = match config.mode {
            Mode::Auto => direct().or(Some(Route::Tunnel { peer: peer.address })),
            Mode::Routes => direct(),
            Mode::Vxlan => Some(Route::Tunnel { peer: peer.address }),
            Mode::None => None,
        };
        match route {
            Some(route) => _ = plan.routes.insert(peer.network, route),
            None => {
                plan.left_out
                    .insert(name.to_owned(), "it shares no link with this node, and there are no tunnels");
            }
        }
    }
    plan
}

/// The interface over which an address is reached without a router: of several that with the longest prefix, as the kernel
/// decides. Pods and the loopback are behind other interfaces than nodes.
fn shared_link(config: &Config, links: &[Link], address: Ipv4Addr) -> Option<u32> {
    let candidates = links.iter().filter(|link| {
        link.network.contains(address)
            && link.name != config.bridge
            && link.name != config.names.tunnel
            && !link.address.is_loopback()
            // An address of a point-to-point interface or of a cloud says nothing about neighbours.
            && link.network.prefix() < 32
    });
    candidates.max_by_key(|link| link.network.prefix()).map(|link| link.index)
}

/// The hardware address of the tunnel interface of the node that has a network. It follows from the network, which the
/// controller gave the node, so that no node has to say its own: a forwarding entry cannot be claimed by another one.
pub fn tunnel_hardware_address(network: Ipv4Network) -> [u8; 6] {
    let [a, b, c, d] = network.address().octets();
    // Locally administered, and another prefix than that of pods (0a:58).
    [0x0a, 0x59, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use plumb_controller_runtime::WatchEvent;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::config::{Names, Vxlan};

    fn config(mode: Mode) -> Config {
        Config {
            node: "own".to_owned(),
            mode,
            cluster: "10.64.0.0/16".parse().unwrap(),
            network: "10.64.0.0/24".parse().unwrap(),
            address: Ipv4Addr::new(192, 0, 2, 9),
            bridge: "plumb0c8a1f5e".to_owned(),
            node_bridge: None,
            names: Names::new("plumb-0c8a1f5e2b7d"),
            vxlan: Vxlan { id: 7, port: Vxlan::PORT },
        }
    }

    fn link(index: u32, name: &str, address: &str, prefix: u8) -> Link {
        let address = address.parse().unwrap();
        Link { index, name: name.to_owned(), address, network: Ipv4Network::new(address, prefix) }
    }

    fn links() -> Vec<Link> {
        vec![
            link(1, "lo", "127.0.0.1", 8),
            link(2, "eth0", "192.0.2.9", 24),
            link(3, "eth1", "192.0.2.130", 25),
            link(4, "plumb0c8a1f5e", "10.64.0.1", 24),
            link(5, "tun0", "198.51.100.1", 32),
        ]
    }

    /// Nodes of which each is older than the next.
    fn peers(nodes: &[(&str, &str, &str)]) -> Peers {
        let object = |(age, (name, network, address)): (usize, &(&str, &str, &str))| -> Node {
            serde_json::from_value(json!({
                "metadata": { "name": name, "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z") },
                "spec": { "podCIDRs": [network] },
                "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
            }))
            .unwrap()
        };
        let mut peers = Peers::default();
        peers.apply("own", WatchEvent::Restarted(nodes.iter().enumerate().map(object).collect()));
        peers
    }

    #[test]
    fn a_mode_decides_how_a_peer_is_reached() {
        let near = Ipv4Addr::new(192, 0, 2, 1);
        let nearer = Ipv4Addr::new(192, 0, 2, 131);
        let far = Ipv4Addr::new(198, 51, 100, 1);
        let direct = |via, link| Some(Route::Direct { via, link });
        let tunnel = |peer| Some(Route::Tunnel { peer });
        let far_link = Ipv4Addr::new(198, 51, 100, 2);
        let table = [
            (Mode::Auto, near, direct(near, 2)),
            (Mode::Auto, nearer, direct(nearer, 3)),
            (Mode::Auto, far_link, tunnel(far_link)),
            (Mode::Routes, near, direct(near, 2)),
            (Mode::Routes, far_link, None),
            (Mode::Vxlan, near, tunnel(near)),
            (Mode::None, near, None),
            // It is an address of this machine.
            (Mode::Vxlan, far, None),
        ];
        for (mode, address, expected) in table {
            let peers = peers(&[("peer", "10.64.1.0/24", &address.to_string())]);
            let plan = decide(&config(mode), &links(), &peers);
            let route = plan.routes.get(&"10.64.1.0/24".parse().unwrap()).copied();
            assert_eq!(route, expected, "{mode} {address}");
            assert_eq!(
                plan.left_out.is_empty(),
                expected.is_some() || mode == Mode::None,
                "{mode} {address}"
            );
        }
    }

    #[test]
    fn of_two_nodes_with_the_same_network_the_older_one_has_it() {
        let peers = peers(&[("old", "10.64.1.0/24", "192.0.2.1"), ("a-new", "10.64.1.128/25", "192.0.2.2")]);
        let plan = decide(&config(Mode::Auto), &links(), &peers);
        assert_eq!(plan.routes.len(), 1);
        assert_eq!(plan.left_out["a-new"], "its podCIDR overlaps that of an older node");
    }

    #[test]
    fn hardware_addresses_are_unicast_and_follow_from_the_network() {
        let address = tunnel_hardware_address("10.64.1.0/24".parse().unwrap());
        assert_eq!(address, [0x0a, 0x59, 10, 64, 1, 0]);
        assert_eq!(address[0] & 1, 0);
    }

    proptest! {
        #[test]
        fn no_node_gets_what_is_not_its_own(
            nodes in proptest::collection::vec((any::<u32>(), any::<u16>(), 0..33_u8, any::<bool>()), 0..12),
            mode in prop_oneof![Just(Mode::Auto), Just(Mode::Routes), Just(Mode::Vxlan)],
        ) {
            let texts: Vec<_> = nodes
                .iter()
                .enumerate()
                .map(|(index, (address, offset, prefix, near))| {
                    let first = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) + u32::from(*offset));
                    let near = near.then(|| Ipv4Addr::new(192, 0, 2, address.to_be_bytes()[3]));
                    let address = near.unwrap_or(Ipv4Addr::from(*address));
                    (index.to_string(), Ipv4Network::new(first, *prefix).to_string(), address.to_string())
                })
                .collect();
            let nodes: Vec<_> = texts.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
            let (config, links) = (config(mode), links());
            let plan = decide(&config, &links, &peers(&nodes));
            let routes: Vec<_> = plan.routes.iter().collect();
            for (index, (network, route)) in routes.iter().enumerate() {
                prop_assert!(config.cluster.covers(**network) && !config.network.overlaps(**network));
                prop_assert!(!routes[..index].iter().any(|(other, _)| other.overlaps(**network)));
                let (Route::Direct { via: address, .. } | Route::Tunnel { peer: address }) = route;
                prop_assert!(!links.iter().any(|link| link.address == *address));
                prop_assert!(!address.is_loopback() && !config.cluster.contains(*address));
            }
            prop_assert_eq!(plan.routes.len() + plan.left_out.len(), nodes.len());
        }
    }
}
