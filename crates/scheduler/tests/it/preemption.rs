//! Preemption: victims, nominations, disruption budgets.

use serde_json::{Value, json};

use super::cluster::{Cluster, node, pod};

fn priority(priority: i32) -> Value {
    json!({ "spec": { "priority": priority } })
}

/// A pod on a node, with a priority and a start time.
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

fn victims(cluster: &Cluster) -> Vec<(String, Vec<String>)> {
    let of = |preemption: &plumb_scheduler::Preemption| {
        (preemption.node.clone(), preemption.victims.iter().map(|pod| pod.name.clone()).collect())
    };
    cluster.preemptions.iter().map(of).collect()
}

#[test]
fn victims_are_as_few_as_possible_and_the_least_important_ones() {
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.update(running("old", 1000, "n", 1, EARLY));
    cluster.update(running("new", 1000, "n", 1, LATE));
    cluster.update(running("mid", 1000, "n", 5, LATE));
    cluster.update(running("peer", 1000, "n", 10, EARLY));
    cluster.update(pod("p", 1000, priority(10)));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster), [("n".to_owned(), vec!["new".to_owned()])]);
    assert_eq!(cluster.node_of("p"), Some("n"));
}

#[test]
fn the_candidate_with_the_smallest_cost_is_selected() {
    // Each candidate differs from the one before in the next criterion.
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
        let mut cluster = Cluster::new([node("n1", 4, "a"), node("n2", 4, "a")]);
        for (name, cpu, node, priority, started) in *pods {
            cluster.update(running(name, *cpu, node, *priority, started));
        }
        cluster.update(pod("p", 4000, priority(10)));
        cluster.run_until_idle();
        assert_eq!(cluster.node_of("p"), Some(*expected), "{name}");
    }
}

#[test]
fn a_disruption_budget_is_violated_only_if_there_is_no_other_candidate() {
    let budget = |allowed: i32| {
        json!({
            "metadata": { "name": "b", "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "app": "kept" } } },
            "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
        })
    };
    let cluster = |allowed: i32, with_other: bool| {
        let mut cluster = Cluster::new([node("n1", 4, "a"), node("n2", 4, "a")]);
        cluster.update_budget(budget(allowed));
        cluster.update(running("kept", 4000, "n1", 0, LATE));
        if with_other {
            cluster.update(running("other", 4000, "n2", 5, EARLY));
        } else {
            cluster.update(running("other", 4000, "n2", 10, EARLY));
        }
        cluster.update(pod("p", 4000, priority(10)));
        cluster.run_until_idle();
        victims(&cluster)
    };
    assert_eq!(
        cluster(0, true),
        [("n2".to_owned(), vec!["other".to_owned()])],
        "although it is more important"
    );
    assert_eq!(cluster(1, true), [("n1".to_owned(), vec!["kept".to_owned()])]);
    assert_eq!(
        cluster(0, false),
        [("n1".to_owned(), vec!["kept".to_owned()])],
        "there is no other candidate"
    );
    // On one node the unprotected pod is the victim.
    let mut one = Cluster::new([node("n1", 4, "a")]);
    one.update_budget(budget(0));
    one.update(running("kept", 2000, "n1", 0, LATE));
    one.update(running("other", 2000, "n1", 5, EARLY));
    one.update(pod("p", 2000, priority(10)));
    one.run_until_idle();
    assert_eq!(victims(&one), [("n1".to_owned(), vec!["other".to_owned()])]);
}

#[test]
fn a_nominated_pod_keeps_its_node_while_the_victims_terminate() {
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.graceful = true;
    cluster.update(running("low", 4000, "n", 0, EARLY));
    cluster.update(pod("p", 4000, priority(10)));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).len(), 1);
    let nominated =
        |cluster: &Cluster| cluster.pods["p"].status.as_ref().unwrap().nominated_node_name.clone();
    assert_eq!(nominated(&cluster).as_deref(), Some("n"));
    // No more pods are preempted, and no pod of lower or equal priority gets the node.
    cluster.update(pod("thief", 1000, priority(5)));
    cluster.update(pod("peer", 1000, priority(10)));
    cluster.pass(400);
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).len(), 1);
    assert!(
        cluster.messages["p"]
            .ends_with("preemption: not eligible due to a terminating pod on the nominated node."),
        "{}",
        cluster.messages["p"]
    );
    cluster.delete("low");
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("n"));
    assert_eq!((cluster.node_of("thief"), cluster.node_of("peer")), (None, None));
}

#[test]
fn a_preemptor_gets_its_node_although_a_pod_of_its_class_arrives_before_the_victim_is_deleted() {
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.graceful = true;
    cluster.update(running("low", 4000, "n", 0, EARLY));
    cluster.update(pod("p", 4000, priority(10)));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).len(), 1);
    // Both are observed before anything is decided.
    cluster.update(pod("q", 4000, priority(10)));
    cluster.delete("low");
    cluster.run_until_idle();
    assert_eq!((cluster.node_of("p"), cluster.node_of("q")), (Some("n"), None));
}

#[test]
fn several_pods_of_one_class_each_preempt_their_own_victims() {
    let mut cluster = Cluster::new([node("n1", 2, "a"), node("n2", 2, "a"), node("n3", 2, "a")]);
    for i in 1..=3 {
        cluster.update(running(&format!("low{i}"), 2000, &format!("n{i}"), 0, EARLY));
    }
    cluster.graceful = true;
    for name in ["a", "b", "c"] {
        cluster.update(pod(name, 2000, priority(10)));
    }
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).len(), 3);
    for i in 1..=3 {
        cluster.delete(&format!("low{i}"));
    }
    cluster.run_until_idle();
    for name in ["a", "b", "c"] {
        assert!(cluster.node_of(name).is_some(), "{name}");
    }
}

#[test]
fn no_pod_is_preempted_if_the_policy_is_never_or_preemption_does_not_help() {
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.update(running("low", 3000, "n", 0, EARLY));
    cluster.update(pod("polite", 3000, json!({ "spec": { "priority": 10, "preemptionPolicy": "Never" } })));
    cluster.update(pod("huge", 5000, priority(10)));
    cluster.update(pod(
        "picky",
        1000,
        json!({ "spec": { "priority": 10, "nodeSelector": { "no": "where" } } }),
    ));
    cluster.run_until_idle();
    assert!(cluster.preemptions.is_empty());
    assert!(cluster.messages["polite"].ends_with("preemption: not eligible due to preemptionPolicy=Never."));
    for name in ["huge", "picky"] {
        let end = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
        assert!(cluster.messages[name].ends_with(end), "{}", cluster.messages[name]);
    }
}

#[test]
fn pods_that_anti_affinity_or_ports_conflict_with_are_preempted() {
    let apart = json!({ "spec": { "priority": 10, "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "loud" } } },
        ],
    } } } });
    let mut cluster = Cluster::new([node("n", 4, "a")]);
    cluster.update(running("loud", 100, "n", 0, EARLY));
    cluster.update(running("still", 100, "n", 0, LATE));
    cluster.update(pod("p", 1000, apart));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster), [("n".to_owned(), vec!["loud".to_owned()])]);
    assert_eq!(cluster.node_of("p"), Some("n"));
}
