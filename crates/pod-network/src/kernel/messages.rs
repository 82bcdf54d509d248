//! The messages of the kernel, and what is read from them.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, InfoVxlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use plumb_validation::network::Ipv4Network;

/// The protocol of our routes, by which they are known. No routing program of `rt_protos` has it.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(80);

/// A tunnel interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub(super) id: u32,
    pub(super) port: u16,
    /// The address that it sends from.
    pub(super) local: Ipv4Addr,
    pub(super) hardware: [u8; 6],
    pub(super) mtu: u32,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) is_up: bool,
    /// What it is as a tunnel, if it is one that does not learn.
    pub(super) tunnel: Option<Tunnel>,
}

/// A route of ours, besides its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) via: Ipv4Addr,
    pub(super) link: u32,
    /// The address that this machine sends from.
    pub(super) source: Option<Ipv4Addr>,
}

/// Where frames to a hardware address are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ForwardingEntry {
    pub(super) hardware: [u8; 6],
    pub(super) peer: Ipv4Addr,
}

/// The hardware address of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Neighbour {
    pub(super) address: Ipv4Addr,
    pub(super) hardware: [u8; 6],
}

pub(super) fn get_interfaces() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetLink(LinkMessage::default())
}

pub(super) fn interface(message: RouteNetlinkMessage) -> Option<Interface> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut found = Interface {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        tunnel: None,
    };
    let mut hardware = None;
    let mut parameters = None;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name = name,
            LinkAttribute::Mtu(mtu) => found.mtu = mtu,
            LinkAttribute::Address(address) => hardware = address.try_into().ok(),
            LinkAttribute::LinkInfo(all) => parameters = all.into_iter().find_map(vxlan),
            _ => {}
        }
    }
    if let (Some(hardware), Some((id, port, local))) = (hardware, parameters) {
        found.tunnel = Some(Tunnel { id, port, local, hardware, mtu: found.mtu });
    }
    Some(found)
}

/// The id, the port and the local address of a VXLAN interface that does not learn.
fn vxlan(info: LinkInfo) -> Option<(u32, u16, Ipv4Addr)> {
    let LinkInfo::Data(InfoData::Vxlan(all)) = info else { return None };
    let (mut id, mut port, mut local) = (None, None, None);
    for parameter in all {
        match parameter {
            InfoVxlan::Id(found) => id = Some(found),
            InfoVxlan::Port(found) => port = Some(found),
            InfoVxlan::Local(found) => local = Some(found),
            InfoVxlan::Learning(true) => return None,
            _ => {}
        }
    }
    Some((id?, port?, local?))
}

pub(super) fn new_tunnel(name: &str, tunnel: Tunnel) -> RouteNetlinkMessage {
    let mut link = link();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Address(tunnel.hardware.to_vec()),
        LinkAttribute::Mtu(tunnel.mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(vec![
                InfoVxlan::Id(tunnel.id),
                InfoVxlan::Port(tunnel.port),
                InfoVxlan::Local(tunnel.local),
                InfoVxlan::Learning(false),
            ])),
        ]),
    ];
    RouteNetlinkMessage::NewLink(link)
}

pub(super) fn delete_interface(name: &str) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    RouteNetlinkMessage::DelLink(link)
}

pub(super) fn get_addresses() -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    RouteNetlinkMessage::GetAddress(message)
}

/// The index of the interface, the address and the length of its prefix.
pub(super) fn address(message: RouteNetlinkMessage) -> Option<(u32, Ipv4Addr, u8)> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    // `IFA_ADDRESS` is the other end of a point-to-point interface, and the same elsewhere.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
        _ => None,
    });
    Some((message.header.index, local?, message.header.prefix_len))
}

pub(super) fn new_address(index: u32, address: Ipv4Addr, prefix: u8) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = index;
    message.attributes =
        vec![AddressAttribute::Local(IpAddr::V4(address)), AddressAttribute::Address(IpAddr::V4(address))];
    RouteNetlinkMessage::NewAddress(message)
}

/// A link that is up.
fn link() -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

pub(super) fn set_up(index: u32) -> RouteNetlinkMessage {
    let mut link = link();
    link.header.index = index;
    RouteNetlinkMessage::SetLink(link)
}

/// Has a bridge send frames of its port back to the port.
pub(super) fn hairpin(index: u32) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(true)])),
    ])];
    RouteNetlinkMessage::NewLink(link)
}

pub(super) fn new_bridge(name: &str) -> RouteNetlinkMessage {
    let mut link = link();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    RouteNetlinkMessage::NewLink(link)
}

pub(super) fn new_veth(
    name: &str,
    bridge: u32,
    inside: &str,
    namespace: BorrowedFd<'_>,
) -> RouteNetlinkMessage {
    let mut peer = LinkMessage::default();
    peer.attributes =
        vec![LinkAttribute::IfName(inside.to_owned()), LinkAttribute::NetNsFd(namespace.as_raw_fd())];
    let mut link = link();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Controller(bridge),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    RouteNetlinkMessage::NewLink(link)
}

pub(super) fn default_route(gateway: Ipv4Addr) -> RouteNetlinkMessage {
    let mut message = route_header();
    message.header.protocol = RouteProtocol::Static;
    message.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway))];
    RouteNetlinkMessage::NewRoute(message)
}

fn route_header() -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = PROTOCOL;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message
}

pub(super) fn get_routes() -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.protocol = PROTOCOL;
    RouteNetlinkMessage::GetRoute(message)
}

pub(super) fn new_route(network: Ipv4Network, route: KernelRoute, metric: u32) -> RouteNetlinkMessage {
    let mut message = route_header();
    message.header.destination_prefix_length = network.prefix();
    // The gateway of a tunnel is in no network of the interface.
    message.header.flags = RouteFlags::Onlink;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(network.address())),
        RouteAttribute::Gateway(RouteAddress::Inet(route.via)),
        RouteAttribute::Oif(route.link),
        RouteAttribute::Priority(metric),
    ];
    let source = route.source.map(|source| RouteAttribute::PrefSource(RouteAddress::Inet(source)));
    message.attributes.extend(source);
    RouteNetlinkMessage::NewRoute(message)
}

pub(super) fn delete_route(network: Ipv4Network, route: KernelRoute, metric: u32) -> RouteNetlinkMessage {
    match new_route(network, route, metric) {
        RouteNetlinkMessage::NewRoute(mut message) => {
            message.header.flags = RouteFlags::empty();
            RouteNetlinkMessage::DelRoute(message)
        }
        other => other,
    }
}

/// A route of ours with this metric.
pub(super) fn route(message: &RouteNetlinkMessage, metric: u32) -> Option<(Ipv4Network, KernelRoute)> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    if message.header.protocol != PROTOCOL || message.header.address_family != AddressFamily::Inet {
        return None;
    }
    let (mut to, mut via, mut link, mut source, mut priority) = (None, None, None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = Some(*address),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => via = Some(*address),
            RouteAttribute::PrefSource(RouteAddress::Inet(address)) => source = Some(*address),
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Priority(found) => priority = *found,
            _ => {}
        }
    }
    let network = Ipv4Network::new(to?, message.header.destination_prefix_length);
    (priority == metric).then_some((network, KernelRoute { via: via?, link: link?, source }))
}

fn neighbour_message(family: AddressFamily, tunnel: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = tunnel;
    message.header.state = NeighbourState::Permanent;
    message
}

/// A request for the entries of an interface: the filter is an attribute, and other fields of the header must be empty.
fn get_of(family: AddressFamily, tunnel: u32) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.attributes = vec![NeighbourAttribute::IfIndex(tunnel)];
    RouteNetlinkMessage::GetNeighbour(message)
}

pub(super) fn get_forwarding_entries(tunnel: u32) -> RouteNetlinkMessage {
    // For bridges the interface is in the header (`valid_fdb_dump_strict`).
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = tunnel;
    RouteNetlinkMessage::GetNeighbour(message)
}

pub(super) fn get_neighbours(tunnel: u32) -> RouteNetlinkMessage {
    get_of(AddressFamily::Inet, tunnel)
}

fn forwarding_message(tunnel: u32, entry: ForwardingEntry) -> NeighbourMessage {
    let mut message = neighbour_message(AddressFamily::Bridge, tunnel);
    message.header.flags = NeighbourFlags::Own;
    message.attributes = vec![
        NeighbourAttribute::LinkLayerAddress(entry.hardware.to_vec()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet(entry.peer)),
    ];
    message
}

pub(super) fn new_forwarding_entry(tunnel: u32, entry: ForwardingEntry) -> RouteNetlinkMessage {
    RouteNetlinkMessage::NewNeighbour(forwarding_message(tunnel, entry))
}

pub(super) fn delete_forwarding_entry(tunnel: u32, entry: ForwardingEntry) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelNeighbour(forwarding_message(tunnel, entry))
}

fn arp_message(tunnel: u32, neighbour: Neighbour) -> NeighbourMessage {
    let mut message = neighbour_message(AddressFamily::Inet, tunnel);
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(neighbour.address)),
        NeighbourAttribute::LinkLayerAddress(neighbour.hardware.to_vec()),
    ];
    message
}

pub(super) fn new_neighbour(tunnel: u32, neighbour: Neighbour) -> RouteNetlinkMessage {
    RouteNetlinkMessage::NewNeighbour(arp_message(tunnel, neighbour))
}

pub(super) fn delete_neighbour(tunnel: u32, neighbour: Neighbour) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelNeighbour(arp_message(tunnel, neighbour))
}

/// The addresses of a permanent entry of an interface.
fn entry(message: &RouteNetlinkMessage, tunnel: u32) -> Option<(Ipv4Addr, [u8; 6])> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
    if message.header.ifindex != tunnel || message.header.state != NeighbourState::Permanent {
        return None;
    }
    let hardware = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(address) => address.as_slice().try_into().ok(),
        _ => None,
    });
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(*address),
        // In the family of bridges it has the form of bytes.
        NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
            <[u8; 4]>::try_from(bytes.as_slice()).ok().map(Ipv4Addr::from)
        }
        _ => None,
    });
    Some((address?, hardware?))
}

pub(super) fn forwarding_entry(message: &RouteNetlinkMessage, tunnel: u32) -> Option<ForwardingEntry> {
    entry(message, tunnel).map(|(peer, hardware)| ForwardingEntry { hardware, peer })
}

pub(super) fn neighbour(message: &RouteNetlinkMessage, tunnel: u32) -> Option<Neighbour> {
    entry(message, tunnel).map(|(address, hardware)| Neighbour { address, hardware })
}
