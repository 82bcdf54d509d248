//! Several nodes with containers on one machine: each is an agent in a network namespace of its own.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::LogParams;
use plumb_testkit::TIMEOUT;
use serde_json::json;

use super::machine::{Groups, Machine, create, equal, id, is_settled, load, pod, pods, until};
use super::network::{Network, caller, on_own_network};
use crate::it::cluster::Cluster;

/// A pod on a node.
fn on(node: &str, name: &str) -> Pod {
    let mut pod = pod(name, json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]));
    pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    pod
}

fn start(machine: &Machine, flags: &[&str]) -> Cluster {
    machine.start(&[&["--nodes", "2"], flags].concat())
}

/// Sends much from one pod to the other, and says from whom it came.
fn transfer(from: &Network, to: &Network, port: u16) -> IpAddr {
    const MUCH: usize = 1 << 20;
    let listener = to.listen(port);
    let server = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), MUCH);
        peer.ip()
    });
    let to = SocketAddr::from((to.address, port));
    from.within(|| {
        let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&vec![7; MUCH]).unwrap();
    });
    server.join().unwrap()
}

fn reach_each_other(mode: &'static str) {
    on_own_network(async move || {
        let Some(machine) = Machine::here() else { return };
        let flags = ["--pod-network", mode];
        let cluster = start(&machine, &flags);
        let client = cluster.client().await;
        let nodes: Api<Node> = Api::all(client.clone());
        let mut networks = Vec::new();
        for name in ["plumb-0", "plumb-1"] {
            networks.push(nodes.get(name).await.unwrap().spec.unwrap().pod_cidr.unwrap());
        }
        assert_ne!(networks[0], networks[1]);
        let api = pods(&cluster).await;
        for (node, name) in [("plumb-0", "a"), ("plumb-1", "b")] {
            create(&api, &on(node, name)).await;
        }
        let before = until(&api, "b", "running", is_settled).await;
        let a = Network::of(&until(&api, "a", "running", is_settled).await);
        let b = Network::of(&before);
        assert_eq!(transfer(&a, &b, 80), IpAddr::V4(a.address));
        assert_eq!(transfer(&b, &a, 80), IpAddr::V4(b.address));
        // From the machine to the pod of the other node.
        let listener = b.listen(81);
        let to = SocketAddr::from((b.address, 81));
        let client = TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
        assert_ne!(caller(&listener, client), IpAddr::V4(Ipv4Addr::LOCALHOST));
        // The API server reaches the agents of both.
        for name in ["a", "b"] {
            api.logs(name, &LogParams::default()).await.unwrap();
        }
        assert!(cluster.stop().success());

        // Containers and the network of both run on, and the next start finds them.
        assert_eq!(transfer(&a, &b, 82), IpAddr::V4(a.address));
        let cluster = start(&machine, &flags);
        let api = pods(&cluster).await;
        let after = until(&api, "b", "running", is_settled).await;
        assert_eq!(id(&after, "c"), id(&before, "c"));
        assert_eq!(transfer(&b, &a, 83), IpAddr::V4(b.address));
        let group = Groups::of(&after);
        assert!(cluster.stop().success());

        let mut down = Command::new(env!("CARGO_BIN_EXE_plumb"));
        let output = down.args(["down", "--purge", "--data-dir"]).arg(machine.data()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(group.pid(&id(&after, "c")).is_none(), "its container was removed");
        assert!(!machine.data().exists(), "{}", String::from_utf8_lossy(&output.stdout));
    });
}

#[test]
fn pods_of_two_nodes_of_one_machine_reach_each_other_by_routes() {
    reach_each_other("auto");
}

#[test]
fn pods_of_two_nodes_of_one_machine_reach_each_other_through_a_tunnel() {
    reach_each_other("vxlan");
}
