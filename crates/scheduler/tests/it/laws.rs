//! What holds whatever happens, in whatever order.

use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_resize::accounting::{on_node, requested};
use plumb_resize::list::ResourceList;
use plumb_resize::rules::Rules;
use plumb_scheduler::Decision;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, node, pod};

/// Something that happens.
#[derive(Clone, Debug)]
enum Op {
    Create {
        cpu: i64,
        kind: usize,
    },
    Delete(usize),
    /// Another amount is asked for; it is allocated and in force only later.
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

fn wishes(kind: &str) -> Value {
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
        // Nobody plain may come to its node, whoever came first.
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

/// What is on nodes, counted anew each time.
struct Oracle<'a>(&'a World);

impl Oracle<'_> {
    fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.0.pods.iter().filter(move |(name, _)| self.0.node_of(name) == Some(node)).map(|(_, pod)| pod)
    }

    fn held(&self, node: &str) -> ResourceList {
        let mut held = ResourceList::default();
        for pod in self.on(node) {
            held.add(&on_node(pod, &Rules::kep()).unwrap());
        }
        held
    }

    fn has_room(&self, name: &str, node: &Node, more: &ResourceList) -> bool {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = ResourceList::read(allocatable).unwrap();
        let mut held = self.held(name);
        held.add(more);
        more.iter().all(|(resource, _)| held.get(resource) <= allocatable.get(resource))
    }

    fn in_zone<'a>(&'a self, zone: &'a str, kind: &'a str) -> usize {
        let nodes = self.0.nodes.iter().filter(move |(_, node)| label(node, ZONE) == zone);
        nodes.flat_map(|(name, _)| self.on(name)).filter(|pod| app(pod) == kind).count()
    }

    fn neighbours_allow(&self, name: &str, node: &Node, kind: &str) -> bool {
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

    /// Whether a pod that waits could go to a node.
    fn fits(&self, pod: &Pod, name: &str, node: &Node) -> bool {
        let tainted = node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
        !tainted
            && self.has_room(name, node, &requested(pod).unwrap())
            && self.neighbours_allow(name, node, app(pod))
    }
}

/// Decides until there is nothing left to decide, and looks at every step.
fn settle(world: &mut World) {
    for _ in 0..10_000 {
        match world.step() {
            None => return,
            Some(Decision::Bind { pod, node, .. }) => {
                let oracle = Oracle(world);
                let bound = &world.nodes[&node];
                let allocatable = bound.status.as_ref().and_then(|status| status.allocatable.as_ref());
                let allocatable = ResourceList::read(allocatable).unwrap();
                for (resource, held) in oracle.held(&node).iter() {
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

    /// No node is ever given more than it has, and no pod waits that fits somewhere.
    #[test]
    fn no_node_is_over_committed_and_whoever_fits_is_bound(ops in prop::collection::vec(op(), 1..60)) {
        let zones = ["a", "b", "c"];
        let nodes = (0..3).map(|i| node(&format!("n{i}"), 3, zones[i]));
        let mut world = World::new(nodes);
        for (i, op) in ops.into_iter().enumerate() {
            let placed = |world: &World, at: usize| {
                let names: Vec<&String> = world.pods.keys().filter(|name| world.node_of(name).is_some()).collect();
                (!names.is_empty()).then(|| names[at % names.len()].clone())
            };
            let node_name = |world: &World, at: usize| {
                let names: Vec<&String> = world.nodes.keys().collect();
                (!names.is_empty()).then(|| names[at % names.len()].clone())
            };
            match op {
                Op::Create { cpu, kind } => world.put(pod(&format!("p{i:03}"), cpu, wishes(KINDS[kind]))),
                Op::Delete(at) => {
                    let names: Vec<String> = world.pods.keys().cloned().collect();
                    if !names.is_empty() {
                        world.delete(&names[at % names.len()]);
                    }
                }
                Op::Resize(at, cpu) => {
                    if let Some(name) = placed(&world, at) {
                        world.change(&name, |pod| resize(pod, cpu));
                    }
                }
                Op::Actuate(at) => {
                    if let Some(name) = placed(&world, at) {
                        world.change(&name, actuate);
                    }
                }
                Op::AddNode(cores) => world.put_node(node(&format!("m{i}"), cores, zones[i % 3])),
                Op::DropNode(at) => {
                    if let Some(name) = node_name(&world, at).filter(|_| world.nodes.len() > 1) {
                        // Whoever was on it goes with it.
                        let lost: Vec<String> =
                            world.pods.keys().filter(|pod| world.node_of(pod) == Some(&name)).cloned().collect();
                        world.drop_node(&name);
                        for pod in &lost {
                            world.delete(pod);
                        }
                    }
                }
                Op::Taint(at, on) => {
                    if let Some(name) = node_name(&world, at) {
                        let mut node = world.nodes[&name].clone();
                        node.spec = on.then(|| serde_json::from_value(
                            json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] }),
                        ).unwrap());
                        world.put_node(node);
                    }
                }
            }
            settle(&mut world);
            let oracle = Oracle(&world);
            for (name, pod) in world.pods.iter().filter(|(name, _)| world.node_of(name).is_none()) {
                for (at, node) in &world.nodes {
                    prop_assert!(
                        !oracle.fits(pod, at, node),
                        "{name} ({}) waits but fits {at} after {i}; said: {:?}", app(pod), world.said.get(name)
                    );
                }
            }
        }
    }
}
