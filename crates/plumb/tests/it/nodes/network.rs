//! The network of pods, of whole clusters: in a network namespace of the test's own, so that rules and sysctls of this
//! machine stay as they are.

mod services;

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::sched::{CloneFlags, unshare};
use plumb_testkit::TIMEOUT;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;

use super::machine::{Groups, Machine, create, equal, id, is_settled, load, pod, pods, until};

/// Runs a test in a network namespace of its own, with its threads and processes.
pub(super) fn on_own_network(test: impl AsyncFnOnce() + Send + 'static) {
    let run = move || {
        if Machine::here().is_none() {
            return;
        }
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        loopback_up();
        // Threads and processes are in the namespace of the thread that starts them: this one.
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// `RTM_NEWLINK` for the first interface, with the flag `IFF_UP`.
fn loopback_up() {
    let words: [u32; 8] = [32, 0x0005_0010, 1, 0, 0, 1, 1, 1];
    let message: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    socket.send(&message, 0).unwrap();
    socket.recv_from_full().unwrap();
}

/// The network of a pod that runs.
pub(super) struct Network {
    pub(super) address: Ipv4Addr,
    namespace: File,
}

impl Network {
    pub(super) fn of(pod: &Pod) -> Self {
        let pid = Groups::of(pod).pid(&id(pod, "c")).unwrap();
        let address = pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap().parse().unwrap();
        Self { address, namespace: File::open(format!("/proc/{pid}/ns/net")).unwrap() }
    }

    pub(super) fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }

    pub(super) fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    pub(super) fn listen(&self, port: u16) -> TcpListener {
        self.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }
}

/// The address that a listener sees a client at.
pub(super) fn caller(listener: &TcpListener, client: TcpStream) -> IpAddr {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let (_, peer) = loop {
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            accepted => break accepted.unwrap(),
        }
    };
    drop(client);
    peer.ip()
}

/// A pod with a port on the host.
fn with_host_port(name: &str, host_port: u16) -> Pod {
    let mut container = load("c", &[], equal("10m", "16Mi"));
    container["ports"] = json!([{ "containerPort": 80, "hostPort": host_port }]);
    pod(name, json!([container]))
}

#[test]
fn pods_of_two_clusters_reach_other_networks_and_are_reached_at_host_ports() {
    on_own_network(async || {
        let (Some(one), Some(two)) = (Machine::here(), Machine::here()) else { return };
        let [first, second] = [&one, &two].map(|machine| machine.start(&["--masquerade=true"]));
        let (here, there) = (pods(&first).await, pods(&second).await);
        create(&here, &with_host_port("web", 8080)).await;
        create(&there, &with_host_port("outside", 8081)).await;
        let web = Network::of(&until(&here, "web", "running", is_settled).await);
        let outside = Network::of(&until(&there, "outside", "running", is_settled).await);

        let listener = outside.listen(80);
        let to = SocketAddr::from((outside.address, 80));
        let client = web.within(|| TcpStream::connect_timeout(&to, TIMEOUT).unwrap());
        assert_eq!(caller(&listener, client), outside.gateway());
        let listener = web.listen(80);
        for (address, port) in [(Ipv4Addr::LOCALHOST, 8080), (web.gateway(), 8080)] {
            let client = TcpStream::connect_timeout(&(address, port).into(), TIMEOUT).unwrap();
            assert_eq!(caller(&listener, client), web.gateway());
        }

        // What ends and is removed of one cluster is none of the other's.
        second.stop();
        two.clear();
        TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, 8081).into(), TIMEOUT).unwrap_err();
        // Pods and their rules outlive the agent.
        first.stop();
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let client = TcpStream::connect_timeout(&local, TIMEOUT).unwrap();
        assert_eq!(caller(&listener, client), web.gateway());

        let first = one.start(&["--masquerade=true"]);
        let here = pods(&first).await;
        until(&here, "web", "running", is_settled).await;
        let client = TcpStream::connect_timeout(&local, TIMEOUT).unwrap();
        assert_eq!(caller(&listener, client), web.gateway());
        first.stop();
        one.clear();
        TcpStream::connect_timeout(&local, TIMEOUT).unwrap_err();
    });
}

#[test]
fn pods_and_their_node_reach_each_other_over_tcp_and_udp() {
    on_own_network(async || {
        let Some(machine) = Machine::here() else { return };
        let cluster = machine.start(&[]);
        let pods = pods(&cluster).await;
        for name in ["one", "two"] {
            create(&pods, &pod(name, json!([load("c", &[], equal("10m", "16Mi"))]))).await;
        }
        let one = Network::of(&until(&pods, "one", "running", is_settled).await);
        let two = Network::of(&until(&pods, "two", "running", is_settled).await);
        let listener = two.listen(80);
        let to = SocketAddr::from((two.address, 80));
        let client = one.within(|| TcpStream::connect_timeout(&to, TIMEOUT).unwrap());
        assert_eq!(caller(&listener, client), one.address);
        let client = TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
        assert_eq!(caller(&listener, client), two.gateway());
        let echo = two.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 81)).unwrap());
        echo.set_read_timeout(Some(TIMEOUT)).unwrap();
        let socket = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        };
        for (client, from) in [(one.within(socket), one.address), (socket(), two.gateway())] {
            client.send_to(b"hello", (two.address, 81)).unwrap();
            let mut piece = [0; 16];
            let (length, peer) = echo.recv_from(&mut piece).unwrap();
            assert_eq!((&piece[..length], peer.ip()), (&b"hello"[..], IpAddr::V4(from)));
            echo.send_to(b"there", peer).unwrap();
            assert_eq!(client.recv(&mut piece).unwrap(), 5);
        }
        cluster.stop();
        machine.clear();
    });
}

/// Answers HTTP requests in a pod's network, from a thread that ends with the process; returns the paths that are asked for.
fn serve_http(network: &Network, port: u16) -> std::sync::mpsc::Receiver<String> {
    let listener = network.listen(port);
    let (paths, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split_whitespace().nth(1).unwrap_or_default().to_owned();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if paths.send(path).is_err() {
                return;
            }
        }
    });
    asked
}

#[test]
fn probes_and_hooks_reach_the_pod_in_its_network() {
    on_own_network(async || {
        let Some(machine) = Machine::here() else { return };
        let cluster = machine.start(&[]);
        let pods = pods(&cluster).await;
        let probe = |how: &str, what: serde_json::Value| json!({ how: what, "periodSeconds": 1 });
        let mut http = load("c", &[], equal("10m", "16Mi"));
        http["readinessProbe"] = probe("httpGet", json!({ "path": "/ready", "port": 80 }));
        http["lifecycle"] = json!({ "preStop": { "httpGet": { "path": "/stop", "port": 80 } } });
        let mut tcp = load("tcp", &[], equal("10m", "16Mi"));
        tcp["readinessProbe"] = probe("tcpSocket", json!({ "port": 81 }));
        create(&pods, &pod("web", json!([http, tcp]))).await;
        let running = |pod: &Pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.is_some_and(|all| all.iter().all(|one| one.started == Some(true) && !one.ready))
        };
        // No server listens yet.
        let web = Network::of(&until(&pods, "web", "running", running).await);
        let (asked, _listener) = (serve_http(&web, 80), web.listen(81));
        until(&pods, "web", "ready", is_settled).await;
        assert_eq!(asked.recv_timeout(TIMEOUT).unwrap(), "/ready");
        // The hook has the grace period for itself.
        pods.delete("web", &DeleteParams::default().grace_period(60)).await.unwrap();
        let stopped = || asked.recv_timeout(TIMEOUT).unwrap() == "/stop";
        while !stopped() {}
        cluster.stop();
        machine.clear();
    });
}

#[test]
fn a_pod_whose_host_port_is_in_use_says_so() {
    on_own_network(async || {
        let Some(machine) = Machine::here() else { return };
        let cluster = machine.start(&[]);
        let (pods, client) = (pods(&cluster).await, cluster.client().await);
        let _server = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080)).unwrap();
        create(&pods, &with_host_port("web", 8080)).await;
        let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(client, "default");
        let message = "Failed to create pod sandbox: cannot open hostport 8080: ";
        let found = async {
            loop {
                let all = events.list(&kube::api::ListParams::default()).await.unwrap();
                let says = |event: &k8s_openapi::api::core::v1::Event| {
                    event.message.as_deref().is_some_and(|text| text.starts_with(message))
                };
                if all.items.iter().any(says) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, found).await.unwrap();
        cluster.stop();
        machine.clear();
    });
}

#[test]
fn a_pod_gets_the_resolver_configuration_of_the_flag() {
    on_own_network(async || {
        let Some(machine) = Machine::here() else { return };
        let file = machine.data().with_extension("resolv.conf");
        let servers = (1..=4).map(|last| format!("nameserver 192.0.2.{last}\n"));
        fs::write(&file, servers.collect::<String>() + "search example.com\n").unwrap();
        let cluster = machine.start(&["--resolv-conf", file.to_str().unwrap(), "--cluster-dns="]);
        let pods = pods(&cluster).await;
        create(&pods, &pod("web", json!([load("c", &[], equal("10m", "16Mi"))]))).await;
        let web = until(&pods, "web", "running", is_settled).await;
        let pid = Groups::of(&web).pid(&id(&web, "c")).unwrap();
        let found = fs::read_to_string(format!("/proc/{pid}/root/etc/resolv.conf")).unwrap();
        let expected =
            "search example.com\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
        assert_eq!(found, expected);
        cluster.stop();
        machine.clear();
    });
}
