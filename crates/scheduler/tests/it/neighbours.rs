//! Pods that want others near, far, or spread.

use k8s_openapi::api::core::v1::Namespace;
use plumb_controller::WatchEvent;
use serde_json::{Value, json};

use super::world::{World, node, pod};

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

fn count_in(world: &World, nodes: &[&str]) -> usize {
    world.pods.keys().filter(|name| world.node_of(name).is_some_and(|node| nodes.contains(&node))).count()
}

#[test]
fn pods_are_spread_over_zones_as_evenly_as_they_ask() {
    let mut world =
        World::new([node("a1", 8, "a"), node("a2", 8, "a"), node("b1", 8, "b"), node("c1", 1, "c")]);
    for i in 0..9 {
        world.put(pod(&format!("p{i}"), 500, spread(json!({}))));
    }
    world.settle();
    // Zone c holds two of them; a third one there would be needed before a or b get their fourth.
    assert_eq!(count_in(&world, &["c1"]), 2);
    assert_eq!(count_in(&world, &["a1", "a2"]), 3);
    assert_eq!(count_in(&world, &["b1"]), 3);
    let waits = world.pods.keys().find(|name| world.node_of(name).is_none()).unwrap().clone();
    assert!(
        world.said[&waits].starts_with(
            "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, \
             3 node(s) didn't match pod topology spread constraints."
        ),
        "{}",
        world.said[&waits]
    );
    // One that leaves zone c makes room there.
    let leaver = world.pods.keys().find(|name| world.node_of(name) == Some("c1")).unwrap().clone();
    world.delete(&leaver);
    world.settle();
    assert_eq!(count_in(&world, &["c1"]), 2);
}

#[test]
fn too_few_zones_count_as_empty_ones() {
    let mut world = World::new([node("a1", 8, "a"), node("b1", 8, "b")]);
    for i in 0..3 {
        world.put(pod(&format!("p{i}"), 500, spread(json!({ "minDomains": 3 }))));
    }
    world.settle();
    assert_eq!(count_in(&world, &["a1", "b1"]), 2, "one each, as if there were a third zone without any");
    world.put_node(node("c1", 8, "c"));
    world.settle();
    assert_eq!(count_in(&world, &["c1"]), 1);
}

#[test]
fn nodes_that_a_pod_may_not_have_do_not_count_for_its_spread() {
    let only_ab = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["c"] },
        ] }],
    } } } });
    let mut wish = spread(json!({}));
    wish["spec"]["affinity"] = only_ab["affinity"].clone();
    let mut world = World::new([node("a1", 8, "a"), node("b1", 8, "b"), node("c1", 8, "c")]);
    for i in 0..4 {
        world.put(pod(&format!("p{i}"), 500, wish.clone()));
    }
    world.settle();
    assert_eq!((count_in(&world, &["a1"]), count_in(&world, &["b1"])), (2, 2));
    // Unless the pod says that they do.
    wish["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    wish["metadata"]["labels"]["app"] = json!("web");
    world.put(pod("q", 500, wish));
    world.settle();
    assert_eq!(world.node_of("q"), None);
}

#[test]
fn a_selector_that_asks_for_nothing_counts_nobody() {
    let mut world = World::new([node("a1", 8, "a"), node("b1", 1, "b")]);
    for i in 0..6 {
        world.put(pod(&format!("p{i}"), 500, spread(json!({ "labelSelector": {} }))));
    }
    world.settle();
    assert_eq!(count_in(&world, &["a1", "b1"]), 6);
}

fn near(key: &str, app: &str) -> Value {
    json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } },
    ] } } } })
}

const HOST: &str = "kubernetes.io/hostname";

#[test]
fn the_first_of_those_that_want_to_be_together_goes_anywhere() {
    let mut world = World::new([node("n1", 4, "a"), node("n2", 4, "b"), node("n3", 4, "c")]);
    for i in 0..3 {
        world.put(pod(&format!("p{i}"), 500, near(HOST, "web")));
    }
    world.settle();
    let first = world.node_of("p0").unwrap().to_owned();
    assert_eq!(count_in(&world, &[&first]), 3);
}

#[test]
fn who_wants_to_be_near_waits_until_the_other_is_there() {
    let mut world = World::new([node("n1", 4, "a"), node("n2", 4, "b")]);
    world.put(pod("p", 500, near(HOST, "db")));
    world.settle();
    assert_eq!(world.node_of("p"), None);
    world.put(pod("db", 500, json!({ "metadata": { "labels": { "app": "db" } } })));
    world.settle();
    assert_eq!(world.node_of("p"), world.node_of("db"));
}

#[test]
fn whoever_is_there_may_keep_others_away() {
    let apart = |app: &str| {
        json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": HOST, "labelSelector": { "matchLabels": { "app": app } } },
        ] } } } })
    };
    let mut world = World::new([node("n1", 4, "a")]);
    world.put(pod("loner", 500, apart("web")));
    world.settle();
    assert_eq!(world.node_of("loner"), Some("n1"), "alone, although it is of the kind itself");
    world.put(pod("p", 500, json!({})));
    world.settle();
    assert!(
        world.said["p"].starts_with(
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
        ),
        "{}",
        world.said["p"]
    );
    world.put(pod("q", 500, apart("web")));
    world.settle();
    assert!(
        world.said["q"]
            .starts_with("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
        "{}",
        world.said["q"]
    );
    world.delete("loner");
    world.settle();
    assert_eq!(world.node_of("p"), Some("n1"));
}

#[test]
fn namespaces_are_chosen_by_their_labels_as_they_are_now() {
    let mut wish = near(HOST, "db");
    let term = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
    wish.pointer_mut(term).unwrap()["namespaceSelector"] = json!({ "matchLabels": { "team": "x" } });
    let namespace = |labels: Value| -> Namespace {
        serde_json::from_value(json!({ "metadata": { "name": "data", "labels": labels } })).unwrap()
    };
    let mut world = World::new([node("n1", 4, "a")]);
    world.planner.namespaces(WatchEvent::Applied(Box::new(namespace(json!({})))));
    world.put(pod("db", 500, json!({ "metadata": { "namespace": "data", "labels": { "app": "db" } } })));
    world.put(pod("p", 500, wish));
    world.settle();
    assert_eq!((world.node_of("db"), world.node_of("p")), (Some("n1"), None));
    world.planner.namespaces(WatchEvent::Applied(Box::new(namespace(json!({ "team": "x" })))));
    world.settle();
    assert_eq!(world.node_of("p"), Some("n1"));
}

#[test]
fn liked_nodes_and_liked_company_decide_between_nodes_with_room() {
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
    let mut world = World::new([node("n1", 8, "a"), node("n2", 8, "b"), node("n3", 8, "c")]);
    world.put(pod("db", 500, {
        let mut db = like_zone.clone();
        db["metadata"]["labels"]["app"] = json!("db");
        db
    }));
    world.settle();
    assert_eq!(world.node_of("db"), Some("n2"));
    world.put(pod("friend", 500, like_db));
    world.settle();
    assert_eq!(world.node_of("friend"), Some("n2"));
}

#[test]
fn pods_of_one_owner_are_spread_over_nodes_if_they_say_nothing() {
    let mut world = World::new((0..4).map(|i| node(&format!("n{i}"), 8, "a")));
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true },
    ] } });
    for i in 0..8 {
        world.put(pod(&format!("p{i}"), 100, owned.clone()));
    }
    world.settle();
    for i in 0..4 {
        assert_eq!(count_in(&world, &[&format!("n{i}")]), 2);
    }
}
