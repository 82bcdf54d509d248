//! Properties of the planner under random sequences of changes.

use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_resize::accounting::{on_node, requested};
use plumb_resize::list::ResourceList;
use plumb_resize::rules::Rules;
use plumb_scheduler::Decision;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::cluster::{Cluster, node, pod};

/// A change.
#[derive(Clone, Debug)]
enum Op {
    Create {
        cpu: i64,
        kind: usize,
    },
    Delete(usize),
    /// A resize that is allocated and actual only later.
    Resize(usize, i64),
    Actuate(usize),
    AddNode(i64),
    DropNode(usize),
    Taint(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1i64..12, 0usize..KINDS.len()).prop_map(|(cpu, kind)| Op::Create { cpu: cpu * 250, kind }),
        3 => (0usize..30).prop_map(Op::Delete),
        3 => (0usize..30, 1i64..12).prop_map(|(at, cpu)| Op::Resize(at, cpu * 250)),
        2 => (0usize..30).prop_map(Op::Actuate),
        1 => (1i64..5).prop_map(Op::AddNode),
        1 => (0usize..6).prop_map(Op::DropNode),
        1 => (0usize..6, any::<bool>()).prop_map(|(at, on)| Op::Taint(at, on)),
    ]
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Kinds of pods, by their label `app`.
const KINDS: [&str; 6] = ["plain", "zone-a", "apart", "spread", "near", "quiet"];

fn requirements(kind: &str) -> Value {
    let term = |key: &str, app: &str| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } },
        ] })
    };
    let spec = match kind {
        "zone-a" => json!({ "nodeSelector": { ZONE: "a" } }),
        "apart" => json!({ "affinity": { "podAntiAffinity": term(HOST, "apart") } }),
        "spread" => json!({ "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": "spread" } },
        }] }),
        "near" => json!({ "affinity": { "podAffinity": term(ZONE, "plain") } }),
        // No plain pod may share its node, whichever was first.
        "quiet" => json!({ "affinity": { "podAntiAffinity": term(HOST, "plain") } }),
        _ => json!({}),
    };
    json!({ "metadata": { "labels": { "app": kind } }, "spec": spec })
}

fn app(pod: &Pod) -> &str {
    &pod.metadata.labels.as_ref().unwrap()["app"]
}

fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    &node.metadata.labels.as_ref().unwrap()[key]
}

/// A model that counts the pods of nodes again each time.
struct Oracle<'a>(&'a Cluster);

impl Oracle<'_> {
    fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.0.pods.iter().filter(move |(name, _)| self.0.node_of(name) == Some(node)).map(|(_, pod)| pod)
    }

    fn requested(&self, node: &str) -> ResourceList {
        let mut held = ResourceList::default();
        for pod in self.on(node) {
            held.add(&on_node(pod, &Rules::kep()).unwrap());
        }
        held
    }

    fn has_free(&self, name: &str, node: &Node, more: &ResourceList) -> bool {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = ResourceList::read(allocatable).unwrap();
        let mut held = self.requested(name);
        held.add(more);
        more.iter().all(|(resource, _)| held.get(resource) <= allocatable.get(resource))
    }

    fn in_zone<'a>(&'a self, zone: &'a str, kind: &'a str) -> usize {
        let nodes = self.0.nodes.iter().filter(move |(_, node)| label(node, ZONE) == zone);
        nodes.flat_map(|(name, _)| self.on(name)).filter(|pod| app(pod) == kind).count()
    }

    fn inter_pod_allows(&self, name: &str, node: &Node, kind: &str) -> bool {
        let here = |kind: &str| self.on(name).any(|pod| app(pod) == kind);
        let zones: std::collections::BTreeSet<&str> =
            self.0.nodes.values().map(|node| label(node, ZONE)).collect();
        match kind {
            "zone-a" => label(node, ZONE) == "a",
            "apart" => !here("apart"),
            "spread" => {
                let fewest = zones.iter().map(|zone| self.in_zone(zone, "spread")).min().unwrap();
                self.in_zone(label(node, ZONE), "spread") + 1 - fewest <= 1
            }
            "near" => self.in_zone(label(node, ZONE), "plain") > 0,
            "quiet" => !here("plain"),
            _ => !here("quiet"),
        }
    }

    /// Whether a pending pod fits a node.
    fn fits(&self, pod: &Pod, name: &str, node: &Node) -> bool {
        let tainted = node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
        !tainted
            && self.has_free(name, node, &requested(pod).unwrap())
            && self.inter_pod_allows(name, node, app(pod))
    }
}

/// Performs decisions until there are no more, and checks the model after each.
fn run_until_idle(cluster: &mut Cluster) {
    for _ in 0..10_000 {
        match cluster.step() {
            None => return,
            Some(Decision::Bind { pod, node, .. }) => {
                let oracle = Oracle(cluster);
                let bound = &cluster.nodes[&node];
                let allocatable = bound.status.as_ref().and_then(|status| status.allocatable.as_ref());
                let allocatable = ResourceList::read(allocatable).unwrap();
                for (resource, held) in oracle.requested(&node).iter() {
                    assert!(Some(held) <= allocatable.get(resource), "{} on {node}", pod.name);
                }
            }
            Some(_) => {}
        }
    }
    panic!("it never ends");
}

fn amounts(cpu: i64) -> Value {
    json!({ "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") })
}

fn resize(pod: &mut Pod, cpu: i64) {
    let before = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests;
    let status = pod.status.get_or_insert_default();
    if status.container_statuses.is_none() {
        let status_of = json!({
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": before, "resources": { "requests": before },
        });
        status.container_statuses = Some(vec![serde_json::from_value(status_of).unwrap()]);
    }
    status.resize = Some("Proposed".to_owned());
    pod.spec.as_mut().unwrap().containers[0].resources =
        serde_json::from_value(json!({ "requests": amounts(cpu) })).unwrap();
}

fn actuate(pod: &mut Pod) {
    let wanted = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests;
    let status = pod.status.get_or_insert_default();
    status.resize = None;
    if let Some(of) = status.container_statuses.as_mut().and_then(|all| all.first_mut()) {
        of.allocated_resources.clone_from(&wanted);
        of.resources.get_or_insert_default().requests = wanted;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// No node is over-committed, and no pod that fits a node stays pending.
    #[test]
    fn no_node_is_over_committed_and_every_pod_that_fits_is_bound(ops in prop::collection::vec(op(), 1..60)) {
        let zones = ["a", "b", "c"];
        let nodes = (0..3).map(|i| node(&format!("n{i}"), 3, zones[i]));
        let mut cluster = Cluster::new(nodes);
        for (i, op) in ops.into_iter().enumerate() {
            let placed = |cluster: &Cluster, at: usize| {
                let names: Vec<&String> = cluster.pods.keys().filter(|name| cluster.node_of(name).is_some()).collect();
                (!names.is_empty()).then(|| names[at % names.len()].clone())
            };
            let node_name = |cluster: &Cluster, at: usize| {
                let names: Vec<&String> = cluster.nodes.keys().collect();
                (!names.is_empty()).then(|| names[at % names.len()].clone())
            };
            match op {
                Op::Create { cpu, kind } => cluster.update(pod(&format!("p{i:03}"), cpu, requirements(KINDS[kind]))),
                Op::Delete(at) => {
                    let names: Vec<String> = cluster.pods.keys().cloned().collect();
                    if !names.is_empty() {
                        cluster.delete(&names[at % names.len()]);
                    }
                }
                Op::Resize(at, cpu) => {
                    if let Some(name) = placed(&cluster, at) {
                        cluster.change(&name, |pod| resize(pod, cpu));
                    }
                }
                Op::Actuate(at) => {
                    if let Some(name) = placed(&cluster, at) {
                        cluster.change(&name, actuate);
                    }
                }
                Op::AddNode(cores) => cluster.update_node(node(&format!("m{i}"), cores, zones[i % 3])),
                Op::DropNode(at) => {
                    if let Some(name) = node_name(&cluster, at).filter(|_| cluster.nodes.len() > 1) {
                        // Its pods are deleted with it.
                        let lost: Vec<String> =
                            cluster.pods.keys().filter(|pod| cluster.node_of(pod) == Some(&name)).cloned().collect();
                        cluster.delete_node(&name);
                        for pod in &lost {
                            cluster.delete(pod);
                        }
                    }
                }
                Op::Taint(at, on) => {
                    if let Some(name) = node_name(&cluster, at) {
                        let mut node = cluster.nodes[&name].clone();
                        node.spec = on.then(|| serde_json::from_value(
                            json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] }),
                        ).unwrap());
                        cluster.update_node(node);
                    }
                }
            }
            run_until_idle(&mut cluster);
            let oracle = Oracle(&cluster);
            for (name, pod) in cluster.pods.iter().filter(|(name, _)| cluster.node_of(name).is_none()) {
                for (at, node) in &cluster.nodes {
                    prop_assert!(
                        !oracle.fits(pod, at, node),
                        "{name} ({}) is pending but fits {at} after {i}; message: {:?}", app(pod), cluster.messages.get(name)
                    );
                }
            }
        }
    }
}
