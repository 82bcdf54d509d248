//! Inter-pod affinity, anti-affinity and topology spread.

use k8s_openapi::api::core::v1::Namespace;
use plumb_controller_runtime::WatchEvent;
use serde_json::{Value, json};

use super::cluster::{Cluster, node, pod};

fn spread(more: Value) -> Value {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    });
    for (key, value) in more.as_object().unwrap() {
        constraint[key] = value.clone();
    }
    json!({ "spec": { "topologySpreadConstraints": [constraint] } })
}

fn count_in(cluster: &Cluster, nodes: &[&str]) -> usize {
    cluster.pods.keys().filter(|name| cluster.node_of(name).is_some_and(|node| nodes.contains(&node))).count()
}

#[test]
fn pods_are_spread_over_zones_within_their_max_skew() {
    let mut cluster =
        Cluster::new([node("a1", 8, "a"), node("a2", 8, "a"), node("b1", 8, "b"), node("c1", 1, "c")]);
    for i in 0..9 {
        cluster.update(pod(&format!("p{i}"), 500, spread(json!({}))));
    }
    cluster.run_until_idle();
    // Zone c has space for two: with three in a and in b, a fourth one there would exceed the skew.
    assert_eq!(count_in(&cluster, &["c1"]), 2);
    assert_eq!(count_in(&cluster, &["a1", "a2"]), 3);
    assert_eq!(count_in(&cluster, &["b1"]), 3);
    let waits = cluster.pods.keys().find(|name| cluster.node_of(name).is_none()).unwrap().clone();
    assert!(
        cluster.messages[&waits].starts_with(
            "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, \
             3 node(s) didn't match pod topology spread constraints."
        ),
        "{}",
        cluster.messages[&waits]
    );
    // A deleted pod of zone c frees capacity there.
    let leaver = cluster.pods.keys().find(|name| cluster.node_of(name) == Some("c1")).unwrap().clone();
    cluster.delete(&leaver);
    cluster.run_until_idle();
    assert_eq!(count_in(&cluster, &["c1"]), 2);
}

#[test]
fn too_few_zones_count_as_empty_ones() {
    let mut cluster = Cluster::new([node("a1", 8, "a"), node("b1", 8, "b")]);
    for i in 0..3 {
        cluster.update(pod(&format!("p{i}"), 500, spread(json!({ "minDomains": 3 }))));
    }
    cluster.run_until_idle();
    assert_eq!(count_in(&cluster, &["a1", "b1"]), 2, "one each, as if there were a third zone without any");
    cluster.update_node(node("c1", 8, "c"));
    cluster.run_until_idle();
    assert_eq!(count_in(&cluster, &["c1"]), 1);
}

#[test]
fn nodes_that_node_affinity_excludes_do_not_count_for_spread() {
    let only_ab = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["c"] },
        ] }],
    } } } });
    let mut overrides = spread(json!({}));
    overrides["spec"]["affinity"] = only_ab["affinity"].clone();
    let mut cluster = Cluster::new([node("a1", 8, "a"), node("b1", 8, "b"), node("c1", 8, "c")]);
    for i in 0..4 {
        cluster.update(pod(&format!("p{i}"), 500, overrides.clone()));
    }
    cluster.run_until_idle();
    assert_eq!((count_in(&cluster, &["a1"]), count_in(&cluster, &["b1"])), (2, 2));
    // Unless `nodeAffinityPolicy` is `Ignore`.
    overrides["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    overrides["metadata"]["labels"]["app"] = json!("web");
    cluster.update(pod("q", 500, overrides));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("q"), None);
}

#[test]
fn an_empty_selector_counts_no_pods() {
    let mut cluster = Cluster::new([node("a1", 8, "a"), node("b1", 1, "b")]);
    for i in 0..6 {
        cluster.update(pod(&format!("p{i}"), 500, spread(json!({ "labelSelector": {} }))));
    }
    cluster.run_until_idle();
    assert_eq!(count_in(&cluster, &["a1", "b1"]), 6);
}

fn near(key: &str, app: &str) -> Value {
    json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } },
    ] } } } })
}

const HOST: &str = "kubernetes.io/hostname";

#[test]
fn the_first_pod_of_an_affinity_group_fits_any_node() {
    let mut cluster = Cluster::new([node("n1", 4, "a"), node("n2", 4, "b"), node("n3", 4, "c")]);
    for i in 0..3 {
        cluster.update(pod(&format!("p{i}"), 500, near(HOST, "web")));
    }
    cluster.run_until_idle();
    let first = cluster.node_of("p0").unwrap().to_owned();
    assert_eq!(count_in(&cluster, &[&first]), 3);
}

#[test]
fn a_pod_with_affinity_is_pending_until_a_matching_pod_exists() {
    let mut cluster = Cluster::new([node("n1", 4, "a"), node("n2", 4, "b")]);
    cluster.update(pod("p", 500, near(HOST, "db")));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), None);
    cluster.update(pod("db", 500, json!({ "metadata": { "labels": { "app": "db" } } })));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), cluster.node_of("db"));
}

#[test]
fn anti_affinity_of_existing_pods_keeps_others_away() {
    let apart = |app: &str| {
        json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": HOST, "labelSelector": { "matchLabels": { "app": app } } },
        ] } } } })
    };
    let mut cluster = Cluster::new([node("n1", 4, "a")]);
    cluster.update(pod("loner", 500, apart("web")));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("loner"), Some("n1"), "alone, although it is of the kind itself");
    cluster.update(pod("p", 500, json!({})));
    cluster.run_until_idle();
    assert!(
        cluster.messages["p"].starts_with(
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
        ),
        "{}",
        cluster.messages["p"]
    );
    cluster.update(pod("q", 500, apart("web")));
    cluster.run_until_idle();
    assert!(
        cluster.messages["q"]
            .starts_with("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
        "{}",
        cluster.messages["q"]
    );
    cluster.delete("loner");
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("n1"));
}

#[test]
fn namespace_selectors_match_the_current_labels() {
    let mut overrides = near(HOST, "db");
    let term = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
    overrides.pointer_mut(term).unwrap()["namespaceSelector"] = json!({ "matchLabels": { "team": "x" } });
    let namespace = |labels: Value| -> Namespace {
        serde_json::from_value(json!({ "metadata": { "name": "data", "labels": labels } })).unwrap()
    };
    let mut cluster = Cluster::new([node("n1", 4, "a")]);
    cluster.planner.handle_namespaces(WatchEvent::Applied(Box::new(namespace(json!({})))));
    cluster.update(pod("db", 500, json!({ "metadata": { "namespace": "data", "labels": { "app": "db" } } })));
    cluster.update(pod("p", 500, overrides));
    cluster.run_until_idle();
    assert_eq!((cluster.node_of("db"), cluster.node_of("p")), (Some("n1"), None));
    cluster.planner.handle_namespaces(WatchEvent::Applied(Box::new(namespace(json!({ "team": "x" })))));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("n1"));
}

#[test]
fn preferred_terms_decide_among_feasible_nodes() {
    let like_zone = json!({ "spec": { "affinity": { "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 50, "preference": { "matchExpressions": [
            { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"] },
        ] } }],
    } } } });
    let like_db = json!({ "spec": { "affinity": { "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 50, "podAffinityTerm": {
            "topologyKey": HOST, "labelSelector": { "matchLabels": { "app": "db" } },
        } }],
    } } } });
    let mut cluster = Cluster::new([node("n1", 8, "a"), node("n2", 8, "b"), node("n3", 8, "c")]);
    cluster.update(pod("db", 500, {
        let mut db = like_zone.clone();
        db["metadata"]["labels"]["app"] = json!("db");
        db
    }));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("db"), Some("n2"));
    cluster.update(pod("friend", 500, like_db));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("friend"), Some("n2"));
}

#[test]
fn pods_of_one_controller_are_spread_over_nodes_by_default() {
    let mut cluster = Cluster::new((0..4).map(|i| node(&format!("n{i}"), 8, "a")));
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true },
    ] } });
    for i in 0..8 {
        cluster.update(pod(&format!("p{i}"), 100, owned.clone()));
    }
    cluster.run_until_idle();
    for i in 0..4 {
        assert_eq!(count_in(&cluster, &[&format!("n{i}")]), 2);
    }
}
