//! What the machine needs besides rules: sysctls, and a route to the addresses of Services.

use std::fs;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use super::service::Network;

/// The interface of the cluster on this machine, and the addresses that are reached by it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) interface: String,
    pub(crate) services: Network,
    /// Whether it forwards packets between all of its interfaces.
    pub(crate) forward: bool,
}

impl Machine {
    /// Sets what is not set yet. It is not set back: other programs may rely on it by then, and the route is removed with its
    /// interface.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        if self.forward {
            enable("net/ipv4/ip_forward")?;
        }
        // The kernel otherwise sends no packet from 127.0.0.1 to a pod. The chain `raw` drops packets that pods would send
        // there.
        enable(&format!("net/ipv4/conf/{}/route_localnet", self.interface))?;
        self.add_route()
    }

    /// Without a route to a Service's address the machine refuses a connection before any rule sees it.
    fn add_route(&self) -> io::Result<()> {
        let index = if_nametoindex(self.interface.as_str())?;
        let (network, prefix) = self.services;
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet;
        route.header.destination_prefix_length = prefix;
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Link;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet(network)),
            RouteAttribute::Oif(index),
            // Another cluster of this machine has the same addresses and its own route, which does not replace this one.
            RouteAttribute::Priority(index),
        ];
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        header.sequence_number = 1;
        let payload = NetlinkPayload::from(RouteNetlinkMessage::NewRoute(route));
        let mut message = NetlinkMessage::new(header, payload);
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.send(&buffer, 0)?;
        let (answer, _) = socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => match error.to_io() {
                error if error.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(()),
                error => Err(io::Error::new(
                    error.kind(),
                    format!("routing {network}/{prefix} to {}: {error}", self.interface),
                )),
            },
            _ => Ok(()),
        }
    }
}

/// Sets a sysctl to 1 in the network namespace of the calling thread, unless it is.
fn enable(sysctl: &str) -> io::Result<()> {
    let path = format!("/proc/sys/{sysctl}");
    if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1") {
        return Ok(());
    }
    let named = |error: io::Error| io::Error::new(error.kind(), format!("setting {path}: {error}"));
    fs::write(&path, "1").map_err(named)
}
