//! The scheduling queue: the order of pods, and which changes requeue them.

use std::time::Duration;

use plumb_controller_runtime::WatchEvent;
use plumb_scheduler::Decision;
use serde_json::json;

use super::cluster::{Cluster, node, pod};

#[test]
fn pods_are_scheduled_by_priority_and_then_by_arrival() {
    let mut cluster = Cluster::new([node("n", 8, "a")]);
    for (name, priority) in [("a", 0), ("b", 10), ("c", 0), ("d", 10)] {
        cluster.update(pod(name, 100, json!({ "spec": { "priority": priority } })));
    }
    let mut order = Vec::new();
    while let Some(decision) = cluster.step() {
        if let Decision::Bind { pod, .. } = decision {
            order.push(pod.name);
        }
    }
    assert_eq!(order, ["b", "d", "a", "c"]);
}

#[test]
fn a_shrink_requeues_the_pods_that_it_helps_and_no_others() {
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.update(pod("large", 3000, json!({})));
    cluster.run_until_idle();
    cluster.update(pod("small", 2000, json!({})));
    cluster.update(pod("huge", 3500, json!({})));
    cluster.run_until_idle();
    assert_eq!(cluster.planner.depths().unschedulable, 2);
    // Desired but not actual: nothing is free yet.
    let resize = |cpu: &str, actual: &str| {
        let amounts = |cpu: &str| json!({ "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") });
        let wanted = amounts(cpu);
        let actual = amounts(actual);
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
    cluster.change("large", resize("1000", "3000"));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("small"), None);
    let before = cluster.messages.clone();
    cluster.change("large", resize("1000", "1000"));
    cluster.messages.clear();
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("small"), Some("n"));
    assert!(cluster.messages.is_empty(), "no other pod was scheduled: {:?}", cluster.messages);
    assert!(before.contains_key("huge"));
}

#[test]
fn pods_of_one_class_fail_with_one_attempt_and_are_bound_one_after_the_other() {
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.update(pod("first", 4000, json!({})));
    cluster.run_until_idle();
    for i in 0..100 {
        cluster.update(pod(&format!("p{i}"), 2000, json!({})));
    }
    cluster.run_until_idle();
    assert_eq!(cluster.planner.depths().unschedulable, 100);
    assert_eq!(cluster.messages.len(), 100, "each has a message");
    cluster.delete("first");
    cluster.messages.clear();
    cluster.run_until_idle();
    assert_eq!(cluster.planner.depths().unschedulable, 98);
    assert_eq!(cluster.messages.len(), 1, "one attempt fails for the whole class");
}

#[test]
fn a_pod_whose_binding_fails_frees_its_node_and_is_retried_after_a_backoff() {
    let mut cluster = Cluster::new([node("n", 1, "a")]);
    cluster.update(pod("p", 1000, json!({})));
    let Some(Decision::Bind { pod: bound, .. }) = cluster.planner.next(cluster.now) else {
        panic!("no decision")
    };
    cluster.update(pod("q", 1000, json!({})));
    assert!(
        matches!(cluster.planner.next(cluster.now), Some(Decision::Unschedulable { .. })),
        "p is assumed on the node"
    );
    cluster.planner.binding_failed(&bound.uid, cluster.now);
    // The other pod is scheduled at once, the first backs off.
    cluster.run_until_idle();
    assert_eq!((cluster.node_of("q"), cluster.node_of("p")), (Some("n"), None));
    assert_eq!(cluster.planner.due(), Some(cluster.now + Duration::from_secs(1)));
    cluster.pass(2);
    cluster.run_until_idle();
    assert!(cluster.messages["p"].contains("Insufficient cpu"));
}

#[test]
fn a_stale_watch_event_does_not_undo_an_assumed_pod() {
    let mut cluster = Cluster::new([node("n", 1, "a")]);
    let p = pod("p", 1000, json!({}));
    cluster.update(p.clone());
    assert!(matches!(cluster.planner.next(cluster.now), Some(Decision::Bind { .. })));
    cluster.planner.handle_pods(WatchEvent::Applied(Box::new(p)), cluster.now);
    assert_eq!(cluster.planner.next(cluster.now), None);
    assert_eq!(cluster.planner.size(), (1, 1, 1));
}

#[test]
fn a_pod_that_is_unschedulable_for_too_long_is_retried_without_a_change() {
    let mut cluster = Cluster::new([node("n", 1, "a")]);
    cluster.update(pod("p", 2000, json!({})));
    cluster.run_until_idle();
    cluster.messages.clear();
    cluster.pass(299);
    cluster.run_until_idle();
    assert!(cluster.messages.is_empty());
    cluster.pass(2);
    cluster.run_until_idle();
    assert!(cluster.messages.contains_key("p"));
}

#[test]
fn a_list_replaces_the_cache_and_the_queue() {
    let mut cluster = Cluster::new([node("n", 4, "a"), node("m", 4, "a")]);
    cluster.update(pod("p", 100, json!({})));
    cluster.run_until_idle();
    cluster.update(pod("q", 100, json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })));
    cluster.planner.handle_pods(WatchEvent::Restarted(vec![]), cluster.now);
    cluster.planner.handle_nodes(WatchEvent::Restarted(vec![node("n", 4, "a")]));
    assert_eq!(cluster.planner.size(), (1, 0, 0));
    assert_eq!(cluster.planner.depths(), plumb_scheduler::Depths::default());
}
