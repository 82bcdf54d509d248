//! A machine with an agent that routes, and a pod behind its bridge.
//!
//! ```text
//!   machine a: eth0 192.0.2.1/24 ──── veth ──── eth0 192.0.2.2/24 :machine b
//!              plumba 10.66.0.1/24               plumbb 10.66.1.1/24
//!              (a second address is a pod)
//! ```

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::mpsc;
use std::thread::JoinHandle;

use kube::Client;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use plumb_pod_network::Config;
use plumb_supervise::Supervisor;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace.
pub(crate) struct Namespace(File);

impl Namespace {
    /// A new one, with its loopback up.
    pub(crate) fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            link_up("lo");
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Self(made.join().unwrap())
    }

    /// Does something in it, on a thread of its own.
    pub(crate) fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }
}

/// A machine: a namespace with an interface to others, and the bridge of its pods.
pub(crate) struct Machine {
    pub(crate) namespace: Namespace,
    pub(crate) pod: Namespace,
    /// The address of its pod.
    pub(crate) pod_address: Ipv4Addr,
}

impl Machine {
    /// A machine with a bridge of this name and address, and a pod behind it whose interface has this MTU.
    pub(crate) fn new(bridge: &str, gateway: Ipv4Addr, pod_mtu: u32) -> Self {
        let (namespace, pod) = (Namespace::new(), Namespace::new());
        let [a, b, c, _] = gateway.octets();
        let pod_address = Ipv4Addr::new(a, b, c, 7);
        namespace.within(|| {
            add_link(vec![
                LinkAttribute::IfName(bridge.to_owned()),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
            ]);
            add_address(bridge, gateway, 24);
            add_veth("pod", &pod, "eth0", pod_mtu, Some(if_nametoindex(bridge).unwrap()));
        });
        pod.within(|| {
            add_address("eth0", pod_address, 24);
            add_default_route(gateway);
        });
        Self { namespace, pod, pod_address }
    }

    /// Connects two machines by a link.
    pub(crate) fn connect(&self, own: (Ipv4Addr, u8), other: &Self, theirs: (Ipv4Addr, u8)) {
        self.namespace.within(|| {
            add_veth("eth0", &other.namespace, "eth0", 1500, None);
            add_address("eth0", own.0, own.1);
        });
        other.namespace.within(|| add_address("eth0", theirs.0, theirs.1));
    }

    /// Adds a route to a machine that is not a neighbour by its prefix, and still on the link.
    pub(crate) fn route_to(&self, peer: Ipv4Addr) {
        self.namespace.within(|| {
            let mut message = route();
            message.header.scope = RouteScope::Link;
            message.header.destination_prefix_length = 32;
            message.attributes = vec![
                RouteAttribute::Destination(RouteAddress::Inet(peer)),
                RouteAttribute::Oif(if_nametoindex("eth0").unwrap()),
            ];
            change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL);
        });
    }

    /// Adds a route to an address, which takes precedence over those of the agent.
    pub(crate) fn add_route(&self, to: Ipv4Addr, via: Ipv4Addr, interface: &str) {
        self.namespace.within(|| {
            let mut message = route();
            message.header.destination_prefix_length = 32;
            message.header.flags = RouteFlags::Onlink;
            message.attributes = vec![
                RouteAttribute::Destination(RouteAddress::Inet(to)),
                RouteAttribute::Gateway(RouteAddress::Inet(via)),
                RouteAttribute::Oif(if_nametoindex(interface).unwrap()),
            ];
            change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL);
        });
    }

    /// Another machine on a link of its own, with these addresses.
    pub(crate) fn connect_outside(&self, own: Ipv4Addr, addresses: &[Ipv4Addr]) -> Namespace {
        let outside = Namespace::new();
        self.namespace.within(|| {
            add_veth("eth9", &outside, "eth0", 1500, None);
            add_address("eth9", own, 24);
        });
        outside.within(|| {
            for address in addresses {
                let is_neighbour = address.octets()[..3] == own.octets()[..3];
                add_address("eth0", *address, if is_neighbour { 24 } else { 32 });
            }
            add_default_route(own);
        });
        outside
    }

    /// Runs the agent's part on it.
    pub(crate) fn route(&self, config: Config, client: Client) -> Agent {
        let namespace = self.namespace.0.try_clone().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            // Its threads are in the namespace of the one that starts them.
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let supervisor = Supervisor::default();
                tokio::select! {
                    () = config.run(client, &supervisor) => {}
                    _ = stopped => {}
                }
            });
        });
        Agent { _stop: stop, thread: Some(thread) }
    }

    /// The destinations of its routes with our protocol.
    pub(crate) fn routes(&self) -> Vec<String> {
        self.namespace.within(|| {
            let mut request = RouteMessage::default();
            request.header.address_family = AddressFamily::Inet;
            let mut found = Vec::new();
            for message in dump(RouteNetlinkMessage::GetRoute(request)) {
                let RouteNetlinkMessage::NewRoute(message) = message else { continue };
                if u8::from(message.header.protocol) != 80 {
                    continue;
                }
                let destination = message.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(*address),
                    _ => None,
                });
                found.push(format!("{}/{}", destination.unwrap(), message.header.destination_prefix_length));
            }
            found.sort();
            found
        })
    }

    /// Whether it has an interface.
    pub(crate) fn has_interface(&self, name: &str) -> bool {
        self.namespace.within(|| if_nametoindex(name).is_ok())
    }

    /// The MTU of an interface.
    pub(crate) fn mtu(&self, name: &str) -> Option<u32> {
        self.namespace.within(|| {
            dump(RouteNetlinkMessage::GetLink(LinkMessage::default())).into_iter().find_map(|message| {
                let RouteNetlinkMessage::NewLink(message) = message else { return None };
                let is_it = message.attributes.contains(&LinkAttribute::IfName(name.to_owned()));
                message.attributes.into_iter().find_map(|attribute| match attribute {
                    LinkAttribute::Mtu(mtu) if is_it => Some(mtu),
                    _ => None,
                })
            })
        })
    }

    /// Whether it forwards packets.
    pub(crate) fn forwards(&self) -> bool {
        self.namespace.within(|| fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap().trim() == "1")
    }
}

/// A running agent; it ends when this is dropped, and what it made stays.
pub(crate) struct Agent {
    _stop: tokio::sync::oneshot::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Ends it.
    pub(crate) fn stop(mut self) {
        let thread = self.thread.take();
        drop(self);
        thread.unwrap().join().unwrap();
    }
}

fn link_up(name: &str) {
    let mut link = LinkMessage::default();
    link.header.index = if_nametoindex(name).unwrap();
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    change(RouteNetlinkMessage::SetLink(link), 0);
}

fn add_link(attributes: Vec<LinkAttribute>) {
    let mut link = LinkMessage::default();
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes = attributes;
    change(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL);
}

/// A veth pair into another namespace, where its end is set up too.
fn add_veth(name: &str, into: &Namespace, peer: &str, mtu: u32, bridge: Option<u32>) {
    let mut inside = LinkMessage::default();
    inside.attributes = vec![
        LinkAttribute::IfName(peer.to_owned()),
        LinkAttribute::NetNsFd(into.0.as_raw_fd()),
        LinkAttribute::Mtu(mtu),
    ];
    let mut attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(inside))),
        ]),
    ];
    attributes.extend(bridge.map(LinkAttribute::Controller));
    add_link(attributes);
    into.within(|| link_up(peer));
}

fn add_address(name: &str, address: Ipv4Addr, prefix: u8) {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = if_nametoindex(name).unwrap();
    message.attributes =
        vec![AddressAttribute::Local(address.into()), AddressAttribute::Address(address.into())];
    change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL);
}

/// A route of the main table.
fn route() -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message
}

fn add_default_route(gateway: Ipv4Addr) {
    let mut message = route();
    message.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway))];
    change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL);
}

fn send(message: RouteNetlinkMessage, flags: u16) -> Socket {
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    socket.send(&buffer, 0).unwrap();
    socket
}

fn change(message: RouteNetlinkMessage, flags: u16) {
    let socket = send(message.clone(), NLM_F_ACK | flags);
    let (answer, _) = socket.recv_from_full().unwrap();
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).unwrap();
    if let NetlinkPayload::Error(error) = answer.payload {
        assert!(error.code.is_none(), "{message:?}: {}", error.to_io());
    }
}

fn dump(request: RouteNetlinkMessage) -> Vec<RouteNetlinkMessage> {
    let socket = send(request, NLM_F_DUMP);
    let mut found = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full().unwrap();
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).unwrap();
            let length = usize::try_from(message.header.length).unwrap().next_multiple_of(4);
            match message.payload {
                NetlinkPayload::InnerMessage(message) => found.push(message),
                NetlinkPayload::Done(_) => return found,
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// A server in a pod: it counts the bytes of its first connection, and says who called.
pub(crate) fn serve(
    namespace: &Namespace,
    address: Ipv4Addr,
    port: u16,
) -> mpsc::Receiver<(Ipv4Addr, usize)> {
    use std::io::Read as _;
    let (sender, receiver) = mpsc::channel();
    let listener = namespace.within(|| std::net::TcpListener::bind((address, port)).unwrap());
    std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let std::net::IpAddr::V4(peer) = peer.ip() else { return };
        // The test may have failed meanwhile.
        let _ = sender.send((peer, all.len()));
    });
    receiver
}
