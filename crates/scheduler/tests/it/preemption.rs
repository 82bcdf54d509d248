//! Who has to leave for whom.

use plumb_features::FeatureGates;
use plumb_resize::rules::Rules;
use plumb_scheduler::Settings;
use plumb_scheduler::features::RESIZE_PREEMPTION;
use serde_json::{Value, json};

use super::world::{World, node, pod};

fn priority(priority: i32) -> Value {
    json!({ "spec": { "priority": priority } })
}

/// A pod on a node, with a priority and a start.
fn running(
    name: &str,
    cpu: i64,
    node: &str,
    priority: i32,
    started: &str,
) -> k8s_openapi::api::core::v1::Pod {
    pod(
        name,
        cpu,
        json!({
            "metadata": { "labels": { "app": name } },
            "spec": { "priority": priority, "nodeName": node },
            "status": { "startTime": started, "phase": "Running" },
        }),
    )
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-02T00:00:00Z";

fn victims(world: &World) -> Vec<(String, Vec<String>)> {
    let of = |eviction: &plumb_scheduler::Eviction| {
        (eviction.node.clone(), eviction.victims.iter().map(|pod| pod.name.clone()).collect())
    };
    world.evictions.iter().map(of).collect()
}

#[test]
fn as_few_leave_as_possible_and_the_least_important_ones() {
    let mut world = World::new([node("n", 4, "a")]);
    world.put(running("old", 1000, "n", 1, EARLY));
    world.put(running("new", 1000, "n", 1, LATE));
    world.put(running("mid", 1000, "n", 5, LATE));
    world.put(running("peer", 1000, "n", 10, EARLY));
    world.put(pod("p", 1000, priority(10)));
    world.settle();
    assert_eq!(victims(&world), [("n".to_owned(), vec!["new".to_owned()])]);
    assert_eq!(world.node_of("p"), Some("n"));
}

#[test]
fn the_node_is_taken_whose_loss_is_smallest() {
    // Each differs from the last in what decides before it.
    type Running = (&'static str, i64, &'static str, i32, &'static str);
    let table: &[(&str, &[Running], &str)] = &[
        ("the lower highest priority", &[("a", 4000, "n1", 5, EARLY), ("b", 4000, "n2", 4, EARLY)], "n2"),
        (
            "the smaller sum of priorities",
            &[
                ("a", 2000, "n1", 5, EARLY),
                ("b", 2000, "n1", 4, EARLY),
                ("c", 2000, "n2", 5, EARLY),
                ("d", 2000, "n2", 3, EARLY),
            ],
            "n2",
        ),
        (
            "the fewer pods",
            &[("a", 2000, "n1", 5, EARLY), ("b", 2000, "n1", 5, EARLY), ("c", 4000, "n2", 5, EARLY)],
            "n2",
        ),
        ("the later start", &[("a", 4000, "n1", 5, EARLY), ("b", 4000, "n2", 5, LATE)], "n2"),
    ];
    for (name, pods, expected) in table {
        let mut world = World::new([node("n1", 4, "a"), node("n2", 4, "a")]);
        for (name, cpu, node, priority, started) in *pods {
            world.put(running(name, *cpu, node, *priority, started));
        }
        world.put(pod("p", 4000, priority(10)));
        world.settle();
        assert_eq!(world.node_of("p"), Some(*expected), "{name}");
    }
}

#[test]
fn a_disruption_budget_is_broken_only_where_nothing_else_helps() {
    let budget = |allowed: i32| {
        json!({
            "metadata": { "name": "b", "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "app": "kept" } } },
            "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
        })
    };
    let world = |allowed: i32, with_other: bool| {
        let mut world = World::new([node("n1", 4, "a"), node("n2", 4, "a")]);
        world.put_budget(budget(allowed));
        world.put(running("kept", 4000, "n1", 0, LATE));
        if with_other {
            world.put(running("other", 4000, "n2", 5, EARLY));
        } else {
            world.put(running("other", 4000, "n2", 10, EARLY));
        }
        world.put(pod("p", 4000, priority(10)));
        world.settle();
        victims(&world)
    };
    assert_eq!(
        world(0, true),
        [("n2".to_owned(), vec!["other".to_owned()])],
        "although it is more important"
    );
    assert_eq!(world(1, true), [("n1".to_owned(), vec!["kept".to_owned()])]);
    assert_eq!(world(0, false), [("n1".to_owned(), vec!["kept".to_owned()])], "there is nobody else");
    // On one node the unprotected one goes.
    let mut one = World::new([node("n1", 4, "a")]);
    one.put_budget(budget(0));
    one.put(running("kept", 2000, "n1", 0, LATE));
    one.put(running("other", 2000, "n1", 5, EARLY));
    one.put(pod("p", 2000, priority(10)));
    one.settle();
    assert_eq!(victims(&one), [("n1".to_owned(), vec!["other".to_owned()])]);
}

#[test]
fn who_waits_for_others_to_leave_keeps_the_node_until_they_have() {
    let mut world = World::new([node("n", 4, "a")]);
    world.graceful = true;
    world.put(running("low", 4000, "n", 0, EARLY));
    world.put(pod("p", 4000, priority(10)));
    world.settle();
    assert_eq!(victims(&world).len(), 1);
    let nominated = |world: &World| world.pods["p"].status.as_ref().unwrap().nominated_node_name.clone();
    assert_eq!(nominated(&world).as_deref(), Some("n"));
    // Nobody else is asked to leave, whatever happens, and nobody of lower or equal priority takes the room.
    world.put(pod("thief", 1000, priority(5)));
    world.put(pod("peer", 1000, priority(10)));
    world.pass(400);
    world.settle();
    assert_eq!(victims(&world).len(), 1);
    assert!(
        world.said["p"].ends_with("preemption: not eligible due to a terminating pod on the nominated node."),
        "{}",
        world.said["p"]
    );
    world.delete("low");
    world.settle();
    assert_eq!(world.node_of("p"), Some("n"));
    assert_eq!((world.node_of("thief"), world.node_of("peer")), (None, None));
}

#[test]
fn a_preemptor_gets_its_node_although_a_pod_like_it_comes_before_the_victim_is_gone() {
    let mut world = World::new([node("n", 4, "a")]);
    world.graceful = true;
    world.put(running("low", 4000, "n", 0, EARLY));
    world.put(pod("p", 4000, priority(10)));
    world.settle();
    assert_eq!(victims(&world).len(), 1);
    // Both are observed before anything is decided.
    world.put(pod("q", 4000, priority(10)));
    world.delete("low");
    world.settle();
    assert_eq!((world.node_of("p"), world.node_of("q")), (Some("n"), None));
}

#[test]
fn several_of_one_kind_each_find_their_own_victims() {
    let mut world = World::new([node("n1", 2, "a"), node("n2", 2, "a"), node("n3", 2, "a")]);
    for i in 1..=3 {
        world.put(running(&format!("low{i}"), 2000, &format!("n{i}"), 0, EARLY));
    }
    world.graceful = true;
    for name in ["a", "b", "c"] {
        world.put(pod(name, 2000, priority(10)));
    }
    world.settle();
    assert_eq!(victims(&world).len(), 3);
    for i in 1..=3 {
        world.delete(&format!("low{i}"));
    }
    world.settle();
    for name in ["a", "b", "c"] {
        assert!(world.node_of(name).is_some(), "{name}");
    }
}

#[test]
fn nobody_leaves_for_who_must_not_ask_or_would_gain_nothing() {
    let mut world = World::new([node("n", 4, "a")]);
    world.put(running("low", 3000, "n", 0, EARLY));
    world.put(pod("polite", 3000, json!({ "spec": { "priority": 10, "preemptionPolicy": "Never" } })));
    world.put(pod("huge", 5000, priority(10)));
    world.put(pod("picky", 1000, json!({ "spec": { "priority": 10, "nodeSelector": { "no": "where" } } })));
    world.settle();
    assert!(world.evictions.is_empty());
    assert!(world.said["polite"].ends_with("preemption: not eligible due to preemptionPolicy=Never."));
    for name in ["huge", "picky"] {
        let end = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
        assert!(world.said[name].ends_with(end), "{}", world.said[name]);
    }
}

#[test]
fn those_leave_whose_presence_is_in_the_way() {
    let apart = json!({ "spec": { "priority": 10, "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "loud" } } },
        ],
    } } } });
    let mut world = World::new([node("n", 4, "a")]);
    world.put(running("loud", 100, "n", 0, EARLY));
    world.put(running("still", 100, "n", 0, LATE));
    world.put(pod("p", 1000, apart));
    world.settle();
    assert_eq!(victims(&world), [("n".to_owned(), vec!["loud".to_owned()])]);
    assert_eq!(world.node_of("p"), Some("n"));
}

/// A pod on the node that waits for room to grow.
fn deferred(name: &str, allocated: i64, desired: i64, priority: i32) -> k8s_openapi::api::core::v1::Pod {
    let list = |cpu: i64| json!({ "cpu": format!("{cpu}m"), "memory": "1Mi" });
    pod(
        name,
        desired,
        json!({
            "spec": { "priority": priority, "nodeName": "n" },
            "status": {
                "phase": "Running", "resize": "Deferred",
                "conditions": [{ "type": "PodResizePending", "status": "True", "reason": "Deferred" }],
                "containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": list(allocated), "resources": { "requests": list(allocated) },
                }],
            },
        }),
    )
}

#[test]
fn for_a_deferred_resize_others_leave_if_the_gate_says_so() {
    let world = |preempt_for_resizes: bool, priority: i32, desired: i64| {
        let gates = FeatureGates::default().with(&RESIZE_PREEMPTION, preempt_for_resizes);
        let settings = Settings::new(Rules::kep()).with_features(&gates);
        let mut world = World::with(settings, [node("n", 4, "a")]);
        world.put(running("low", 1000, "n", 0, EARLY));
        world.put(running("mid", 1000, "n", 5, EARLY));
        world.put(deferred("grows", 2000, desired, priority));
        world.settle();
        victims(&world)
    };
    assert_eq!(world(false, 10, 3000), []);
    assert_eq!(world(true, 10, 3000), [("n".to_owned(), vec!["low".to_owned()])]);
    let both = vec!["mid".to_owned(), "low".to_owned()];
    assert_eq!(world(true, 10, 4000), [("n".to_owned(), both)]);
    assert_eq!(world(true, 10, 5000), [], "it would not fit even then");
    assert_eq!(world(true, 0, 3000), [], "nobody is less important");
}

#[test]
fn a_deferred_resize_does_not_ask_twice() {
    let settings = Settings { preempt_for_resizes: true, ..Settings::new(Rules::kep()) };
    let mut world = World::with(settings, [node("n", 4, "a")]);
    world.graceful = true;
    world.put(running("low", 1000, "n", 0, EARLY));
    world.put(running("mid", 1000, "n", 5, EARLY));
    world.put(deferred("grows", 2000, 3000, 10));
    world.settle();
    world.put(deferred("grows", 2000, 3000, 10));
    world.pass(10);
    world.settle();
    assert_eq!(victims(&world).len(), 1);
    world.delete("low");
    world.settle();
    assert_eq!(victims(&world).len(), 1);
}
