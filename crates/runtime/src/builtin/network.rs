//! A pod's network: a veth pair to a bridge that all pods of the node share, and an address.
//!
//! The pod has its address alone (`/32`), a route to the gateway and a default route by it. So a packet between two pods of
//! the node is sent to the machine, which routes it: it passes the rules of the family `ip` as any other packet does, whether
//! or not the kernel passes bridged frames to them (`br_netfilter`). [`super::source_guard`] keeps pods from sending frames to
//! each other. `IFLA_BRPORT_ISOLATED` is not set: with `br_netfilter` the bridge itself forwards a packet whose destination
//! was translated to another of its ports, and would drop it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use super::namespaces::VethPair;
use super::source_guard::HardwareAddress;

/// The interface in the pod.
const INSIDE: &str = "eth0";

/// A line to the kernel's networking, of the network namespace that it was opened in.
pub(crate) struct Wire(Socket);

impl Wire {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends a request to the kernel, and waits for its result.
    fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = 1;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.0.send(&buffer, 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }

    fn link_up(&self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
    }

    fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(address)),
            AddressAttribute::Address(IpAddr::V4(address)),
        ];
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Creates the bridge with the gateway address of pods, unless it exists. Returns its index.
    pub(crate) fn make_bridge(&self, name: &str, gateway: Ipv4Addr, prefix: u8) -> io::Result<u32> {
        let mut link = LinkMessage::default();
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        unless_there(self.ask(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL))?;
        let index = if_nametoindex(name)?;
        unless_there(self.add_address(index, gateway, prefix))?;
        self.link_up(index)?;
        Ok(index)
    }

    /// Gives an interface one more address, unless it has it.
    pub(super) fn ensure_address(&self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        unless_there(self.add_address(index, address, 32))
    }

    /// Removes an interface, if it exists; the other end of a veth pair is removed with it.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        match self.ask(RouteNetlinkMessage::DelLink(link), 0) {
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(()),
            done => done,
        }
    }

    /// Adds a veth pair from the bridge of this index into a network namespace.
    pub(super) fn add_veth(&self, pair: &VethPair, into: BorrowedFd<'_>) -> io::Result<()> {
        let mtu = pair.mtu.map(LinkAttribute::Mtu);
        let mut inside = LinkMessage::default();
        inside.attributes = vec![
            LinkAttribute::IfName(INSIDE.to_owned()),
            LinkAttribute::Address(pair.hardware.to_vec()),
            LinkAttribute::NetNsFd(into.as_raw_fd()),
        ];
        inside.attributes.extend(mtu.clone());
        let mut link = LinkMessage::default();
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = vec![
            LinkAttribute::IfName(pair.name.clone()),
            LinkAttribute::Controller(pair.bridge),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(inside))),
            ]),
        ];
        link.attributes.extend(mtu);
        self.ask(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Has the bridge return a pod's own packets to it. Where the kernel passes bridged packets to netfilter
    /// (`br_netfilter`), a connection that is translated to the pod that made it does not leave the bridge.
    pub(super) fn hairpin(&self, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::PortKind(InfoPortKind::Bridge),
                LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(true)])),
            ]),
        ];
        self.ask(RouteNetlinkMessage::NewLink(link), 0)
    }

    /// Gives a bridge the hardware address that it has. The kernel otherwise changes it when ports are added and removed,
    /// and pods would send to the one before until their ARP caches expire.
    pub(super) fn keep_hardware_address(&self, index: u32, address: HardwareAddress) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Address(address.to_vec())];
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Sets a pod's end up: to be called on a wire and a thread in the pod's namespace.
    pub(super) fn connect_pod(&self, address: Ipv4Addr, gateway: Ipv4Addr) -> io::Result<()> {
        self.loopback_up()?;
        let index = if_nametoindex(INSIDE)?;
        self.add_address(index, address, 32)?;
        self.link_up(index)?;
        self.add_route(link_route(index, gateway, 32))?;
        let mut route = route(index);
        route.header.scope = RouteScope::Universe;
        route.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(gateway)));
        self.add_route(route)?;
        refuse_redirects();
        Ok(())
    }

    /// Has a pod that was connected by an older version send everything to the gateway: to be called on a wire and a thread
    /// in the pod's namespace. It has its address in the network of all pods, and a route to that by its interface. The
    /// address stays, and so do connections.
    pub(super) fn route_pod(&self, network: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> io::Result<()> {
        let index = if_nametoindex(INSIDE)?;
        // First, or the pod would have no route to the gateway.
        unless_there(self.add_route(link_route(index, gateway, 32)))?;
        let mut old = link_route(index, network, prefix);
        // Any scope, and that of any protocol: the kernel itself has made it with the address.
        old.header.scope = RouteScope::NoWhere;
        old.header.protocol = RouteProtocol::Unspec;
        old.header.kind = RouteType::Unspec;
        match self.ask(RouteNetlinkMessage::DelRoute(old), 0) {
            Err(error) if error.raw_os_error() != Some(Errno::ESRCH as i32) => return Err(error),
            _ => {}
        }
        refuse_redirects();
        Ok(())
    }

    fn add_route(&self, route: RouteMessage) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The loopback interface, in the namespace of this wire and thread.
    fn loopback_up(&self) -> io::Result<()> {
        self.link_up(if_nametoindex("lo")?)
    }
}

/// A route of the main table by the interface of this index.
fn route(index: u32) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.table = RouteHeader::RT_TABLE_MAIN;
    route.header.protocol = RouteProtocol::Static;
    route.header.kind = RouteType::Unicast;
    route.attributes = vec![RouteAttribute::Oif(index)];
    route
}

/// A route to what is on the link of an interface.
fn link_route(index: u32, network: Ipv4Addr, prefix: u8) -> RouteMessage {
    let mut route = route(index);
    route.header.scope = RouteScope::Link;
    route.header.destination_prefix_length = prefix;
    route.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(network)));
    route
}

/// Has the network namespace of the calling thread ignore ICMP redirects. Routes to other pods of the node would lead past
/// the machine, where their packets are dropped. The machine sends no redirects, so that a namespace whose sysctls cannot be
/// written is good enough.
fn refuse_redirects() {
    for interface in ["all", INSIDE] {
        let refused = set_sysctl(&format!("net/ipv4/conf/{interface}/accept_redirects"), "0");
        if let Err(error) = refused {
            tracing::debug!(%error, "a pod accepts ICMP redirects");
        }
    }
}

/// Sets a sysctl in the network namespace of the calling thread, unless it has the value.
pub(super) fn set_sysctl(sysctl: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/{sysctl}");
    if fs::read_to_string(&path).is_ok_and(|found| found.trim() == value) {
        return Ok(());
    }
    let named = |error: io::Error| io::Error::new(error.kind(), format!("setting {path}: {error}"));
    fs::write(&path, value).map_err(named)
}

/// The hardware address of a pod's interface, in the network namespace of the calling thread.
pub(super) fn pod_hardware_address() -> io::Result<HardwareAddress> {
    hardware_address_of(INSIDE)
}

/// The hardware address of an interface, in the network namespace of the calling thread.
pub(super) fn hardware_address_of(name: &str) -> io::Result<HardwareAddress> {
    let mut own = getifaddrs()?.filter(|interface| interface.interface_name == name);
    let found = own.find_map(|interface| interface.address?.as_link_addr()?.addr());
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no interface {name}")))
}

fn unless_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(()),
        done => done,
    }
}

/// The addresses of a node's pods.
#[derive(Debug)]
pub(super) struct Addresses {
    network: u32,
    prefix: u8,
    used: BTreeSet<u32>,
    /// The next address of the search, so that a released address is not reused at once.
    next: u32,
}

impl Addresses {
    pub(super) fn new(network: Ipv4Addr, prefix: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        Self { network: u32::from(network) & mask, prefix, used: BTreeSet::new(), next: 2 }
    }

    pub(super) fn prefix(&self) -> u8 {
        self.prefix
    }

    pub(super) fn network(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.network)
    }

    /// The first address: the bridge's.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// How many addresses there are, the network's own and the broadcast among them.
    fn size(&self) -> u32 {
        1u32.checked_shl(32 - u32::from(self.prefix)).unwrap_or(u32::MAX)
    }

    /// A free one, if there is any.
    pub(super) fn take(&mut self) -> Option<Ipv4Addr> {
        let pods = self.size().saturating_sub(3);
        for _ in 0..pods {
            let offset = self.next;
            self.next = if offset + 2 >= self.size() { 2 } else { offset + 1 };
            if self.used.insert(self.network + offset) {
                return Some(Ipv4Addr::from(self.network + offset));
            }
        }
        None
    }

    /// Marks one as used: it was found so.
    pub(super) fn keep(&mut self, address: Ipv4Addr) {
        self.used.insert(u32::from(address));
    }

    pub(super) fn release(&mut self, address: Ipv4Addr) {
        self.used.remove(&u32::from(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_allocated_once_and_run_out() {
        let mut addresses = Addresses::new(Ipv4Addr::new(10, 1, 2, 0), 29);
        assert_eq!(addresses.gateway(), Ipv4Addr::new(10, 1, 2, 1));
        addresses.keep(Ipv4Addr::new(10, 1, 2, 3));
        let taken: Vec<_> =
            std::iter::from_fn(|| addresses.take()).map(|address| address.octets()[3]).collect();
        assert_eq!(taken, [2, 4, 5, 6]);
        addresses.release(Ipv4Addr::new(10, 1, 2, 4));
        assert_eq!(addresses.take(), Some(Ipv4Addr::new(10, 1, 2, 4)));
        assert_eq!(addresses.take(), None);
    }
}
