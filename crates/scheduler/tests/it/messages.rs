//! What users read when a pod has no node, in upstream's words.

use plumb_resize::rules::Rules;
use plumb_scheduler::Settings;
use serde_json::{Value, json};

use super::world::{World, node, node_from, pod};

/// Three nodes of 4 cores: one in zone a, one in zone b with a taint, one in zone b that takes no new pods.
fn three() -> World {
    let mut tainted = node("n2", 4, "b");
    tainted.spec =
        serde_json::from_value(json!({ "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] }))
            .unwrap();
    let mut closed = node("n3", 4, "b");
    closed.spec = serde_json::from_value(json!({ "unschedulable": true })).unwrap();
    World::new([node("n1", 4, "a"), tainted, closed])
}

fn affinity(operator: &str, key: &str, values: &[&str]) -> Value {
    json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }],
    } } } } })
}

#[test]
fn every_reason_is_counted_and_sorted() {
    let nobody = "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, \
                  2 Preemption is not helpful for scheduling.";
    let useless = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    let table = [
        (
            "too large for any node",
            5000,
            json!({}),
            "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), \
             1 node(s) were unschedulable.",
            useless,
        ),
        (
            "a node that is not there",
            100,
            json!({ "spec": { "nodeSelector": { "disk": "ssd" } } }),
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
             1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
            useless,
        ),
        (
            "taints are borne, the zone is not there",
            100,
            {
                let mut wish = affinity("In", "topology.kubernetes.io/zone", &["c"]);
                wish["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
                wish
            },
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            useless,
        ),
        (
            "a device that nobody has",
            100,
            json!({ "spec": { "containers": [{ "name": "c", "resources": {
                "requests": { "cpu": "1", "example.com/gpu": "1" },
            } }] } }),
            "0/3 nodes are available: 1 Insufficient example.com/gpu, 1 node(s) had untolerated taint(s), \
             1 node(s) were unschedulable.",
            useless,
        ),
        (
            "a label by which to spread that nobody has",
            100,
            json!({ "spec": { "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "web" } },
            }] } }),
            "0/3 nodes are available: \
             1 node(s) didn't match pod topology spread constraints (missing required label), \
             1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
            useless,
        ),
        (
            "pods that are nowhere",
            100,
            json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "db" } },
            }] } } } }),
            "0/3 nodes are available: 1 node(s) didn't match pod affinity rules, 1 node(s) had untolerated taint(s), \
             1 node(s) were unschedulable.",
            useless,
        ),
        (
            "names of two nodes at once",
            100,
            json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchFields": [
                    { "key": "metadata.name", "operator": "In", "values": ["n1"] },
                    { "key": "metadata.name", "operator": "In", "values": ["n2"] },
                ] }],
            } } } } }),
            "0/3 nodes are available: pod affinity terms conflict.",
            useless,
        ),
        (
            "the name of a node that does not take it",
            100,
            json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchFields": [
                    { "key": "metadata.name", "operator": "In", "values": ["n2"] },
                ] }],
            } } } } }),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), \
             2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
            useless,
        ),
    ];
    for (name, cpu, more, why, preemption) in table {
        let mut world = three();
        world.put(pod("p", cpu, more));
        world.settle();
        assert_eq!(world.said.get("p").map(String::as_str), Some(&*format!("{why} {preemption}")), "{name}");
    }
    let mut world = three();
    world.put(pod("first", 4000, json!({})));
    world.put(pod("p", 4000, json!({})));
    world.settle();
    assert_eq!(
        world.said["p"],
        format!(
            "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, \
             1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. {nobody}"
        )
    );
}

#[test]
fn a_cluster_without_nodes_says_so() {
    let mut world = World::new([]);
    world.put(pod("p", 100, json!({})));
    world.settle();
    assert_eq!(world.said["p"], "no nodes available to schedule pods");
    world.put_node(node("n", 1, "a"));
    world.settle();
    assert_eq!(world.node_of("p"), Some("n"));
}

#[test]
fn as_many_pods_as_a_node_takes_and_as_many_ports_as_it_has() {
    let small = json!({
        "metadata": { "name": "n" },
        "status": { "allocatable": { "cpu": "4", "memory": "4Gi", "pods": "2" } },
    });
    let mut world = World::new([node_from(small)]);
    let port = |ip: &str| {
        json!({ "spec": { "containers": [{ "name": "c", "ports": [
            { "containerPort": 80, "hostPort": 80, "hostIP": ip, "protocol": "TCP" },
        ] }] } })
    };
    world.put(pod("a", 0, port("127.0.0.1")));
    world.settle();
    assert_eq!(world.node_of("a"), Some("n"));
    world.put(pod("b", 0, port("")));
    world.settle();
    assert!(world.said["b"].starts_with(
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    ));
    world.put(pod("c", 0, port("127.0.0.2")));
    world.settle();
    assert_eq!(world.node_of("c"), Some("n"), "another address is another port");
    world.delete("a");
    world.delete("c");
    world.settle();
    assert_eq!(world.node_of("b"), Some("n"), "woken by the port that became free");
    world.put(pod("d", 0, json!({})));
    world.put(pod("e", 0, json!({})));
    world.settle();
    let late = ["d", "e"].into_iter().find(|name| world.node_of(name).is_none()).unwrap();
    assert!(
        world.said[late].starts_with("0/1 nodes are available: 1 Too many pods."),
        "{}",
        world.said[late]
    );
}

#[test]
fn pods_of_other_schedulers_and_gated_ones_are_left_alone() {
    let mut world = World::with(Settings::new(Rules::v1_36()), [node("n", 4, "a")]);
    world.put(pod("other", 100, json!({ "spec": { "schedulerName": "mine" } })));
    world.put(pod("gated", 100, json!({ "spec": { "schedulingGates": [{ "name": "wait" }] } })));
    world.settle();
    assert_eq!((world.node_of("other"), world.node_of("gated")), (None, None));
    assert_eq!(world.planner.depths().gated, 1);
    world.change("gated", |pod| pod.spec.as_mut().unwrap().scheduling_gates = None);
    world.settle();
    assert_eq!(world.node_of("gated"), Some("n"));
}
