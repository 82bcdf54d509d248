//! A machine with a bridge of pods and a neighbour outside, in network namespaces.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection is tried that is dropped.
pub(crate) const DROPPED: Duration = Duration::from_millis(700);
pub(crate) const BRIDGE: &str = "br0";
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
/// The machine's address on the link to its neighbour, and the neighbour's.
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Runs a test on a machine of its own, with a bridge for pods.
pub(crate) fn on_own_machine(test: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let run = move || {
        if !rustix::process::geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::ROOT, "network namespaces need root");
            return;
        }
        if Command::new("ip").arg("-Version").output().is_err() {
            plumb_testkit::skip(plumb_testkit::MACHINE, "there is no program `ip` to make networks with");
            return;
        }
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        ip(&format!("link add {BRIDGE} type bridge"));
        ip(&format!("addr add {GATEWAY}/24 dev {BRIDGE}"));
        ip(&format!("link set {BRIDGE} up"));
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{BRIDGE}/send_redirects"), "0").unwrap();
        test();
    };
    if let Err(panic) = std::thread::Builder::new().name(name).spawn(run).unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Calls `ip` in the network namespace of this thread.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Another network namespace.
pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    namespace: File,
}

impl Host {
    fn new(address: Ipv4Addr) -> Self {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        Self { address, namespace: std::thread::scope(|scope| scope.spawn(make).join().unwrap()) }
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// A pod on the bridge: its address has no neighbours, so that what it sends is routed.
    pub(crate) fn pod(number: u8) -> Self {
        let pod = Self::new(Ipv4Addr::new(10, 64, 0, number));
        let (veth, address) = (format!("v{number}"), pod.address);
        ip(&format!("link add {veth} type veth peer name eth0 netns {}", pod.path()));
        ip(&format!("link set {veth} master {BRIDGE}"));
        ip(&format!("link set {veth} type bridge_slave hairpin on"));
        ip(&format!("link set {veth} up"));
        pod.within(|| {
            ip(&format!("addr add {address}/32 dev eth0"));
            ip("link set eth0 up");
            ip(&format!("route add {GATEWAY} dev eth0"));
            ip(&format!("route add default via {GATEWAY}"));
        });
        pod
    }

    /// The neighbour of the machine, which is not in the cluster.
    pub(crate) fn neighbour() -> Self {
        let neighbour = Self::new(NEIGHBOUR);
        ip(&format!("link add outside type veth peer name eth0 netns {}", neighbour.path()));
        ip(&format!("addr add {MACHINE}/24 dev outside"));
        ip("link set outside up");
        neighbour.within(|| {
            ip(&format!("addr add {NEIGHBOUR}/24 dev eth0"));
            ip("link set eth0 up");
            ip(&format!("route add default via {MACHINE}"));
        });
        neighbour
    }

    /// Does something there.
    pub(crate) fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    /// Answers each connection with the own address, the port, and the address of the client, until the test ends.
    pub(crate) fn serve_tcp(&self, port: u16) {
        let listener = self.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        let own = self.address;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Ok(SocketAddr::V4(peer)) = stream.peer_addr() else { continue };
                // Kept open until the client has ended.
                std::thread::spawn(move || {
                    let _ = stream.write_all(format!("{own}:{port} {}\n", peer.ip()).as_bytes());
                    let mut buffer = [0; 16];
                    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
                        let _ = stream.write_all(b"still here\n");
                    }
                });
            }
        });
    }

    /// Answers each datagram in the same way.
    pub(crate) fn serve_udp(&self, port: u16) {
        let socket = self.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        let own = self.address;
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, SocketAddr::V4(peer))) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(format!("{own}:{port} {}\n", peer.ip()).as_bytes(), peer);
            }
        });
    }

    pub(crate) fn connect(&self, to: SocketAddrV4) -> io::Result<Reply> {
        self.within(|| connect(to))
    }
}

/// What a server answered: its own address, and the client's as it saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reply {
    pub(crate) from: SocketAddrV4,
    pub(crate) client: Ipv4Addr,
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (from, client) = text.trim().split_once(' ').unwrap();
        Self { from: from.parse().unwrap(), client: client.parse().unwrap() }
    }
}

/// Connects from here, and reads the answer.
pub(crate) fn connect(to: SocketAddrV4) -> io::Result<Reply> {
    connect_within(to, TIMEOUT).map(|(reply, _)| reply)
}

/// Connects from here, and returns the connection with the answer.
pub(crate) fn connect_within(to: SocketAddrV4, timeout: Duration) -> io::Result<(Reply, TcpStream)> {
    let mut stream = TcpStream::connect_timeout(&to.into(), timeout)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut text = Vec::new();
    let mut byte = [0];
    while text.last() != Some(&b'\n') {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok((Reply::parse(&String::from_utf8(text).unwrap()), stream))
}

/// A socket that sends datagrams to an address.
pub(crate) fn udp_client(to: SocketAddrV4) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Sends a datagram, and reads the answer.
pub(crate) fn exchange(socket: &UdpSocket) -> io::Result<Reply> {
    socket.send(b"?")?;
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer)?;
    Ok(Reply::parse(std::str::from_utf8(&buffer[..length]).unwrap()))
}
