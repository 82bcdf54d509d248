//! The messages of unschedulable pods, in upstream's words.

use plumb_features::FeatureGates;
use plumb_resize::rules::Rules;
use plumb_scheduler::Settings;
use plumb_scheduler::features::NODE_DECLARED_FEATURES;
use serde_json::{Value, json};

use super::cluster::{Cluster, node, node_from, pod};

/// Three nodes of 4 cores: one in zone a, one in zone b with a taint, one in zone b that takes no new pods.
fn three() -> Cluster {
    let mut tainted = node("n2", 4, "b");
    tainted.spec =
        serde_json::from_value(json!({ "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] }))
            .unwrap();
    let mut closed = node("n3", 4, "b");
    closed.spec = serde_json::from_value(json!({ "unschedulable": true })).unwrap();
    Cluster::new([node("n1", 4, "a"), tainted, closed])
}

fn affinity(operator: &str, key: &str, values: &[&str]) -> Value {
    json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }],
    } } } } })
}

#[test]
fn every_reason_is_counted_and_sorted() {
    let no_victims = "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, \
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
                let mut overrides = affinity("In", "topology.kubernetes.io/zone", &["c"]);
                overrides["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
                overrides
            },
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            useless,
        ),
        (
            "a device that no node has",
            100,
            json!({ "spec": { "containers": [{ "name": "c", "resources": {
                "requests": { "cpu": "1", "example.com/gpu": "1" },
            } }] } }),
            "0/3 nodes are available: 1 Insufficient example.com/gpu, 1 node(s) had untolerated taint(s), \
             1 node(s) were unschedulable.",
            useless,
        ),
        (
            "a topology key that no node has",
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
        let mut cluster = three();
        cluster.update(pod("p", cpu, more));
        cluster.run_until_idle();
        assert_eq!(
            cluster.messages.get("p").map(String::as_str),
            Some(&*format!("{why} {preemption}")),
            "{name}"
        );
    }
    let mut cluster = three();
    cluster.update(pod("first", 4000, json!({})));
    cluster.update(pod("p", 4000, json!({})));
    cluster.run_until_idle();
    assert_eq!(
        cluster.messages["p"],
        format!(
            "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, \
             1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. {no_victims}"
        )
    );
}

#[test]
fn a_cluster_without_nodes_has_its_own_message() {
    let mut cluster = Cluster::new([]);
    cluster.update(pod("p", 100, json!({})));
    cluster.run_until_idle();
    assert_eq!(cluster.messages["p"], "no nodes available to schedule pods");
    cluster.update_node(node("n", 1, "a"));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("n"));
}

#[test]
fn a_node_has_a_largest_number_of_pods_and_each_host_port_once() {
    let small = json!({
        "metadata": { "name": "n" },
        "status": { "allocatable": { "cpu": "4", "memory": "4Gi", "pods": "2" } },
    });
    let mut cluster = Cluster::new([node_from(small)]);
    let port = |ip: &str| {
        json!({ "spec": { "containers": [{ "name": "c", "ports": [
            { "containerPort": 80, "hostPort": 80, "hostIP": ip, "protocol": "TCP" },
        ] }] } })
    };
    cluster.update(pod("a", 0, port("127.0.0.1")));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("a"), Some("n"));
    cluster.update(pod("b", 0, port("")));
    cluster.run_until_idle();
    assert!(cluster.messages["b"].starts_with(
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    ));
    cluster.update(pod("c", 0, port("127.0.0.2")));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("c"), Some("n"), "another address is another port");
    cluster.delete("a");
    cluster.delete("c");
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("b"), Some("n"), "woken by the port that became free");
    cluster.update(pod("d", 0, json!({})));
    cluster.update(pod("e", 0, json!({})));
    cluster.run_until_idle();
    let late = ["d", "e"].into_iter().find(|name| cluster.node_of(name).is_none()).unwrap();
    assert!(
        cluster.messages[late].starts_with("0/1 nodes are available: 1 Too many pods."),
        "{}",
        cluster.messages[late]
    );
}

#[test]
fn pods_of_other_schedulers_and_gated_pods_are_not_scheduled() {
    let mut cluster = Cluster::with(Settings::new(Rules::v1_36()), [node("n", 4, "a")]);
    cluster.update(pod("other", 100, json!({ "spec": { "schedulerName": "mine" } })));
    cluster.update(pod("gated", 100, json!({ "spec": { "schedulingGates": [{ "name": "wait" }] } })));
    cluster.run_until_idle();
    assert_eq!((cluster.node_of("other"), cluster.node_of("gated")), (None, None));
    assert_eq!(cluster.planner.depths().gated, 1);
    cluster.change("gated", |pod| pod.spec.as_mut().unwrap().scheduling_gates = None);
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("gated"), Some("n"));
}

/// Fields of a pod that needs a feature of its node.
fn restarting_all() -> Value {
    let rules =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [1] } }]);
    json!({ "spec": { "containers": [{ "name": "c", "restartPolicyRules": rules }] } })
}

#[test]
fn a_pod_waits_for_a_node_that_declares_the_feature_that_it_needs() {
    let mut cluster = Cluster::new([node("n1", 4, "a"), node("n2", 4, "b")]);
    cluster.update(pod("p", 100, restarting_all()));
    cluster.update(pod("other", 100, json!({})));
    cluster.run_until_idle();
    assert_eq!(
        cluster.messages["p"],
        "0/2 nodes are available: 2 node(s) didn't match Pod's required features. \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    assert!(cluster.node_of("other").is_some(), "it needs no feature");
    let mut upgraded = node("n2", 4, "b");
    let features = vec!["RestartAllContainersOnContainerExits".to_owned()];
    upgraded.status.as_mut().unwrap().declared_features = Some(features);
    cluster.update_node(upgraded);
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("n2"));
}

#[test]
fn without_the_gate_no_node_is_filtered_by_its_features() {
    let gates = FeatureGates::default().with(&NODE_DECLARED_FEATURES, false);
    let settings = Settings::new(Rules::kep()).with_features(&gates);
    let mut cluster = Cluster::with(settings, [node("n1", 4, "a")]);
    cluster.update(pod("p", 100, restarting_all()));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("n1"));
}
