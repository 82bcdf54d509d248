//! Who comes first, and whom what happens wakes.

use std::time::Duration;

use plumb_controller::WatchEvent;
use plumb_scheduler::Decision;
use serde_json::json;

use super::world::{World, node, pod};

#[test]
fn the_higher_priority_comes_first_and_then_who_came_first() {
    let mut world = World::new([node("n", 8, "a")]);
    for (name, priority) in [("a", 0), ("b", 10), ("c", 0), ("d", 10)] {
        world.put(pod(name, 100, json!({ "spec": { "priority": priority } })));
    }
    let mut order = Vec::new();
    while let Some(decision) = world.step() {
        if let Decision::Bind { pod, .. } = decision {
            order.push(pod.name);
        }
    }
    assert_eq!(order, ["b", "d", "a", "c"]);
}

#[test]
fn a_shrink_wakes_those_that_it_helps_and_no_others() {
    let mut world = World::new([node("n", 4, "a")]);
    world.put(pod("large", 3000, json!({})));
    world.settle();
    world.put(pod("small", 2000, json!({})));
    world.put(pod("huge", 3500, json!({})));
    world.settle();
    assert_eq!(world.planner.depths().parked, 2);
    // Asked for, but still in force: nothing is free yet.
    let resize = |cpu: &str, actual: &str| {
        let amounts = |cpu: &str| json!({ "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") });
        let (wanted, actual) = (amounts(cpu), amounts(actual));
        move |pod: &mut k8s_openapi::api::core::v1::Pod| {
            pod.spec.as_mut().unwrap().containers[0].resources =
                serde_json::from_value(json!({ "requests": wanted })).unwrap();
            pod.status.get_or_insert_default().container_statuses = Some(vec![
                serde_json::from_value(json!({
                    "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": wanted, "resources": { "requests": actual },
                }))
                .unwrap(),
            ]);
        }
    };
    world.change("large", resize("1000", "3000"));
    world.settle();
    assert_eq!(world.node_of("small"), None);
    let before = world.said.clone();
    world.change("large", resize("1000", "1000"));
    world.said.clear();
    world.settle();
    assert_eq!(world.node_of("small"), Some("n"));
    assert!(world.said.is_empty(), "nobody else was tried: {:?}", world.said);
    assert!(before.contains_key("huge"));
}

#[test]
fn pods_of_one_kind_are_looked_at_once_and_bound_one_after_the_other() {
    let mut world = World::new([node("n", 4, "a")]);
    world.put(pod("first", 4000, json!({})));
    world.settle();
    for i in 0..100 {
        world.put(pod(&format!("p{i}"), 2000, json!({})));
    }
    world.settle();
    assert_eq!(world.planner.depths().parked, 100);
    assert_eq!(world.said.len(), 100, "each is told");
    world.delete("first");
    world.said.clear();
    world.settle();
    assert_eq!(world.planner.depths().parked, 98);
    assert_eq!(world.said.len(), 1, "one found out for all that there is no more room");
}

#[test]
fn a_pod_that_cannot_be_bound_frees_its_room_and_is_tried_again_later() {
    let mut world = World::new([node("n", 1, "a")]);
    world.put(pod("p", 1000, json!({})));
    let Some(Decision::Bind { pod: bound, .. }) = world.planner.next(world.now) else {
        panic!("no decision")
    };
    world.put(pod("q", 1000, json!({})));
    assert!(matches!(world.planner.next(world.now), Some(Decision::Refuse { .. })), "p has the room");
    world.planner.not_bound(&bound.uid, world.now);
    // The other one is helped at once, the first has to wait.
    world.settle();
    assert_eq!((world.node_of("q"), world.node_of("p")), (Some("n"), None));
    assert_eq!(world.planner.due(), Some(world.now + Duration::from_secs(1)));
    world.pass(2);
    world.settle();
    assert!(world.said["p"].contains("Insufficient cpu"));
}

#[test]
fn an_old_sight_of_a_pod_does_not_undo_what_was_decided() {
    let mut world = World::new([node("n", 1, "a")]);
    let p = pod("p", 1000, json!({}));
    world.put(p.clone());
    assert!(matches!(world.planner.next(world.now), Some(Decision::Bind { .. })));
    world.planner.pods(WatchEvent::Applied(Box::new(p)), world.now);
    assert_eq!(world.planner.next(world.now), None);
    assert_eq!(world.planner.size(), (1, 1, 1));
}

#[test]
fn what_is_parked_for_too_long_is_tried_whatever_happened() {
    let mut world = World::new([node("n", 1, "a")]);
    world.put(pod("p", 2000, json!({})));
    world.settle();
    world.said.clear();
    world.pass(299);
    world.settle();
    assert!(world.said.is_empty());
    world.pass(2);
    world.settle();
    assert!(world.said.contains_key("p"));
}

#[test]
fn a_list_replaces_what_was_known() {
    let mut world = World::new([node("n", 4, "a"), node("m", 4, "a")]);
    world.put(pod("p", 100, json!({})));
    world.settle();
    world.put(pod("q", 100, json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })));
    world.planner.pods(WatchEvent::Restarted(vec![]), world.now);
    world.planner.nodes(WatchEvent::Restarted(vec![node("n", 4, "a")]));
    assert_eq!(world.planner.size(), (1, 0, 0));
    assert_eq!(world.planner.depths(), plumb_scheduler::Depths::default());
}
