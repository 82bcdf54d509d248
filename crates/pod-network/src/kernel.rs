//! What the kernel has, and the changes that make it what it must be.
//!
//! ```text
//!   tunnel interface    VXLAN, without learning; its hardware address follows from the node's network
//!   forwarding entry    hardware address of a peer's tunnel ──▶ the peer's address
//!   neighbour           first address of the peer's network ──▶ hardware address of its tunnel
//!   route               the peer's network ──▶ via that neighbour, or via the peer
//! ```
//!
//! Everything is read before it is changed, and what is as it must be is not touched: applying a plan twice changes nothing.

mod messages;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use plumb_validation::network::Ipv4Network;

use crate::config::{Config, Names};
use crate::plan::{Link, Plan, Route, tunnel_hardware_address};
use messages::{ForwardingEntry, Interface, KernelRoute, Neighbour};
use socket::Socket;

/// What the headers of a tunnel take: outer Ethernet, IPv4, UDP and VXLAN.
const TUNNEL_HEADERS: u32 = 50;
/// The least that an IPv4 interface carries (RFC 791 asks for 68, and what fits into that is of no use).
const LEAST_MTU: u32 = 576;
/// The MTU of Ethernet, where that of the node's interface is unknown.
const USUAL_MTU: u32 = 1500;

/// A change that the kernel has refused.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub(crate) struct KernelError {
    doing: String,
    source: io::Error,
}

/// An error, with what was being done.
pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> KernelError {
    let doing = what.into();
    move |source| KernelError { doing, source }
}

/// The kernel's networking, of the network namespace that it was opened in.
pub(crate) struct Kernel(Socket);

impl Kernel {
    pub(crate) fn open() -> Result<Self, KernelError> {
        Socket::open().map(Self).map_err(doing("opening a netlink socket"))
    }

    /// The addresses of this machine.
    pub(crate) fn links(&self) -> Result<Vec<Link>, KernelError> {
        let interfaces = self.interfaces()?;
        let names: BTreeMap<u32, &str> =
            interfaces.iter().map(|interface| (interface.index, interface.name.as_str())).collect();
        let addresses = self.0.dump(messages::get_addresses(), messages::address);
        let addresses = addresses.map_err(doing("reading the addresses of this machine"))?;
        let links = addresses.into_iter().filter_map(|(index, address, prefix)| {
            let name = (*names.get(&index)?).to_owned();
            Some(Link { index, name, address, network: Ipv4Network::new(address, prefix) })
        });
        Ok(links.collect())
    }

    fn interfaces(&self) -> Result<Vec<Interface>, KernelError> {
        self.0.dump(messages::get_interfaces(), messages::interface).map_err(doing("reading the interfaces"))
    }

    /// The MTU of the interface that has an address.
    fn mtu_at(&self, address: Ipv4Addr) -> Result<Option<u32>, KernelError> {
        let links = self.links()?;
        let Some(link) = links.iter().find(|link| link.address == address) else { return Ok(None) };
        Ok(self
            .interfaces()?
            .into_iter()
            .find(|interface| interface.index == link.index)
            .map(|interface| interface.mtu))
    }

    /// Makes tunnels and routes what a plan says.
    pub(crate) fn apply(&self, config: &Config, plan: &Plan) -> Result<(), KernelError> {
        let tunnel = if plan.tunnels().next().is_some() { Some(self.ensure_tunnel(config)?) } else { None };
        let gateway = config.network.at(1).unwrap_or(config.address);
        let wanted: BTreeMap<Ipv4Network, KernelRoute> = plan
            .routes
            .iter()
            .filter_map(|(network, route)| {
                let route = match route {
                    Route::Direct { via, link } => KernelRoute { via: *via, link: *link, source: None },
                    // Packets of this machine come from the bridge: the peer has a route to that, and not to the machine's
                    // own address through the tunnel.
                    Route::Tunnel { .. } => {
                        KernelRoute { via: network.address(), link: tunnel?, source: Some(gateway) }
                    }
                };
                Some((*network, route))
            })
            .collect();
        let actual = self.routes(&config.names)?;
        for (network, route) in actual.iter().filter(|(network, _)| !wanted.contains_key(network)) {
            self.remove_route(&config.names, *network, *route)?;
        }
        match tunnel {
            Some(tunnel) => self.apply_neighbours(tunnel, plan)?,
            None => self.remove_interface(&config.names.tunnel)?,
        }
        for (network, route) in wanted {
            if actual.get(&network) == Some(&route) {
                continue;
            }
            // Replaced and not removed first, so that no packet goes elsewhere meanwhile.
            let message = messages::new_route(network, route, config.names.metric);
            self.0.replace(message).map_err(doing(format!("adding the route to {network}")))?;
        }
        Ok(())
    }

    /// Removes routes and tunnels.
    pub(crate) fn clear(&self, names: &Names) -> Result<(), KernelError> {
        for (network, route) in self.routes(names)? {
            self.remove_route(names, network, route)?;
        }
        self.remove_interface(&names.tunnel)
    }

    /// The routes of this cluster.
    fn routes(&self, names: &Names) -> Result<BTreeMap<Ipv4Network, KernelRoute>, KernelError> {
        let found = self.0.dump(messages::get_routes(), |message| messages::route(&message, names.metric));
        Ok(found.map_err(doing("reading the routes"))?.into_iter().collect())
    }

    fn remove_route(
        &self,
        names: &Names,
        network: Ipv4Network,
        route: KernelRoute,
    ) -> Result<(), KernelError> {
        let message = messages::delete_route(network, route, names.metric);
        self.0.remove(message).map_err(doing(format!("removing the route to {network}")))
    }

    pub(crate) fn remove_interface(&self, name: &str) -> Result<(), KernelError> {
        self.0
            .remove(messages::delete_interface(name))
            .map_err(doing(format!("removing the interface {name}")))
    }

    /// The index of the tunnel interface, which is made unless it is as it must be.
    fn ensure_tunnel(&self, config: &Config) -> Result<u32, KernelError> {
        let name = config.names.tunnel.as_str();
        let mtu = self.mtu_at(config.address)?.unwrap_or(USUAL_MTU);
        let wanted = messages::Tunnel {
            id: config.vxlan.id,
            port: config.vxlan.port,
            local: config.address,
            hardware: tunnel_hardware_address(config.network),
            mtu: mtu.saturating_sub(TUNNEL_HEADERS).max(LEAST_MTU),
        };
        let find = || -> Result<Option<Interface>, KernelError> {
            Ok(self.interfaces()?.into_iter().find(|interface| interface.name == name))
        };
        if let Some(found) = find()? {
            if found.is_up && found.tunnel == Some(wanted) {
                return Ok(found.index);
            }
            self.remove_interface(name)?;
        }
        let made = self.0.create(messages::new_tunnel(name, wanted));
        made.map_err(doing(format!("making the VXLAN interface {name}, port {}", wanted.port)))?;
        // Strict: a peer sends through the tunnel with addresses that are routed into it, which are those of peers.
        let filter = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        fs::write(&filter, "1").map_err(doing(format!("setting {filter}")))?;
        let missing = || doing("making the VXLAN interface")(io::ErrorKind::NotFound.into());
        Ok(find()?.ok_or_else(missing)?.index)
    }

    /// Makes the neighbours and forwarding entries of the tunnel interface what a plan says.
    fn apply_neighbours(&self, tunnel: u32, plan: &Plan) -> Result<(), KernelError> {
        let hardware = |network: Ipv4Network| tunnel_hardware_address(network);
        let entries: BTreeSet<ForwardingEntry> = plan
            .tunnels()
            .map(|(network, peer)| ForwardingEntry { hardware: hardware(network), peer })
            .collect();
        let neighbours: BTreeSet<Neighbour> = plan
            .tunnels()
            .map(|(network, _)| Neighbour { address: network.address(), hardware: hardware(network) })
            .collect();
        let found = self.0.dump(messages::get_forwarding_entries(tunnel), |message| {
            messages::forwarding_entry(&message, tunnel)
        });
        let actual: BTreeSet<_> =
            found.map_err(doing("reading the forwarding entries of the tunnel"))?.into_iter().collect();
        for entry in actual.difference(&entries) {
            let removed = self.0.remove(messages::delete_forwarding_entry(tunnel, *entry));
            removed.map_err(doing(format!("removing the tunnel to {}", entry.peer)))?;
        }
        for entry in entries.difference(&actual) {
            let added = self.0.replace(messages::new_forwarding_entry(tunnel, *entry));
            added.map_err(doing(format!("adding the tunnel to {}", entry.peer)))?;
        }
        let found =
            self.0.dump(messages::get_neighbours(tunnel), |message| messages::neighbour(&message, tunnel));
        let actual: BTreeSet<_> =
            found.map_err(doing("reading the neighbours of the tunnel"))?.into_iter().collect();
        for neighbour in actual.difference(&neighbours) {
            let removed = self.0.remove(messages::delete_neighbour(tunnel, *neighbour));
            removed.map_err(doing(format!("removing the neighbour {}", neighbour.address)))?;
        }
        for neighbour in neighbours.difference(&actual) {
            let added = self.0.replace(messages::new_neighbour(tunnel, *neighbour));
            added.map_err(doing(format!("adding the neighbour {}", neighbour.address)))?;
        }
        Ok(())
    }
}

/// What namespaces of nodes are made of.
impl Kernel {
    /// Makes a bridge with an address, unless it has it.
    pub(crate) fn ensure_bridge(&self, name: &str, address: Ipv4Addr, prefix: u8) -> Result<(), KernelError> {
        let making = || format!("making the bridge {name}");
        if !self.interfaces()?.iter().any(|interface| interface.name == name) {
            self.0.create(messages::new_bridge(name)).map_err(doing(making()))?;
        }
        if !self.links()?.iter().any(|link| link.name == name && link.address == address) {
            self.add_address(name, address, prefix)?;
        }
        self.set_link_up(name)
    }

    /// Adds a veth pair from a bridge into a namespace, where its end has a name of its own.
    pub(crate) fn add_veth(
        &self,
        name: &str,
        bridge: &str,
        inside: &str,
        namespace: BorrowedFd<'_>,
    ) -> Result<(), KernelError> {
        let bridge = self.index(bridge)?;
        let made = self.0.create(messages::new_veth(name, bridge, inside, namespace));
        made.map_err(doing(format!("making the interface {name}")))
    }

    /// Has the bridge send frames of its port back to it. Where the kernel passes bridged packets to netfilter (`br_netfilter`),
    /// a connection from a node that is translated to a pod of the same node does not leave the bridge.
    pub(crate) fn set_hairpin(&self, name: &str) -> Result<(), KernelError> {
        let index = self.index(name)?;
        let changed = self.0.modify(messages::hairpin(index));
        changed.map_err(doing(format!("setting the port {name} to hairpin mode")))
    }

    /// Sets an interface up with an address and a default route.
    pub(crate) fn set_up(
        &self,
        name: &str,
        address: Ipv4Addr,
        prefix: u8,
        gateway: Ipv4Addr,
    ) -> Result<(), KernelError> {
        self.add_address(name, address, prefix)?;
        self.set_link_up(name)?;
        self.0.create(messages::default_route(gateway)).map_err(doing("adding the default route"))
    }

    pub(crate) fn set_link_up(&self, name: &str) -> Result<(), KernelError> {
        let index = self.index(name)?;
        self.0.replace(messages::set_up(index)).map_err(doing(format!("setting the interface {name} up")))
    }

    fn add_address(&self, name: &str, address: Ipv4Addr, prefix: u8) -> Result<(), KernelError> {
        let added = self.0.create(messages::new_address(self.index(name)?, address, prefix));
        added.map_err(doing(format!("adding the address {address} to {name}")))
    }

    fn index(&self, name: &str) -> Result<u32, KernelError> {
        let missing = || doing(format!("finding the interface {name}"))(io::ErrorKind::NotFound.into());
        let found = self.interfaces()?.into_iter().find(|interface| interface.name == name);
        Ok(found.ok_or_else(missing)?.index)
    }
}

/// The MTU of pods of a node with an address: what the interface with that address carries, without the headers of a tunnel
/// where there may be one. `None` leaves it to the kernel.
pub fn pod_mtu(address: Ipv4Addr, may_tunnel: bool) -> Option<u32> {
    // A node on the loopback is reached by no other node.
    if address.is_loopback() {
        return None;
    }
    let found = Kernel::open().and_then(|kernel| kernel.mtu_at(address));
    let mtu = found
        .inspect_err(|error| tracing::warn!(%error, "the MTU of the node's interface is unknown"))
        .ok()
        .flatten()?;
    let headers = if may_tunnel { TUNNEL_HEADERS } else { 0 };
    Some(mtu.saturating_sub(headers).max(LEAST_MTU))
}
