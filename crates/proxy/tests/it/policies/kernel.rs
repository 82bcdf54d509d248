//! The rules in a kernel, with real connections.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use plumb_proxy::policies::{
    PodKey, ServedPeer, StartedPod, State, Table, Touched, changes, removal, replacement, update,
};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::machine::{GATEWAY, Host, NETWORK, TIMEOUT, on_own_machine};
use super::model::{Cluster, Connection};
use super::random::{NAMESPACES, PORTS, named_policy, policy};

/// How long a connection that must not be made is waited for. One that is made later goes unnoticed and fails no test.
const SHORT: Duration = Duration::from_millis(40);
const TABLE: &str = "plumb-test-policies";
const BLOCKS: [&str; 4] = ["10.200.0.0/24", "10.200.0.2/31", "192.0.2.0/24", "0.0.0.0/0"];

/// The node with its rules in the kernel.
struct Node {
    state: State,
    applied: Table,
    cluster: Cluster,
}

impl Node {
    fn new(served: Vec<ServedPeer>) -> Self {
        let state = State::new("here", NETWORK, served.iter().cloned());
        Self { state, applied: Table::default(), cluster: Cluster { served, ..Cluster::default() } }
    }

    fn namespace(&mut self, name: &str, labels: &Value) {
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        let object: Namespace = serde_json::from_value(object).unwrap();
        self.state.apply_namespace(&object);
        self.cluster.namespaces.insert(name.to_owned(), object);
    }

    fn pod(&mut self, namespace: &str, host: &Host, labels: &Value) {
        let name = host.address.to_string();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": name, "uid": name, "labels": labels },
            "spec": {
                "nodeName": "here",
                "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 80 }] }],
            },
            "status": { "phase": "Running", "podIP": name },
        }))
        .unwrap();
        let key = PodKey { namespace: namespace.into(), name: name.clone(), uid: name.clone() };
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        self.state.set_started(&key, Some(StartedPod { key: key.clone(), address: host.address, labels }));
        self.state.apply_pod(&pod);
        self.cluster.pods.insert((namespace.to_owned(), name), pod);
    }

    /// Replaces the policies.
    fn set(&mut self, policies: &[(&str, Value)]) {
        let mut all = BTreeMap::new();
        for (index, (namespace, spec)) in policies.iter().enumerate() {
            let name = format!("policy-{index}");
            all.insert(((*namespace).to_owned(), name.clone()), named_policy(namespace, &name, spec));
        }
        let list: Vec<_> = all.values().cloned().collect();
        self.state.replace_policies(&list);
        self.cluster.policies = all;
        self.commit();
    }

    fn commit(&mut self) {
        let touched = self.state.take_touched();
        let changes = changes(self.state.table(), &self.applied, &touched);
        if self.applied == Table::default() {
            replacement(TABLE, self.state.table()).commit().unwrap();
        } else if !changes.is_empty() {
            update(TABLE, &changes).commit().unwrap();
        }
        for change in changes {
            self.applied.apply(change);
        }
        assert_eq!(&self.applied, self.state.table());
    }
}

/// A host with its servers.
struct Server {
    host: Host,
    tcp: Vec<(u16, TcpListener)>,
    udp: Vec<(u16, UdpSocket)>,
}

impl Server {
    fn new(host: Host) -> Self {
        let tcp = PORTS.map(|port| (port, host.listen(port))).into();
        let udp = PORTS.map(|port| (port, host.udp(port, TIMEOUT))).into();
        Self { host, tcp, udp }
    }

    fn listener(&self, port: u16) -> &TcpListener {
        &self.tcp.iter().find(|(of, _)| *of == port).unwrap().1
    }

    fn inbox(&self, port: u16) -> &UdpSocket {
        &self.udp.iter().find(|(of, _)| *of == port).unwrap().1
    }
}

/// Whether a connection reaches its server. One that does has its time.
fn reaches(from: &Host, to: &Server, protocol: &str, port: u16, is_expected: bool) -> bool {
    let wait = if is_expected { TIMEOUT } else { SHORT };
    let address = SocketAddr::from((to.host.address, port));
    if protocol == "TCP" {
        let Ok(client) = from.connect_to(address, wait) else { return false };
        // It is closed before the next one, so that its packets are not in the way.
        drop(to.listener(port).accept().unwrap());
        drop(client);
        return true;
    }
    let client = from.udp(0, TIMEOUT);
    let inbox = to.inbox(port);
    inbox.set_read_timeout(Some(wait)).unwrap();
    let text = format!("{:?}", client.local_addr().unwrap());
    client.send_to(text.as_bytes(), address).unwrap();
    let mut buffer = [0; 64];
    loop {
        match inbox.recv_from(&mut buffer) {
            Ok((length, peer)) if buffer[..length] == *text.as_bytes() => {
                // An answer needs no rule.
                inbox.send_to(b"answer", peer).unwrap();
                assert_eq!(client.recv(&mut buffer).unwrap(), 6);
                return true;
            }
            // A late one of an earlier round.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn connections_are_made_as_the_policies_of_a_hundred_rounds_say() {
    on_own_machine("connections_are_made_as_the_policies_of_a_hundred_rounds_say", || {
        let pods: Vec<Server> = (2..6).map(|last| Server::new(Host::pod(last))).collect();
        let outside = Server::new(Host::outside());
        let mut node = Node::new(Vec::new());
        node.namespace("red", &json!({ "app": "a" }));
        node.namespace("blue", &json!({ "tier": "x" }));
        let labels = [
            json!({ "app": "a" }),
            json!({ "app": "b", "tier": "x" }),
            json!({ "app": "a", "tier": "y" }),
            json!({}),
        ];
        for (index, (server, labels)) in pods.iter().zip(&labels).enumerate() {
            node.pod(NAMESPACES[index % 2], &server.host, labels);
        }
        // The rounds are those of every run.
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        let specs =
            proptest::collection::vec((proptest::sample::select(NAMESPACES.to_vec()), policy(&BLOCKS)), 0..4);
        let all: Vec<&Server> = pods.iter().chain([&outside]).collect();
        let tried = (
            proptest::sample::select((0..all.len()).collect::<Vec<_>>()),
            proptest::sample::select((0..all.len()).collect::<Vec<_>>()),
            proptest::sample::select(vec!["TCP", "UDP"]),
            proptest::sample::select(PORTS.to_vec()),
        );
        let tried = proptest::collection::vec(tried, 8);
        let mut counts = [0, 0];
        for round in 0..100 {
            let policies = specs.new_tree(&mut runner).unwrap().current();
            node.set(&policies);
            for (from, to, protocol, port) in tried.new_tree(&mut runner).unwrap().current() {
                let (from, to) = (all[from], all[to]);
                let connection =
                    Connection { source: from.host.address, destination: to.host.address, protocol, port };
                let is_local = |address| pods.iter().any(|pod| pod.host.address == address);
                let expected = node.cluster.allows(connection, is_local);
                counts[usize::from(expected)] += 1;
                let found = reaches(&from.host, to, protocol, port, expected);
                assert_eq!(found, expected, "round {round}: {connection:?} with {policies:#?}");
            }
        }
        assert!(counts.iter().all(|count| *count > 100), "both are tried: {counts:?}");
    });
}

/// The next bytes of a connection, or none in this time.
fn read(stream: &mut TcpStream, wait: Duration) -> Option<Vec<u8>> {
    stream.set_read_timeout(Some(wait)).unwrap();
    let mut buffer = [0; 16];
    match stream.read(&mut buffer) {
        Ok(length) => Some(buffer[..length].to_vec()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(error) => panic!("{error}"),
    }
}

fn deny_all() -> Value {
    json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] })
}

#[test]
fn connections_that_exist_follow_a_changed_policy_in_both_directions() {
    on_own_machine("connections_that_exist_follow_a_changed_policy_in_both_directions", || {
        let (client, server) = (Host::pod(2), Host::pod(3));
        let mut node = Node::new(Vec::new());
        node.pod("red", &server, &json!({}));
        node.pod("blue", &client, &json!({}));
        node.commit();
        let listener = server.listen(80);
        let mut near = client.connect_to((server.address, 80).into(), TIMEOUT).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"one").unwrap();
        assert_eq!(read(&mut far, TIMEOUT).unwrap(), b"one");

        // One that is allowed goes on, when others are no more.
        let allow = json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": {} }] }] });
        node.set(&[("red", allow.clone())]);
        far.write_all(b"two").unwrap();
        assert_eq!(read(&mut near, TIMEOUT).unwrap(), b"two");

        node.set(&[("red", deny_all())]);
        near.write_all(b"three").unwrap();
        far.write_all(b"four").unwrap();
        assert_eq!(read(&mut far, SHORT), None);
        assert_eq!(read(&mut near, SHORT), None);
        // The machine reaches the pod, and the pod itself.
        let own = |from: &Host| from.connect_to((server.address, 80).into(), TIMEOUT).unwrap();
        let machine = TcpStream::connect_timeout(&(server.address, 80).into(), TIMEOUT).unwrap();
        drop((machine, own(&server)));

        // What was sent meanwhile is sent again.
        node.set(&[("red", allow)]);
        assert_eq!(read(&mut far, TIMEOUT).unwrap(), b"three");
        assert_eq!(read(&mut near, TIMEOUT).unwrap(), b"four");
        removal(TABLE).commit().unwrap();
    });
}

#[test]
fn a_policy_for_egress_is_about_the_machine_and_what_the_agent_serves_too() {
    on_own_machine("a_policy_for_egress_is_about_the_machine_and_what_the_agent_serves_too", || {
        let pod = Host::pod(2);
        let dns = ServedPeer {
            namespace: "kube-system".into(),
            name: "dns".into(),
            labels: [("k8s-app".to_owned(), "kube-dns".to_owned())].into(),
            address: GATEWAY,
            ports: vec![("dns-tcp".into(), 6, 53)],
        };
        let mut node = Node::new(vec![dns]);
        node.namespace("kube-system", &json!({ "kubernetes.io/metadata.name": "kube-system" }));
        node.pod("red", &pod, &json!({}));
        node.set(&[("red", deny_all())]);
        let listeners = [53, 54].map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        let connects = |port: u16, wait| pod.connect_to((GATEWAY, port).into(), wait).is_ok();
        assert!(!connects(53, SHORT) && !connects(54, SHORT));
        // As most manifests say it.
        let to = json!([{
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "kube-system" } },
            "podSelector": { "matchLabels": { "k8s-app": "kube-dns" } },
        }]);
        for port in [json!(53), json!("dns-tcp")] {
            let rule = json!({ "to": to, "ports": [{ "port": port, "protocol": "TCP" }] });
            node.set(&[("red", json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [rule] }))]);
            assert!(connects(53, TIMEOUT) && !connects(54, SHORT));
        }
        // An answer to the machine is none of the pod's connections.
        let server = pod.listen(80);
        let client = TcpStream::connect_timeout(&(pod.address, 80).into(), TIMEOUT).unwrap();
        drop((server.accept().unwrap(), client));
        // A table that is made anew is the same.
        node.state.take_touched();
        replacement(TABLE, node.state.table()).commit().unwrap();
        assert!(connects(53, TIMEOUT) && !connects(54, SHORT));
        let touched = Touched::all(node.state.table());
        assert_eq!(changes(node.state.table(), &node.applied, &touched), []);
        drop(listeners);
    });
}

#[test]
fn packets_without_a_connection_are_dropped_for_pods_with_policies() {
    on_own_machine("packets_without_a_connection_are_dropped_for_pods_with_policies", || {
        let (client, server) = (Host::pod(2), Host::pod(3));
        let mut node = Node::new(Vec::new());
        node.pod("red", &server, &json!({}));
        node.set(&[("red", deny_all())]);
        // Nothing of these is tracked: the rules about connections match none.
        let raw = plumb_nftables::Chain {
            name: "raw",
            kind: plumb_nftables::ChainKind::Filter,
            hook: plumb_nftables::Hook::Prerouting,
            priority: -300,
        };
        let mut batch = plumb_nftables::Batch::new("untracked");
        batch.add_table();
        batch.add_chain(&raw);
        batch.add_rule(&raw, &[plumb_nftables::Expression::NoTrack]);
        batch.commit().unwrap();
        let inbox = server.udp(80, SHORT);
        let outbox = client.udp(0, TIMEOUT);
        outbox.send_to(b"hello", (server.address, 80)).unwrap();
        assert!(inbox.recv(&mut [0; 8]).is_err());
        node.set(&[]);
        inbox.set_read_timeout(Some(TIMEOUT)).unwrap();
        outbox.send_to(b"hello", (server.address, 80)).unwrap();
        assert_eq!(inbox.recv(&mut [0; 8]).unwrap(), 5);
    });
}
