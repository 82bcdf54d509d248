//! The table that follows from random changes, evaluated as the kernel would.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use plumb_controller_runtime::ObjectRef;
use plumb_proxy::policies::{
    Change, Direction, Element, Peers, PodKey, Ports, ServedPeer, SetKey, StartedPod, State, Table, Touched,
    changes,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{Cluster, Connection};
use super::random::{NAMESPACES, PORTS, PROTOCOLS, labels, named_policy, policy};

const NODE: &str = "here";
const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 24);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const BLOCKS: [&str; 6] =
    ["10.64.0.0/24", "10.64.0.0/30", "10.64.1.3/32", "192.0.2.0/24", "0.0.0.0/0", "2001:db8::/32"];
const PODS: u8 = 6;

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A pod of this name runs, with labels, here or on another node, with an address that ends in this.
    Pod {
        namespace: usize,
        name: u8,
        labels: Value,
        is_local: bool,
        phase: &'static str,
        port: u16,
    },
    Unpod {
        namespace: usize,
        name: u8,
    },
    Namespace {
        namespace: usize,
        labels: Value,
    },
    Policy {
        namespace: usize,
        name: u8,
        spec: Value,
    },
    Unpolicy {
        namespace: usize,
        name: u8,
    },
    /// All is listed again, and what the kernel has is unknown.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let namespace = || 0..NAMESPACES.len();
    let pod = (
        namespace(),
        0..PODS,
        labels(),
        any::<bool>(),
        proptest::sample::select(vec!["Running", "Running", "Succeeded"]),
        proptest::sample::select(PORTS.to_vec()),
    );
    prop_oneof![
        6 => pod.prop_map(|(namespace, name, labels, is_local, phase, port)| Step::Pod { namespace, name, labels, is_local, phase, port }),
        1 => (namespace(), 0..PODS).prop_map(|(namespace, name)| Step::Unpod { namespace, name }),
        2 => (namespace(), labels()).prop_map(|(namespace, labels)| Step::Namespace { namespace, labels }),
        6 => (namespace(), 0..4_u8, policy(&BLOCKS)).prop_map(|(namespace, name, spec)| Step::Policy { namespace, name, spec }),
        1 => (namespace(), 0..4_u8).prop_map(|(namespace, name)| Step::Unpolicy { namespace, name }),
        1 => Just(Step::Restart),
    ]
}

/// The node: its state, what the kernel has, and what the cluster has.
struct Node {
    state: State,
    applied: Table,
    cluster: Cluster,
    /// The addresses of pods that the runtime has started here.
    local: BTreeSet<Ipv4Addr>,
}

fn dns() -> ServedPeer {
    ServedPeer {
        namespace: NAMESPACES[0].to_owned(),
        name: "dns".to_owned(),
        labels: [("app".to_owned(), "a".to_owned())].into(),
        address: DNS,
        ports: vec![("web".to_owned(), 17, 5000)],
    }
}

impl Node {
    fn new() -> Self {
        Self {
            state: State::new(NODE, NETWORK, [dns()]),
            applied: Table::default(),
            cluster: Cluster { served: vec![dns()], ..Cluster::default() },
            local: BTreeSet::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Pod { namespace, name, labels, is_local, phase, port } => {
                let namespace = NAMESPACES[*namespace];
                let name = format!("pod-{name}");
                let old = self.cluster.pods.remove(&(namespace.to_owned(), name.clone()));
                if let Some(old) = &old {
                    self.stop(old);
                }
                // Local pods are in the network of the node. Pods of both namespaces have addresses of their own.
                let last =
                    name.as_bytes().last().unwrap() - b'0' + if namespace == "red" { 2 } else { 2 + PODS };
                let address = Ipv4Addr::new(10, 64, u8::from(!is_local), last);
                let node = if *is_local { NODE } else { "there" };
                let uid = if old.is_some_and(|old| old.spec.unwrap().node_name.as_deref() == Some(node)) {
                    "same"
                } else {
                    node
                };
                let pod: Pod = serde_json::from_value(json!({
                    "metadata": { "namespace": namespace, "name": name, "uid": uid, "labels": labels },
                    "spec": {
                        "nodeName": node,
                        "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": port }] }],
                    },
                    "status": { "phase": phase, "podIP": address.to_string() },
                }))
                .unwrap();
                // The runtime of this node knows of a pod as long as it runs.
                if *is_local && *phase == "Running" {
                    let key = key(&pod);
                    let labels = pod.metadata.labels.clone().unwrap_or_default();
                    self.state.set_started(&key, Some(StartedPod { key: key.clone(), address, labels }));
                    self.local.insert(address);
                }
                self.state.apply_pod(&pod);
                self.cluster.pods.insert((namespace.to_owned(), name), pod);
            }
            Step::Unpod { namespace, name } => {
                let name = (NAMESPACES[*namespace].to_owned(), format!("pod-{name}"));
                if let Some(pod) = self.cluster.pods.remove(&name) {
                    self.state.delete_pod(&ObjectRef::namespaced(name.0, name.1));
                    self.stop(&pod);
                }
            }
            Step::Namespace { namespace, labels } => {
                let name = NAMESPACES[*namespace];
                let object: Namespace =
                    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))
                        .unwrap();
                self.state.apply_namespace(&object);
                self.cluster.namespaces.insert(name.to_owned(), object);
            }
            Step::Policy { namespace, name, spec } => {
                let (namespace, name) = (NAMESPACES[*namespace], format!("policy-{name}"));
                let policy = named_policy(namespace, &name, spec);
                self.state.apply_policy(&policy);
                self.cluster.policies.insert((namespace.to_owned(), name), policy);
            }
            Step::Unpolicy { namespace, name } => {
                let name = (NAMESPACES[*namespace].to_owned(), format!("policy-{name}"));
                self.cluster.policies.remove(&name);
                self.state.delete_policy(&ObjectRef::namespaced(name.0, name.1));
            }
            Step::Restart => {
                let pods: Vec<Pod> = self.cluster.pods.values().cloned().collect();
                self.state.replace_pods(pods);
                self.state.replace_namespaces(self.cluster.namespaces.values().cloned().collect());
                let policies: Vec<_> = self.cluster.policies.values().cloned().collect();
                self.state.replace_policies(&policies);
                self.applied = Table::default();
                let touched = Touched::all(self.state.table());
                self.commit(&touched);
            }
        }
        let touched = self.state.take_touched();
        self.commit(&touched);
    }

    fn stop(&mut self, pod: &Pod) {
        let address = pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap().parse().unwrap();
        if self.local.remove(&address) {
            self.state.set_started(&key(pod), None);
        }
    }

    fn commit(&mut self, touched: &Touched) {
        for change in changes(self.state.table(), &self.applied, touched) {
            check(&self.applied, &change);
            self.applied.apply(change);
        }
        assert_eq!(&self.applied, self.state.table(), "nothing but what was touched differs");
    }
}

fn key(pod: &Pod) -> PodKey {
    let text = |text: &Option<String>| text.clone().unwrap();
    let metadata = &pod.metadata;
    PodKey { namespace: text(&metadata.namespace), name: text(&metadata.name), uid: text(&metadata.uid) }
}

/// What the kernel demands of a change.
fn check(table: &Table, change: &Change) {
    let users = |chain: &str| table.pods.values().filter(|used| *used == chain).count();
    match change {
        Change::AddSet(set) => assert!(!table.sets.contains_key(&set.key.name()), "{change:?}"),
        Change::AddElements(key, elements) => {
            let set = &table.sets[&key.name()];
            assert!(elements.iter().all(|element| !set.elements.contains(element)), "{change:?}");
        }
        Change::DeleteElements(key, elements) => {
            let set = &table.sets[&key.name()];
            assert!(elements.iter().all(|element| set.elements.contains(element)), "{change:?}");
        }
        Change::AddChain(chain) => {
            assert!(!table.chains.contains_key(&chain.name()), "{change:?}");
            assert!(chain.sets().iter().all(|set| table.sets.contains_key(&set.name())), "{change:?}");
        }
        Change::SetPods { direction, removed, added } => {
            assert!(removed.iter().all(|address| table.pods.contains_key(&(*direction, *address))));
            for (address, chain) in added {
                assert!(table.chains.contains_key(chain), "{change:?}");
                assert!(removed.contains(address) || !table.pods.contains_key(&(*direction, *address)));
            }
        }
        Change::DeleteChain(name) => {
            assert!(table.chains.contains_key(name) && users(name) == 0, "{change:?}");
        }
        Change::DeleteSet(name) => {
            let reads = |set: &SetKey| set.name() == *name;
            let is_read = table.chains.values().any(|chain| chain.sets().iter().any(reads));
            assert!(table.sets.contains_key(name) && !is_read, "{change:?}");
        }
    }
}

/// Whether the rules accept a connection.
fn accepts(table: &Table, connection: Connection) -> bool {
    let Connection { source, destination, port, .. } = connection;
    let protocol = if connection.protocol == "TCP" { 6 } else { 17 };
    let elements = |key: &SetKey| &table.sets[&key.name()].elements;
    if source == destination && elements(&SetKey::Selves).contains(&Element::Address(source)) {
        return true;
    }
    let number = u32::from;
    Direction::ALL.into_iter().all(|direction| {
        let (pod, peer) = match direction {
            Direction::Ingress => (destination, source),
            Direction::Egress => (source, destination),
        };
        let Some(chain) = table.pods.get(&(direction, pod)) else { return true };
        table.chains[chain].allows.iter().any(|allow| {
            let is_peer = match &allow.peers {
                Peers::Any => true,
                Peers::Pods(key) => elements(&SetKey::Pods(key.clone())).contains(&Element::Address(peer)),
                Peers::Blocks(ranges) => elements(&SetKey::Blocks(ranges.clone())).iter().any(|element| {
                    matches!(element, Element::Block(first, last) if (*first..=*last).contains(&number(peer)))
                }),
            };
            let is_port = match &allow.ports {
                Ports::Any => true,
                Ports::Numbers(ranges) => elements(&SetKey::Ports(ranges.clone())).iter().any(|element| {
                    matches!(element, Element::Ports(of, first, last) if *of == protocol && (*first..=*last).contains(&port))
                }),
                Ports::Named(named) => {
                    let element = Element::Named(destination, protocol, port);
                    elements(&SetKey::Named(named.clone())).contains(&element)
                }
            };
            is_peer && is_port
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_accept_what_the_policies_allow_after_any_changes(steps in proptest::collection::vec(step(), 1..40)) {
        let mut node = Node::new();
        for step in &steps {
            node.take(step);
        }
        let mut addresses: Vec<Ipv4Addr> = (0..2_u8)
            .flat_map(|network| (2..2 + 2 * PODS).map(move |last| Ipv4Addr::new(10, 64, network, last)))
            .collect();
        addresses.extend([OUTSIDE, DNS]);
        // Only what has to do with a pod of this node passes its rules.
        for source in &addresses {
            for destination in addresses.iter().filter(|other| node.local.contains(source) || node.local.contains(*other)) {
                for (protocol, port) in PROTOCOLS.into_iter().flat_map(|protocol| PORTS.map(|port| (protocol, port))) {
                    let connection = Connection { source: *source, destination: *destination, protocol, port };
                    let expected = node.cluster.allows(connection, |address| node.local.contains(&address));
                    prop_assert_eq!(accepts(&node.applied, connection), expected, "{:?}", connection);
                }
            }
        }
    }
}

fn pod(name: &str, uid: &str, node: &str, address: &str, labels: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "namespace": "red", "name": name, "uid": uid, "labels": labels },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": "Running", "podIP": address },
    }))
    .unwrap()
}

/// A state with a pod of this node that accepts connections of pods with the label `app=a` alone.
fn guarded() -> (State, Ipv4Addr) {
    let mut state = State::new(NODE, NETWORK, []);
    let address = Ipv4Addr::new(10, 64, 0, 2);
    let web = pod("web", "1", NODE, "10.64.0.2", &json!({}));
    state.set_started(&key(&web), Some(StartedPod { key: key(&web), address, labels: [].into() }));
    let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "a" } } }] }] });
    state.apply_policy(&named_policy("red", "p", &spec));
    (state, address)
}

fn connects(state: &State, source: &str, destination: Ipv4Addr) -> bool {
    let source = source.parse().unwrap();
    accepts(state.table(), Connection { source, destination, protocol: "TCP", port: 80 })
}

#[test]
fn a_status_that_claims_an_address_of_this_node_is_not_believed() {
    let (mut state, web) = guarded();
    // A pod of this node that may not connect.
    let other = pod("other", "2", NODE, "10.64.0.3", &json!({ "app": "b" }));
    let labels = other.metadata.labels.clone().unwrap();
    state.set_started(
        &key(&other),
        Some(StartedPod { key: key(&other), address: Ipv4Addr::new(10, 64, 0, 3), labels }),
    );
    state.apply_pod(&other);
    // Another node says that a pod of its own, which may, has that address; and a status of this node's pod lies.
    state.apply_pod(&pod("forged", "3", "there", "10.64.0.3", &json!({ "app": "a" })));
    state.apply_pod(&pod("stale", "4", NODE, "10.64.0.3", &json!({ "app": "a" })));
    assert!(!connects(&state, "10.64.0.3", web));
    state.apply_pod(&pod("true", "5", "there", "10.64.1.3", &json!({ "app": "a" })));
    assert!(connects(&state, "10.64.1.3", web));
}

#[test]
fn a_pod_is_selected_before_the_api_has_its_address_and_after_it_is_deleted_there() {
    let (mut state, web) = guarded();
    assert!(state.is_selected(&key(&pod("web", "1", NODE, "", &json!({})))));
    assert!(!connects(&state, "10.64.1.9", web));
    // It was deleted by force, and another of its name is elsewhere; its processes may still run.
    state.delete_pod(&ObjectRef::namespaced("red", "web"));
    state.apply_pod(&pod("web", "2", "there", "10.64.1.2", &json!({})));
    assert!(!connects(&state, "10.64.1.9", web));
    state.set_started(&key(&pod("web", "1", NODE, "", &json!({}))), None);
    assert!(connects(&state, "10.64.1.9", web));
}

#[test]
fn an_address_goes_from_one_pod_to_the_next_in_whatever_order_it_is_said() {
    let (mut state, web) = guarded();
    let old = PodKey { namespace: "red".into(), name: "web".into(), uid: "1".into() };
    let next = PodKey { namespace: "blue".into(), name: "next".into(), uid: "9".into() };
    state.set_started(&next, Some(StartedPod { key: next.clone(), address: web, labels: [].into() }));
    assert!(connects(&state, "10.64.1.9", web));
    state.set_started(&old, None);
    assert!(connects(&state, "10.64.1.9", web));
    assert!(state.table().chains.is_empty());
}

#[test]
fn a_pod_touches_only_what_selects_it() {
    let (mut state, _) = guarded();
    let mut applied = Table::default();
    for change in changes(state.table(), &applied.clone(), &Touched::all(state.table())) {
        applied.apply(change);
    }
    state.take_touched();
    let changed = |state: &mut State, applied: &mut Table| {
        let touched = state.take_touched();
        let found = changes(state.table(), applied, &touched);
        found.iter().cloned().for_each(|change| applied.apply(change));
        found
    };
    state.apply_pod(&pod("unrelated", "6", "there", "10.64.1.6", &json!({ "app": "b" })));
    assert_eq!(changed(&mut state, &mut applied), []);
    state.apply_pod(&pod("client", "7", "there", "10.64.1.7", &json!({ "app": "a" })));
    let added = changed(&mut state, &mut applied);
    assert!(
        matches!(added.as_slice(), [Change::AddElements(_, elements)] if elements.len() == 1),
        "{added:?}"
    );
    // A label that no policy reads.
    state.apply_pod(&pod("client", "7", "there", "10.64.1.7", &json!({ "app": "a", "version": "2" })));
    assert_eq!(changed(&mut state, &mut applied), []);
}
