//! The network of pods: the way out, and host ports, with the rules of a real kernel.
//!
//! Each test has a network namespace of its own, which is the machine: rules and sysctls of the real one stay as they are.
//! What is outside is a pod of another cluster on that machine, which is on another network.

mod link_local;
mod routed;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use plumb_runtime::service_nat::{LocalService, ServiceNat};
use plumb_runtime::types::{PortMapping, Protocol, SandboxId};
use plumb_runtime::{Error, Runtime as _};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::node::{Node, TIMEOUT};

/// Runs a test in a network namespace of its own, with all its threads.
fn on_own_machine(test: impl AsyncFnOnce() + Send + 'static) {
    let run = move || {
        if !rustix::process::geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::ROOT, "network namespaces need root");
            return;
        }
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        loopback_up();
        // Threads that it starts are in the namespace of the thread that starts them: this one.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(test());
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

fn loopback_up() {
    let mut link = LinkMessage::default();
    link.header.index = 1;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    route(RouteNetlinkMessage::SetLink(link), 0);
}

/// A pod without containers.
struct Pod {
    id: SandboxId,
    address: Ipv4Addr,
    network: File,
}

impl Pod {
    async fn run(node: &Node, name: &str, ports: &[PortMapping]) -> Result<Self, Error> {
        let mut config = node.sandbox_config(name);
        config.port_mappings = ports.to_vec();
        let id = node.runtime.run_sandbox(config).await?;
        let status = node.runtime.sandbox_status(&id).await?;
        let Some(IpAddr::V4(address)) = status.ips.first().copied() else { panic!("{status:?}") };
        let network = node.folder.path().join("data/runtime/sandboxes").join(id.as_str()).join("net");
        Ok(Self { id, address, network: File::open(network).unwrap() })
    }

    /// The machine's address on the bridge of the pod.
    fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }

    /// Does something in the pod's network.
    fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    fn listen(&self, port: u16) -> TcpListener {
        self.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.within(|| TcpStream::connect_timeout(&to, TIMEOUT))
    }
}

fn tcp(host_port: u16, container_port: u16) -> PortMapping {
    PortMapping { protocol: Protocol::Tcp, container_port, host_port, host_ip: None }
}

/// Accepts a connection, which must come in time.
fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            accepted => return accepted.unwrap(),
        }
    }
}

/// Who a listener was called by, for a connection that was made.
fn caller(listener: &TcpListener, connected: io::Result<TcpStream>) -> IpAddr {
    let connection = connected.unwrap();
    let (accepted, peer) = accept(listener);
    assert_eq!(accepted.peer_addr().unwrap().port(), peer.port());
    drop(connection);
    peer.ip()
}

fn masquerading(config: &mut plumb_runtime::builtin::Config) {
    config.masquerade = true;
}

/// Whether the kernel has what the rules need; it is said why if not.
async fn has_rules(test: &str, node: &Node) -> bool {
    match Pod::run(node, "trial", &[tcp(1, 1)]).await {
        Ok(trial) => {
            node.runtime.remove_sandbox(&trial.id).await.unwrap();
            true
        }
        Err(error) => {
            assert!(error.to_string().contains("nf_tables"), "{error}");
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: {error}"));
            false
        }
    }
}

#[test]
fn a_pod_reaches_another_network_with_the_address_of_the_machine() {
    let test = "a_pod_reaches_another_network_with_the_address_of_the_machine";
    on_own_machine(async move || {
        let Some(here) = Node::with(test, masquerading).await else { return };
        let Some(there) = Node::with(test, masquerading).await else { return };
        if !has_rules(test, &here).await {
            return;
        }
        let (pod, outside) =
            (Pod::run(&here, "a", &[]).await.unwrap(), Pod::run(&there, "b", &[]).await.unwrap());
        let listener = outside.listen(80);
        let called_by = caller(&listener, pod.connect((outside.address, 80).into()));
        assert_eq!(called_by, outside.gateway());
        // Pods of one network see each other as they are.
        let other = Pod::run(&here, "c", &[]).await.unwrap();
        let listener = other.listen(80);
        assert_eq!(caller(&listener, pod.connect((other.address, 80).into())), pod.address);
        // What another cluster removes is its own.
        there.end().await;
        assert_eq!(caller(&listener, pod.connect((other.address, 80).into())), pod.address);
        here.end().await;
    });
}

#[test]
fn without_masquerade_pods_reach_other_networks_only_where_the_machine_is_a_router() {
    let test = "without_masquerade_pods_reach_other_networks_only_where_the_machine_is_a_router";
    on_own_machine(async move || {
        let forwarding = "/proc/sys/net/ipv4/ip_forward";
        // A new namespace may have what the machine has.
        fs::write(forwarding, "0").unwrap();
        let Some(here) = Node::new(test).await else { return };
        let Some(there) = Node::new(test).await else { return };
        if !has_rules(test, &here).await {
            return;
        }
        let (pod, outside) =
            (Pod::run(&here, "a", &[]).await.unwrap(), Pod::run(&there, "b", &[]).await.unwrap());
        let other = Pod::run(&here, "c", &[]).await.unwrap();
        let listener = other.listen(80);
        assert_eq!(caller(&listener, pod.connect((other.address, 80).into())), pod.address);
        let outer = outside.listen(80);
        let to = SocketAddr::from((outside.address, 80));
        let connect = || pod.within(|| TcpStream::connect_timeout(&to, Duration::from_millis(300)));
        connect().unwrap_err();
        assert_eq!(fs::read_to_string(forwarding).unwrap().trim(), "0");
        // An administrator makes it a router; what is outside routes the pod network to it. And back.
        let watching = tokio::spawn(here.runtime.watch_network());
        tokio::task::yield_now().await;
        let becomes = async |to: SocketAddr, is_reached: bool| {
            let connect = || pod.within(|| TcpStream::connect_timeout(&to, Duration::from_millis(300)));
            let changed = async {
                loop {
                    let connected = connect();
                    if connected.is_ok() == is_reached {
                        return connected;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(TIMEOUT, changed).await.unwrap()
        };
        fs::write(forwarding, "1").unwrap();
        assert_eq!(caller(&outer, becomes(to, true).await), pod.address);
        // This sets the bridge's to 0, too.
        fs::write(forwarding, "0").unwrap();
        let other = SocketAddr::from((other.address, 80));
        assert_eq!(caller(&listener, becomes(other, true).await), pod.address);
        becomes(to, false).await.unwrap_err();
        watching.abort();
        here.end().await;
        there.end().await;
    });
}

#[test]
fn a_host_port_reaches_the_pod_from_everywhere() {
    let test = "a_host_port_reaches_the_pod_from_everywhere";
    on_own_machine(async move || {
        let Some(here) = Node::with(test, masquerading).await else { return };
        let Some(there) = Node::with(test, masquerading).await else { return };
        if !has_rules(test, &here).await {
            return;
        }
        let web = Pod::run(&here, "web", &[tcp(8080, 80)]).await.unwrap();
        let (other, outside) =
            (Pod::run(&here, "a", &[]).await.unwrap(), Pod::run(&there, "b", &[]).await.unwrap());
        let listener = web.listen(80);
        let machine = |address: Ipv4Addr| SocketAddr::from((address, 8080));
        let gateway = machine(web.gateway());
        let table = [
            ("loopback", TcpStream::connect_timeout(&machine(Ipv4Addr::LOCALHOST), TIMEOUT), web.gateway()),
            ("the machine", TcpStream::connect_timeout(&gateway, TIMEOUT), web.gateway()),
            ("another pod", other.connect(gateway), other.address),
            ("itself", web.connect(gateway), web.gateway()),
            ("outside", outside.connect(machine(outside.gateway())), web.gateway()),
        ];
        for (from, connected, expected) in table {
            assert!(connected.is_ok(), "from {from}: {connected:?}");
            assert_eq!(caller(&listener, connected), expected, "from {from}");
        }
        // Other ports of the machine are its own.
        let own = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8081)).unwrap();
        caller(&own, other.connect((web.gateway(), 8081).into()));
        here.end().await;
        TcpStream::connect_timeout(&machine(Ipv4Addr::LOCALHOST), TIMEOUT).unwrap_err();
        there.end().await;
    });
}

#[test]
fn a_host_port_has_a_protocol_and_an_address() {
    let test = "a_host_port_has_a_protocol_and_an_address";
    on_own_machine(async move || {
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        let at = |address: Ipv4Addr, port| PortMapping { host_ip: Some(address.into()), ..tcp(53, port) };
        let local = Pod::run(&node, "local", &[at(Ipv4Addr::LOCALHOST, 1)]).await.unwrap();
        let udp = PortMapping { protocol: Protocol::Udp, ..tcp(53, 2) };
        let names = Pod::run(&node, "names", &[udp, at(local.gateway(), 3)]).await.unwrap();
        let (one, three) = (local.listen(1), names.listen(3));
        caller(&one, TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, 53).into(), TIMEOUT));
        caller(&three, TcpStream::connect_timeout(&(local.gateway(), 53).into(), TIMEOUT));

        let two = names.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 2)).unwrap());
        for address in [Ipv4Addr::LOCALHOST, local.gateway()] {
            let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            for socket in [&client, &two] {
                socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            }
            client.connect((address, 53)).unwrap();
            client.send(b"question").unwrap();
            let mut buffer = [0; 16];
            let (length, from) = two.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"question");
            two.send_to(b"answer", from).unwrap();
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"answer");
        }
        node.end().await;
    });
}

#[test]
fn a_host_port_is_free_again_when_its_pod_ends_and_forwarded_when_the_agent_comes_back() {
    let test = "a_host_port_is_free_again_when_its_pod_ends_and_forwarded_when_the_agent_comes_back";
    on_own_machine(async move || {
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        let port = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let (first, kept) = (
            Pod::run(&node, "first", &[tcp(8080, 80)]).await,
            Pod::run(&node, "kept", &[tcp(8443, 443)]).await,
        );
        let (first, kept) = (first.unwrap(), kept.unwrap());
        let listener = first.listen(80);
        caller(&listener, TcpStream::connect_timeout(&port, TIMEOUT));
        node.runtime.stop_sandbox(&first.id).await.unwrap();
        let refused = TcpStream::connect_timeout(&port, TIMEOUT).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        node.runtime.remove_sandbox(&first.id).await.unwrap();

        // The agent is killed and another one takes up what runs; it knows of no rule but from what runs.
        let folder = node.folder.clone();
        drop(node);
        let node = Node::again(folder).await;
        let still = kept.listen(443);
        caller(&still, TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, 8443).into(), TIMEOUT));
        let second = Pod::run(&node, "second", &[tcp(8080, 81)]).await.unwrap();
        let listener = second.listen(81);
        caller(&listener, TcpStream::connect_timeout(&port, TIMEOUT));
        node.runtime.remove_sandbox(&kept.id).await.unwrap();
        TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, 8443).into(), TIMEOUT).unwrap_err();
        node.end().await;
    });
}

/// An address that the bridge has besides its own.
const SERVICE_OF_ANOTHER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);

#[test]
fn a_port_that_a_process_of_the_machine_listens_on_is_refused() {
    let test = "a_port_that_a_process_of_the_machine_listens_on_is_refused";
    on_own_machine(async move || {
        let Some(node) = Node::with(test, masquerading).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 6443)).unwrap();
        let refused = Pod::run(&node, "a", &[tcp(6443, 80)]).await.err().unwrap();
        assert!(
            refused.to_string().starts_with("cannot open hostport 6443: listening on 127.0.0.1: "),
            "{refused}"
        );
        // One that listens at another address of the machine, and one of UDP.
        let machine = node.runtime.add_bridge_address(SERVICE_OF_ANOTHER).unwrap().gateway;
        let _web = TcpListener::bind((machine, 8080)).unwrap();
        let _names = UdpSocket::bind((machine, 5353)).unwrap();
        for port in [tcp(8080, 80), PortMapping { protocol: Protocol::Udp, ..tcp(5353, 53) }] {
            let refused = Pod::run(&node, "b", std::slice::from_ref(&port)).await.err().unwrap();
            let expected = format!("cannot open hostport {}: listening on {machine}: ", port.host_port);
            assert!(refused.to_string().starts_with(&expected), "{refused}");
        }
        caller(&own, TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, 6443).into(), TIMEOUT));
        // A server of the node on the bridge is in the way of none, and no pod gets its connections.
        let service = Ipv4Addr::new(10, 96, 0, 1);
        node.runtime.add_bridge_address(service).unwrap();
        let own = TcpListener::bind((service, 443)).unwrap();
        let web = Pod::run(&node, "web", &[tcp(443, 80)]).await.unwrap();
        caller(&own, web.connect((service, 443).into()));
        let listener = web.listen(80);
        caller(&listener, web.connect((web.gateway(), 443).into()));
        node.end().await;
    });
}

/// What `nft flush ruleset` sends.
fn flush_ruleset() {
    let message = |kind: u16, flags: u16, sequence: u32, resource: u16| {
        let mut bytes = 20_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes().into_iter().chain(flags.to_ne_bytes()));
        bytes.extend(sequence.to_ne_bytes().into_iter().chain([0; 6]));
        bytes.extend(resource.to_be_bytes());
        bytes
    };
    let delete = message(0xa02, NLM_F_REQUEST | NLM_F_ACK, 1, 0);
    let batch = [message(0x10, NLM_F_REQUEST, 0, 10), delete, message(0x11, NLM_F_REQUEST, 2, 10)].concat();
    let mut socket = Socket::new(NETLINK_NETFILTER).unwrap();
    socket.bind_auto().unwrap();
    socket.send(&batch, 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    assert_eq!(&answer[16..20], [0; 4], "{answer:?}");
}

#[test]
fn rules_that_another_program_flushes_are_made_anew() {
    let test = "rules_that_another_program_flushes_are_made_anew";
    on_own_machine(async move || {
        let Some(node) = Node::with(test, masquerading).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        let web = Pod::run(&node, "web", &[tcp(8080, 80)]).await.unwrap();
        let listener = web.listen(80);
        let port = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        flush_ruleset();
        TcpStream::connect_timeout(&port, TIMEOUT).unwrap_err();
        // The next pod with a host port notices.
        let other = Pod::run(&node, "other", &[tcp(8081, 80)]).await.unwrap();
        caller(&listener, TcpStream::connect_timeout(&port, TIMEOUT));
        // An agent that runs notices by itself.
        let watching = tokio::spawn(node.runtime.watch_network());
        tokio::task::yield_now().await;
        flush_ruleset();
        let reached = async {
            while TcpStream::connect_timeout(&port, TIMEOUT).is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, reached).await.unwrap();
        watching.abort();
        node.runtime.remove_sandbox(&other.id).await.unwrap();
        node.end().await;
    });
}

#[test]
fn a_network_that_no_pod_uses_is_removed_when_the_agent_ends() {
    let test = "a_network_that_no_pod_uses_is_removed_when_the_agent_ends";
    on_own_machine(async move || {
        let Some(node) = Node::with(test, masquerading).await else { return };
        let pod = Pod::run(&node, "a", &[]).await.unwrap();
        let gateway = SocketAddr::from((pod.gateway(), 0));
        node.runtime.release_unused_network().await.unwrap();
        TcpListener::bind(gateway).unwrap();
        node.runtime.remove_sandbox(&pod.id).await.unwrap();
        node.runtime.release_unused_network().await.unwrap();
        TcpListener::bind(gateway).unwrap_err();
        // It is made anew for the next pod.
        Pod::run(&node, "b", &[]).await.unwrap();
        TcpListener::bind(gateway).unwrap();
        node.end().await;
    });
}

/// The address of the Service `kubernetes`, on machines of tests.
const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 443);
/// That of the Service `kube-dns`.
const DNS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 10), 53);
/// The port of the API server.
const API: u16 = 6443;

/// The Services that a machine serves itself.
fn local_services() -> Vec<LocalService> {
    vec![
        LocalService { address: SERVICE, protocol: Protocol::Tcp, port: API },
        LocalService { address: DNS, protocol: Protocol::Udp, port: 53 },
        LocalService { address: DNS, protocol: Protocol::Tcp, port: 53 },
    ]
}

#[test]
fn a_pod_of_a_network_that_is_not_ours_reaches_the_service_and_others_do_not() {
    let test = "a_pod_of_a_network_that_is_not_ours_reaches_the_service_and_others_do_not";
    on_own_machine(async move || {
        // The other network: that of another data directory.
        let Some(there) = Node::with(test, masquerading).await else { return };
        if !has_rules(test, &there).await {
            return;
        }
        let (pod, other) =
            (Pod::run(&there, "a", &[]).await.unwrap(), Pod::run(&there, "b", &[]).await.unwrap());
        let data = tempfile::tempdir().unwrap();
        let open = |pods| ServiceNat::open(data.path(), local_services(), pods).unwrap();
        let nat = Arc::new(open(BTreeMap::new()));
        let endpoint = SocketAddrV4::new(nat.address(), API);
        let listener = TcpListener::bind(endpoint).unwrap();
        let refused = |pod: &Pod| {
            for to in [SERVICE, endpoint] {
                let refused = pod.within(|| TcpStream::connect_timeout(&to.into(), Duration::from_secs(1)));
                refused.unwrap_err();
            }
        };
        refused(&pod);
        nat.add(&pod.id, pod.address).unwrap();
        for to in [SERVICE, endpoint] {
            assert_eq!(caller(&listener, pod.connect(to.into())), IpAddr::V4(pod.address));
        }
        refused(&other);
        // The second Service, by both of its protocols.
        let (datagrams, streams) = {
            let at = SocketAddrV4::new(nat.address(), 53);
            (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap())
        };
        assert_eq!(caller(&streams, pod.connect(DNS.into())), IpAddr::V4(pod.address));
        let client = pod.within(|| {
            let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            client.connect(DNS).unwrap();
            client.send(b"question").unwrap();
            client
        });
        datagrams.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (_, from) = datagrams.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(from.ip(), IpAddr::V4(pod.address));
        datagrams.send_to(b"answer", from).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_eq!(client.recv(&mut [0; 16]).unwrap(), 6);

        // Another agent takes the pods over that run.
        let next = open([(pod.address, pod.id.clone())].into());
        assert_eq!(caller(&listener, pod.connect(SERVICE.into())), IpAddr::V4(pod.address));
        // An address that another sandbox has by now is not the stopped one's to give back.
        next.add(&other.id, pod.address).unwrap();
        next.remove(&pod.id);
        assert_eq!(caller(&listener, pod.connect(SERVICE.into())), IpAddr::V4(pod.address));
        next.release_unused().unwrap();
        assert_eq!(caller(&listener, pod.connect(SERVICE.into())), IpAddr::V4(pod.address));
        next.remove(&other.id);
        refused(&pod);
        next.release_unused().unwrap();
        ServiceNat::clear(data.path()).unwrap();
        TcpListener::bind(endpoint).unwrap_err();
        there.end().await;
    });
}

#[test]
fn rules_of_the_service_that_another_program_removes_are_made_anew() {
    let test = "rules_of_the_service_that_another_program_removes_are_made_anew";
    on_own_machine(async move || {
        let Some(there) = Node::with(test, masquerading).await else { return };
        if !has_rules(test, &there).await {
            return;
        }
        let pod = Pod::run(&there, "a", &[]).await.unwrap();
        let data = tempfile::tempdir().unwrap();
        let pods = [(pod.address, pod.id.clone())].into();
        let nat = Arc::new(ServiceNat::open(data.path(), local_services(), pods).unwrap());
        let watching = tokio::spawn(nat.watch());
        tokio::task::yield_now().await;
        flush_ruleset();
        let listener = TcpListener::bind((nat.address(), API)).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let connected = loop {
            match pod.within(|| TcpStream::connect_timeout(&SERVICE.into(), Duration::from_millis(200))) {
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                connected => break connected,
            }
        };
        assert_eq!(caller(&listener, connected), IpAddr::V4(pod.address));
        watching.abort();
        ServiceNat::clear(data.path()).unwrap();
        there.end().await;
    });
}

/// A message to the kernel's networking, in the network namespace of the calling thread.
fn route(message: RouteNetlinkMessage, flags: u16) {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    socket.send(&buffer, 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    assert_eq!(&answer[16..20], [0; 4], "{answer:?}");
}

impl Pod {
    /// Has the pod's interface take an address, as a process with `NET_ADMIN` or `NET_RAW` can pretend to have.
    fn claim(&self, address: Ipv4Addr) {
        self.within(|| {
            let mut message = AddressMessage::default();
            message.header.family = AddressFamily::Inet;
            message.header.prefix_len = 32;
            message.header.index = if_nametoindex("eth0").unwrap();
            message.attributes =
                vec![AddressAttribute::Local(address.into()), AddressAttribute::Address(address.into())];
            route(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL);
        });
    }

    fn set_hardware_address(&self, address: [u8; 6]) {
        self.within(|| {
            let mut link = LinkMessage::default();
            link.header.index = if_nametoindex("eth0").unwrap();
            link.attributes = vec![LinkAttribute::Address(address.to_vec())];
            route(RouteNetlinkMessage::SetLink(link), 0);
        });
    }

    fn hardware_address(&self) -> [u8; 6] {
        self.within(|| {
            let mut own = nix::ifaddrs::getifaddrs().unwrap().filter(|found| found.interface_name == "eth0");
            own.find_map(|found| found.address?.as_link_addr()?.addr()).unwrap()
        })
    }

    fn udp(&self, address: Ipv4Addr) -> UdpSocket {
        let socket = self.within(|| UdpSocket::bind((address, 53)).unwrap());
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }
}

/// The text and sender of the next packet.
fn received(socket: &UdpSocket) -> (String, IpAddr) {
    let mut buffer = [0; 64];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (String::from_utf8_lossy(&buffer[..length]).into_owned(), from.ip())
}

/// Tries to send with foreign addresses to a pod that listens; only what has the sender's own addresses arrives.
fn cannot_pretend(attacker: &Pod, victim: &Pod, listener: &Pod) {
    let inbox = listener.udp(Ipv4Addr::UNSPECIFIED);
    let to = (listener.address, 53);
    let honest = attacker.udp(attacker.address);
    // The address of another pod.
    attacker.claim(victim.address);
    let forged = attacker.udp(victim.address);
    forged.send_to(b"as another pod", to).unwrap();
    honest.send_to(b"one", to).unwrap();
    assert_eq!(received(&inbox), ("one".to_owned(), attacker.address.into()));
    // The hardware address of another pod: the bridge would send that pod's frames to the attacker.
    let own = attacker.hardware_address();
    attacker.set_hardware_address(victim.hardware_address());
    honest.send_to(b"as another interface", to).unwrap();
    attacker.set_hardware_address(own);
    honest.send_to(b"two", to).unwrap();
    assert_eq!(received(&inbox), ("two".to_owned(), attacker.address.into()));
    // An address that no pod has: the answer to an ARP request for it is forged.
    let [a, b, c, _] = attacker.address.octets();
    let unused = Ipv4Addr::new(a, b, c, 200);
    attacker.claim(unused);
    let _listening = attacker.within(|| TcpListener::bind((unused, 80)).unwrap());
    let reached =
        listener.within(|| TcpStream::connect_timeout(&(unused, 80).into(), Duration::from_secs(1)));
    reached.unwrap_err();
    // The victim is reached as ever.
    let victims = victim.udp(victim.address);
    inbox.send_to(b"hello", (victim.address, 53)).unwrap();
    assert_eq!(received(&victims), ("hello".to_owned(), listener.address.into()));
}

/// `NFPROTO_NETDEV` and `NFPROTO_BRIDGE`.
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;

/// Whether the kernel has a family of nftables: adds a table to it, and removes that again.
fn has_family(family: u8) -> bool {
    let message = |kind: u16, flags: u16, sequence: u32, (family, resource): (u8, u16), rest: &[u8]| {
        let length = u32::try_from(20 + rest.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes().into_iter().chain((NLM_F_REQUEST | flags).to_ne_bytes()));
        bytes.extend(sequence.to_ne_bytes().into_iter().chain([0; 4]).chain([family, 0]));
        bytes.extend(resource.to_be_bytes());
        bytes.extend(rest);
        bytes
    };
    // `NFTA_TABLE_NAME`.
    let name = [&10_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), b"trial\0\0\0"].concat();
    let batch = [
        message(0x10, 0, 0, (0, 10), &[]),
        message(0xa00, NLM_F_CREATE, 1, (family, 0), &name),
        message(0xa02, NLM_F_ACK, 2, (family, 0), &name),
        message(0x11, 0, 3, (0, 10), &[]),
    ];
    let mut socket = Socket::new(NETLINK_NETFILTER).unwrap();
    socket.bind_auto().unwrap();
    socket.send(&batch.concat(), 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    answer[16..20] == [0; 4]
}

#[test]
fn a_pod_sends_with_its_own_addresses_alone() {
    let test = "a_pod_sends_with_its_own_addresses_alone";
    on_own_machine(async move || {
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        if !has_family(BRIDGE) {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: no nftables rules for bridges"));
            return;
        }
        let (attacker, victim, listener) = (
            Pod::run(&node, "attacker", &[]).await.unwrap(),
            Pod::run(&node, "victim", &[]).await.unwrap(),
            Pod::run(&node, "listener", &[]).await.unwrap(),
        );
        cannot_pretend(&attacker, &victim, &listener);
        // Pods that are adopted after a restart of the agent, whose rules another program had removed.
        let adopted = Pod::run(&node, "adopted", &[]).await.unwrap();
        flush_ruleset();
        // Without the rules the attack succeeds.
        let inbox = listener.udp(Ipv4Addr::UNSPECIFIED);
        attacker.udp(victim.address).send_to(b"as another pod", (listener.address, 53)).unwrap();
        assert_eq!(received(&inbox), ("as another pod".to_owned(), victim.address.into()));
        drop(inbox);
        let folder = node.folder.clone();
        drop(node);
        let node = Node::again(folder).await;
        cannot_pretend(&adopted, &victim, &listener);
        node.end().await;
    });
}
