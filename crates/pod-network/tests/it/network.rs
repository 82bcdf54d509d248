//! Pods of two machines.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_pod_network::{Config, Mode, Names, Vxlan};
use plumb_testkit::{TIMEOUT, TestCluster, eventually, object};
use serde_json::json;

use crate::machine::{Agent, Machine, serve};

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// More than fits into a window, so that segments of full size are sent.
const MUCH: usize = 4 << 20;

/// Whether this machine has what the tests need; it is said why if not.
fn is_able(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        plumb_testkit::skip(plumb_testkit::ROOT, &format!("{test}: network namespaces need root"));
        return false;
    }
    true
}

/// Two machines, their agents and their API server.
struct Network {
    cluster: TestCluster,
    a: Machine,
    b: Machine,
    mode: Mode,
}

impl Network {
    /// Machines with addresses of prefixes of this length, and pods with this MTU.
    fn new(mode: Mode, prefix: u8, pod_mtu: u32) -> Self {
        let a = Machine::new("plumba", Ipv4Addr::new(10, 66, 0, 1), pod_mtu);
        let b = Machine::new("plumbb", Ipv4Addr::new(10, 66, 1, 1), pod_mtu);
        a.connect((A, prefix), &b, (B, prefix));
        if prefix == 32 {
            a.route_to(B);
            b.route_to(A);
        }
        Self { cluster: TestCluster::start(), a, b, mode }
    }

    fn client(&self) -> Client {
        self.cluster.admin()
    }

    async fn register(&self, name: &str, network: &str, address: Ipv4Addr) {
        let nodes: Api<Node> = Api::all(self.client());
        let node: Node = object(json!({ "metadata": { "name": name }, "spec": { "podCIDRs": [network] } }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let addresses = json!([{ "type": "InternalIP", "address": address }]);
        let patch = Patch::Merge(json!({ "status": { "addresses": addresses } }));
        nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn register_both(&self) {
        self.register("a", "10.66.0.0/24", A).await;
        self.register("b", "10.66.1.0/24", B).await;
    }

    /// The agent of one machine, with the rights of its node.
    fn agent(&self, node: &str) -> Agent {
        let (machine, network, address) = match node {
            "a" => (&self.a, "10.66.0.0/24", A),
            _ => (&self.b, "10.66.1.0/24", B),
        };
        let config = Config {
            node: node.to_owned(),
            mode: self.mode,
            cluster: "10.66.0.0/16".parse().unwrap(),
            network: network.parse().unwrap(),
            address,
            bridge: format!("plumb{node}"),
            node_bridge: None,
            names: Names::new("plumb-0c8a1f5e2b7d"),
            vxlan: Vxlan { id: 4711, port: Vxlan::PORT },
        };
        let client = self.cluster.client_as(&format!("system:node:{node}"), ["system:nodes"]);
        machine.route(config, client)
    }

    /// Waits until both machines route to each other.
    async fn is_up(&self) {
        eventually(async || self.a.routes() == ["10.66.1.0/24"] && self.b.routes() == ["10.66.0.0/24"]).await;
    }

    /// Sends much from the pod of one machine to that of the other, and says from whom it came.
    fn transfer(&self, port: u16) -> Ipv4Addr {
        let to = SocketAddr::from((self.b.pod_address, port));
        let received = serve(&self.b.pod, self.b.pod_address, port);
        self.a.pod.within(|| {
            let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
            stream.set_write_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(&vec![7; MUCH]).unwrap();
        });
        let (caller, bytes) = received.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(bytes, MUCH);
        caller
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_neighbours_reach_each_other_by_routes() {
    if !is_able("pods_of_neighbours_reach_each_other_by_routes") {
        return;
    }
    let network = Network::new(Mode::Auto, 24, 1500);
    network.register_both().await;
    let (a, b) = (network.agent("a"), network.agent("b"));
    network.is_up().await;
    assert!(!network.a.has_interface("plumbv0c8a1f5e"), "neighbours need no tunnel");
    assert!(network.a.forwards());
    assert_eq!(network.transfer(80), network.a.pod_address);
    // The machine itself reaches pods of the other one.
    let received = serve(&network.b.pod, network.b.pod_address, 81);
    let to = SocketAddr::from((network.b.pod_address, 81));
    network.a.namespace.within(|| drop(TcpStream::connect_timeout(&to, TIMEOUT).unwrap()));
    assert_eq!(received.recv_timeout(TIMEOUT).unwrap().0, A);

    // Routes outlive their agent, and the next one keeps them; that of a node that was deleted goes.
    a.stop();
    assert_eq!(network.a.routes(), ["10.66.1.0/24"]);
    let nodes: Api<Node> = Api::all(network.client());
    nodes.delete("b", &DeleteParams::default()).await.unwrap();
    let a = network.agent("a");
    eventually(async || network.a.routes().is_empty()).await;
    network.register("b", "10.66.1.0/24", B).await;
    network.is_up().await;
    assert_eq!(network.transfer(82), network.a.pod_address);
    a.stop();
    b.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_machines_without_a_shared_link_reach_each_other_through_a_tunnel() {
    if !is_able("pods_of_machines_without_a_shared_link_reach_each_other_through_a_tunnel") {
        return;
    }
    // The pods have the MTU that fits into the tunnel.
    let network = Network::new(Mode::Auto, 32, 1450);
    network.register_both().await;
    let (a, b) = (network.agent("a"), network.agent("b"));
    network.is_up().await;
    let tunnel = "plumbv0c8a1f5e";
    assert_eq!(network.a.mtu(tunnel), Some(1450));
    assert_eq!(network.transfer(80), network.a.pod_address);
    // The machine sends from the address of its bridge, which the other one routes into the tunnel.
    let received = serve(&network.b.pod, network.b.pod_address, 81);
    let to = SocketAddr::from((network.b.pod_address, 81));
    network.a.namespace.within(|| drop(TcpStream::connect_timeout(&to, TIMEOUT).unwrap()));
    assert_eq!(received.recv_timeout(TIMEOUT).unwrap().0, Ipv4Addr::new(10, 66, 0, 1));

    // A node that has another address by now.
    let nodes: Api<Node> = Api::all(network.client());
    nodes.delete("b", &DeleteParams::default()).await.unwrap();
    eventually(async || network.a.routes().is_empty() && !network.a.has_interface(tunnel)).await;
    a.stop();
    b.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_mtu_does_not_fit_into_the_tunnel_learns_that() {
    if !is_able("a_pod_whose_mtu_does_not_fit_into_the_tunnel_learns_that") {
        return;
    }
    let network = Network::new(Mode::Vxlan, 24, 1500);
    network.register_both().await;
    let (a, b) = (network.agent("a"), network.agent("b"));
    network.is_up().await;
    assert_eq!(network.transfer(80), network.a.pod_address);
    a.stop();
    b.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_forwards_for_other_nodes_to_its_own_pods_alone() {
    if !is_able("a_machine_forwards_for_other_nodes_to_its_own_pods_alone") {
        return;
    }
    let outside = Ipv4Addr::new(198, 51, 100, 9);
    let pod_of_c = Ipv4Addr::new(10, 66, 2, 9);
    // Over the link to the pods of a third node, and through the tunnel to another network of the machine.
    let table = [
        (Mode::Auto, pod_of_c, (A, "eth0")),
        (Mode::Vxlan, outside, (Ipv4Addr::new(10, 66, 0, 0), "plumbv0c8a1f5e")),
    ];
    for (mode, target, (via, interface)) in table {
        let network = Network::new(mode, 24, 1450);
        let beyond = network.a.connect_outside(Ipv4Addr::new(198, 51, 100, 1), &[outside, pod_of_c]);
        network.register_both().await;
        network.register("c", "10.66.2.0/24", outside).await;
        let (a, b) = (network.agent("a"), network.agent("b"));
        eventually(async || network.a.routes().len() == 2 && network.b.routes().len() == 2).await;
        network.b.add_route(target, via, interface);
        // What is for its pods passes.
        assert_eq!(network.transfer(80), network.a.pod_address);
        let to = SocketAddr::from((target, 90));
        let listener = beyond.within(|| UdpSocket::bind(to).unwrap());
        listener.set_read_timeout(Some(TIMEOUT)).unwrap();
        let send = |machine: &Machine, what: &[u8]| {
            machine.namespace.within(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                socket.send_to(what, to).unwrap();
            });
        };
        send(&network.b, b"forwarded");
        send(&network.a, b"own");
        let mut buffer = [0; 16];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"own", "{mode}");
        a.stop();
        b.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_leaves_on_a_machine_can_be_removed() {
    if !is_able("what_a_cluster_leaves_on_a_machine_can_be_removed") {
        return;
    }
    let network = Network::new(Mode::Vxlan, 24, 1450);
    network.register_both().await;
    let (a, b) = (network.agent("a"), network.agent("b"));
    network.is_up().await;
    a.stop();
    b.stop();
    let names = Names::new("plumb-0c8a1f5e2b7d");
    let has_rules = || network.a.namespace.within(|| plumb_nftables::has_table(&names.table).unwrap());
    assert!(has_rules() && network.a.has_interface(&names.tunnel));
    network.a.namespace.within(|| plumb_pod_network::clear(&names).unwrap());
    assert!(network.a.routes().is_empty());
    assert!(!network.a.has_interface(&names.tunnel));
    assert!(!has_rules());
}
