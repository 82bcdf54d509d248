//! A machine in a network namespace of its own, with pods on a bridge, as the built-in runtime connects them.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{LinkNameSpaceType, gettid, move_into_link_name_space};

/// How long anything may take on a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
pub(crate) const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 200, 0, 0), 24);

/// A network namespace. It ends with this.
pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    namespace: File,
    _end: mpsc::Sender<()>,
}

/// Runs a test in a network namespace of its own, which is the machine; says why where it cannot run.
pub(crate) fn on_own_machine(test: &'static str, run: impl FnOnce() + Send + 'static) {
    let within = move || {
        if !rustix::process::geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::ROOT, "network namespaces need root");
            return;
        }
        if Command::new("ip").arg("-V").output().is_err() {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: there is no program ip"));
            return;
        }
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        ip("link add br0 type bridge");
        ip("addr add 10.200.0.1/24 dev br0");
        ip("link set br0 up");
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        let mut trial = plumb_nftables::Batch::new("trial");
        trial.remove_table();
        if let Err(error) = trial.commit() {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: {error}"));
            return;
        }
        run();
    };
    if let Err(panic) = std::thread::spawn(within).join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Host {
    /// A pod on the bridge.
    pub(crate) fn pod(last: u8) -> Self {
        let address = Ipv4Addr::new(10, 200, 0, last);
        Self::connect(address, &format!("v{last}"), "master br0", GATEWAY)
    }

    /// A host on another link of the machine.
    pub(crate) fn outside() -> Self {
        let host = Self::connect(Ipv4Addr::new(192, 0, 2, 7), "out", "", Ipv4Addr::new(192, 0, 2, 1));
        ip("addr add 192.0.2.1/24 dev out");
        host
    }

    fn connect(address: Ipv4Addr, link: &str, options: &str, gateway: Ipv4Addr) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (connected, is_connected) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let namespace = File::open("/proc/thread-self/ns/net").unwrap();
            ready.send((gettid(), namespace)).unwrap();
            // The interface is there.
            is_connected.recv().unwrap();
            ip("link set lo up");
            ip(&format!("addr add {address}/32 dev eth0"));
            ip("link set eth0 up");
            ip(&format!("route add {gateway}/32 dev eth0 scope link"));
            ip(&format!("route add default via {gateway}"));
            drop(is_connected);
            let _ = wait.recv();
        });
        let (thread, namespace) = is_ready.recv().unwrap();
        ip(&format!("link add {link} type veth peer name eth0 netns {}", thread.as_raw_nonzero()));
        ip(&format!("link set {link} up {options}"));
        connected.send(()).unwrap();
        // It has received that and dropped the other end once all is set up.
        while connected.send(()).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { address, namespace, _end: end }
    }

    /// Does something in its network.
    pub(crate) fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    pub(crate) fn listen(&self, port: u16) -> TcpListener {
        self.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }

    pub(crate) fn connect_to(&self, to: SocketAddr, wait: Duration) -> io::Result<TcpStream> {
        self.within(|| TcpStream::connect_timeout(&to, wait))
    }

    /// A socket for datagrams that waits as long for each.
    pub(crate) fn udp(&self, port: u16, wait: Duration) -> UdpSocket {
        let socket = self.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        socket.set_read_timeout(Some(wait)).unwrap();
        socket
    }
}
