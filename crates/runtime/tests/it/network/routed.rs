//! Packets between pods of a node are routed by the machine.

use std::fs;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockFlag, SockProtocol, SockType, socket};
use plumb_nftables::{Batch, Chain, ChainKind, Expression, Hook, Verdict};

use super::link_local::{DISCOVERY, ETHERTYPE_IPV4, RawSocket, datagram};
use super::{BRIDGE, Pod, caller, has_family, has_rules, on_own_machine, received, route};
use crate::node::{Node, TIMEOUT};

const FORWARD: Chain<'static> =
    Chain { name: "forward", kind: ChainKind::Filter, hook: Hook::Forward, priority: 0 };

/// A firewall that forwards nothing.
fn forward_nothing() {
    let mut batch = Batch::new("firewall");
    batch.add_table();
    batch.add_chain(&FORWARD);
    batch.add_rule(&FORWARD, &[Expression::Verdict(Verdict::Drop)]);
    batch.commit().unwrap();
}

#[test]
fn a_packet_between_two_pods_of_a_node_passes_the_rules_of_the_machine() {
    let test = "a_packet_between_two_pods_of_a_node_passes_the_rules_of_the_machine";
    on_own_machine(async move || {
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        if !has_family(BRIDGE) {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: no nftables rules for bridges"));
            return;
        }
        // Without it frames of the bridge pass no rules for IPv4: what passes them then is routed.
        let _ = fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
        let (one, two) =
            (Pod::run(&node, "one", &[]).await.unwrap(), Pod::run(&node, "two", &[]).await.unwrap());
        let listener = two.listen(80);
        assert_eq!(caller(&listener, one.connect((two.address, 80).into())), one.address);
        forward_nothing();
        let to = (two.address, 80).into();
        one.within(|| TcpStream::connect_timeout(&to, Duration::from_millis(300))).unwrap_err();
        // A process with NET_RAW sends a frame to the other pod itself. What the machine sends afterwards is the first thing
        // that arrives.
        let inbox = two.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DISCOVERY)).unwrap());
        inbox.set_read_timeout(Some(TIMEOUT)).unwrap();
        let raw = RawSocket::open(&one);
        for destination in [two.hardware_address(), [0xff; 6]] {
            let packet = datagram(one.address, two.address, b"past the machine");
            raw.send(destination, one.hardware_address(), ETHERTYPE_IPV4, &packet);
        }
        let machine = UdpSocket::bind((one.gateway(), 0)).unwrap();
        machine.send_to(b"from the machine", (two.address, DISCOVERY)).unwrap();
        assert_eq!(received(&inbox), ("from the machine".to_owned(), one.gateway().into()));
        node.end().await;
    });
}

#[test]
fn the_machine_sends_pods_no_redirects_and_pods_ignore_them() {
    let test = "the_machine_sends_pods_no_redirects_and_pods_ignore_them";
    on_own_machine(async move || {
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        fs::write("/proc/sys/net/ipv4/conf/all/send_redirects", "1").unwrap();
        let (one, two) =
            (Pod::run(&node, "one", &[]).await.unwrap(), Pod::run(&node, "two", &[]).await.unwrap());
        one.within(|| {
            for interface in ["all", "eth0"] {
                let path = format!("/proc/sys/net/ipv4/conf/{interface}/accept_redirects");
                assert_eq!(fs::read_to_string(path).unwrap().trim(), "0");
            }
            let icmp = socket(
                nix::sys::socket::AddressFamily::Inet,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::Icmp,
            )
            .unwrap();
            let client = UdpSocket::bind((one.address, 0)).unwrap();
            client.send_to(b"hello", (two.address, 1)).unwrap();
            let mut wait = [PollFd::new(icmp.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut wait, PollTimeout::try_from(TIMEOUT).unwrap()).unwrap(), 1);
            let mut buffer = [MaybeUninit::uninit(); 256];
            let ((packet, _), _) =
                rustix::net::recv(&icmp, &mut buffer, rustix::net::RecvFlags::empty()).unwrap();
            // After the header of IPv4. A redirect would have come before the answer of the other pod: port unreachable.
            assert_eq!(packet[20..22], [3, 3], "{packet:?}");
        });
        node.end().await;
    });
}

/// Connects a pod as versions before routed pods did: with an address in the network of all pods, which it reaches directly.
fn connect_directly(pod: &Pod) {
    pod.within(|| {
        let index = if_nametoindex("eth0").unwrap();
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 24;
        message.header.index = index;
        message.attributes =
            vec![AddressAttribute::Local(pod.address.into()), AddressAttribute::Address(pod.address.into())];
        route(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL);
        let mut gateway = RouteMessage::default();
        gateway.header.address_family = AddressFamily::Inet;
        gateway.header.destination_prefix_length = 32;
        gateway.header.table = RouteHeader::RT_TABLE_MAIN;
        gateway.header.scope = RouteScope::NoWhere;
        gateway.header.protocol = RouteProtocol::Unspec;
        gateway.header.kind = RouteType::Unspec;
        gateway.attributes =
            vec![RouteAttribute::Oif(index), RouteAttribute::Destination(RouteAddress::Inet(pod.gateway()))];
        route(RouteNetlinkMessage::DelRoute(gateway), 0);
    });
}

#[test]
fn pods_that_an_older_version_has_connected_are_routed_after_an_upgrade() {
    let test = "pods_that_an_older_version_has_connected_are_routed_after_an_upgrade";
    on_own_machine(async move || {
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        let (one, two) =
            (Pod::run(&node, "one", &[]).await.unwrap(), Pod::run(&node, "two", &[]).await.unwrap());
        let listener = two.listen(80);
        let folder = node.folder.clone();
        drop(node);
        for pod in [&one, &two] {
            connect_directly(pod);
            let record =
                folder.path().join("data/runtime/sandboxes").join(pod.id.as_str()).join("sandbox.json");
            let text = fs::read_to_string(&record).unwrap();
            let old = text.replace("\"routed\":true,", "");
            assert_ne!(old, text);
            fs::write(&record, old).unwrap();
        }
        let node = Node::again(folder).await;
        let new = Pod::run(&node, "new", &[]).await.unwrap();
        for client in [&one, &new] {
            assert_eq!(caller(&listener, client.connect((two.address, 80).into())), client.address);
        }
        let listener = new.listen(80);
        assert_eq!(caller(&listener, one.connect((new.address, 80).into())), one.address);
        node.end().await;
    });
}
