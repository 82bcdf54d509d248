//! Frames to link-local addresses: the bridge learns from them, and passes them to the machine, without its rules.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, sendto, socket,
};
use plumb_runtime::Runtime as _;

use super::{NETDEV, Pod, flush_ruleset, has_family, has_rules, on_own_machine};
use crate::node::{Node, TIMEOUT};

/// Link Layer Discovery Protocol.
const LLDP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
const ETHERTYPE_LLDP: [u8; 2] = [0x88, 0xcc];
pub(super) const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
pub(super) const DISCOVERY: u16 = 5000;

/// What a process with `NET_RAW` in the pod sends and receives.
pub(super) struct RawSocket {
    socket: OwnedFd,
    interface: LinkAddr,
}

impl RawSocket {
    pub(super) fn open(pod: &Pod) -> Self {
        pod.within(|| {
            let kind = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Raw, kind, SockProtocol::EthAll).unwrap();
            let mut own = getifaddrs().unwrap().filter(|found| found.interface_name == "eth0");
            let interface = own.find_map(|found| found.address?.as_link_addr().copied()).unwrap();
            bind(socket.as_raw_fd(), &interface).unwrap();
            Self { socket, interface }
        })
    }

    pub(super) fn send(&self, destination: [u8; 6], source: [u8; 6], ethertype: [u8; 2], payload: &[u8]) {
        let mut frame = [&destination[..], &source, &ethertype, payload].concat();
        frame.resize(frame.len().max(60), 0);
        sendto(self.socket.as_raw_fd(), &frame, &self.interface, MsgFlags::empty()).unwrap();
    }

    /// Whether a frame with this text comes before the time is over.
    fn receives(&self, text: &[u8], wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            let mut buffer = [MaybeUninit::uninit(); 2048];
            match rustix::net::recv(&self.socket, &mut buffer, rustix::net::RecvFlags::empty()) {
                Ok(((frame, _), _)) if frame.windows(text.len()).any(|part| part == text) => return true,
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                    poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], left).unwrap();
                }
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// An IPv4 packet with a UDP datagram without a checksum.
pub(super) fn datagram(from: Ipv4Addr, to: Ipv4Addr, text: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0].to_vec();
    header[2..4].copy_from_slice(&length(28 + text.len()));
    header.extend(from.octets().into_iter().chain(to.octets()));
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!u16::try_from(sum & 0xffff).unwrap()).to_be_bytes());
    let ports = [DISCOVERY.to_be_bytes(), DISCOVERY.to_be_bytes(), length(8 + text.len()), [0, 0]];
    [header, ports.concat(), text.to_vec()].concat()
}

/// The texts that have come to a server of the machine.
fn texts(server: &UdpSocket) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    let mut buffer = [0; 64];
    loop {
        match server.recv_from(&mut buffer) {
            Ok((length, from)) => {
                found.push((String::from_utf8_lossy(&buffer[..length]).into_owned(), from.ip()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return found,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_pod_cannot_take_the_frames_of_another_or_its_address_by_link_local_frames() {
    let test = "a_pod_cannot_take_the_frames_of_another_or_its_address_by_link_local_frames";
    on_own_machine(async move || {
        // Accept packets from every interface, so that the source check of IPv4 does not hide what arrives.
        for interface in ["all", "default"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "0").unwrap();
        }
        let Some(node) = Node::new(test).await else { return };
        if !has_rules(test, &node).await {
            return;
        }
        if !has_family(NETDEV) {
            plumb_testkit::skip(
                plumb_testkit::CONTAINERS,
                &format!("{test}: no nftables rules for interfaces"),
            );
            return;
        }
        let attacker = Pod::run(&node, "attacker", &[]).await.unwrap();
        let victim = Pod::run(&node, "victim", &[]).await.unwrap();
        let sender = Pod::run(&node, "sender", &[]).await.unwrap();
        let raw = RawSocket::open(&attacker);
        let server = UdpSocket::bind((attacker.gateway(), DISCOVERY)).unwrap();
        let machine = attacker.gateway();
        let honest = attacker.udp(attacker.address);
        let inbox = victim.udp(victim.address);
        let outbox = sender.udp(sender.address);
        let forge = || {
            raw.send(LLDP, victim.hardware_address(), ETHERTYPE_LLDP, b"I am here");
            let packet = datagram(victim.address, machine, b"as another pod");
            raw.send(LLDP, attacker.hardware_address(), ETHERTYPE_IPV4, &packet);
        };
        // Each knows where the other is, so that no ARP packet of the victim corrects the bridge later.
        outbox.send_to(b"hello", (victim.address, 53)).unwrap();
        assert_eq!(super::received(&inbox), ("hello".to_owned(), sender.address.into()));
        inbox.send_to(b"hello", (sender.address, 53)).unwrap();
        assert_eq!(super::received(&outbox), ("hello".to_owned(), victim.address.into()));

        let is_protected = || {
            forge();
            outbox.send_to(b"for the victim", (victim.address, 53)).unwrap();
            assert_eq!(super::received(&inbox), ("for the victim".to_owned(), sender.address.into()));
            // A packet that arrives shows that those before it do not.
            honest.send_to(b"honest", (machine, DISCOVERY)).unwrap();
            server.set_read_timeout(Some(TIMEOUT)).unwrap();
            assert_eq!(super::received(&server), ("honest".to_owned(), attacker.address.into()));
            assert!(!raw.receives(b"for the victim", Duration::ZERO));
        };
        is_protected();
        // Without the rules both attacks succeed.
        flush_ruleset();
        let deadline = Instant::now() + TIMEOUT;
        server.set_nonblocking(true).unwrap();
        let (mut is_diverted, mut is_forged) = (false, false);
        while !(is_diverted && is_forged) {
            assert!(Instant::now() < deadline, "{is_diverted} {is_forged}");
            forge();
            outbox.send_to(b"for the victim", (victim.address, 53)).unwrap();
            is_diverted |= raw.receives(b"for the victim", Duration::from_millis(10));
            is_forged |= texts(&server).contains(&("as another pod".to_owned(), victim.address.into()));
        }
        server.set_nonblocking(false).unwrap();
        // The next pod has the rules of all made anew; the bridge learns where the victim is from its next packet.
        let other = Pod::run(&node, "other", &[]).await.unwrap();
        inbox.send_to(b"here", (sender.address, 53)).unwrap();
        assert_eq!(super::received(&outbox), ("here".to_owned(), victim.address.into()));
        let leftovers = unread(&inbox);
        assert!(leftovers.iter().all(|text| text == "for the victim"), "{leftovers:?}");
        while raw.receives(b"for the victim", Duration::ZERO) {}
        is_protected();
        // A pod that has ended leaves no rules, and its interface none to others.
        node.runtime.remove_sandbox(&other.id).await.unwrap();
        is_protected();
        let folder = node.folder.clone();
        drop(node);
        let node = Node::again(folder).await;
        is_protected();
        node.end().await;
    });
}

/// What has come to a socket and was not read.
fn unread(socket: &UdpSocket) -> Vec<String> {
    socket.set_nonblocking(true).unwrap();
    let found = texts(socket);
    socket.set_nonblocking(false).unwrap();
    found.into_iter().map(|(text, _)| text).collect()
}
