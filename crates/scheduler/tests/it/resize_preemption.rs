//! Preemption for deferred resizes: which pods, how many, and once.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use plumb_controller_runtime::WatchEvent;
use plumb_features::FeatureGates;
use plumb_resize::rules::Rules;
use plumb_scheduler::features::RESIZE_PREEMPTION;
use plumb_scheduler::{Decision, Planner, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

use super::cluster::{Cluster, node, pod};

/// The names of the victims of each preemption.
fn victims(cluster: &Cluster) -> Vec<Vec<&str>> {
    cluster.preemptions.iter().map(|one| one.victims.iter().map(|pod| pod.name.as_str()).collect()).collect()
}

fn settings() -> Settings {
    Settings { preempt_for_resizes: true, ..Settings::new(Rules::kep()) }
}

/// A cluster with one node `n` of four CPUs and as many gibibytes.
fn cluster() -> Cluster {
    Cluster::with(settings(), [node("n", 4, "a")])
}

/// A pod on the node with a priority, which requests as many mebibytes as millicores.
fn running(name: &str, cpu: i64, priority: i32) -> Pod {
    pod(
        name,
        cpu,
        json!({
            "metadata": { "labels": { "app": name } },
            "spec": { "priority": priority, "nodeName": "n" },
            "status": { "startTime": "2026-01-01T00:00:00Z", "phase": "Running" },
        }),
    )
}

/// A pod whose resize is deferred.
fn deferred(name: &str, allocated: i64, desired: i64, priority: i32) -> Pod {
    let list = json!({ "cpu": format!("{allocated}m"), "memory": format!("{allocated}Mi") });
    let status = json!({
        "phase": "Running", "resize": "Deferred",
        "conditions": [{ "type": "PodResizePending", "status": "True", "reason": "Deferred" }],
        "containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": list, "resources": { "requests": list },
        }],
    });
    let mut pod = running(name, desired, priority);
    pod.status = serde_json::from_value(status).unwrap();
    pod
}

/// The pod with the condition of one that the scheduler preempts.
fn marked(mut pod: Pod) -> Pod {
    let condition =
        json!({ "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler" });
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(serde_json::from_value(condition).unwrap());
    pod
}

#[test]
fn pods_are_preempted_for_a_deferred_resize_if_the_gate_is_on() {
    let cluster = |preempt_for_resizes: bool, priority: i32, desired: i64| {
        let gates = FeatureGates::default().with(&RESIZE_PREEMPTION, preempt_for_resizes);
        let settings = Settings::new(Rules::kep()).with_features(&gates);
        let mut cluster = Cluster::with(settings, [node("n", 4, "a")]);
        cluster.update(running("low", 1000, 0));
        cluster.update(running("mid", 1000, 5));
        cluster.update(deferred("grows", 2000, desired, priority));
        cluster.run_until_idle();
        victims(&cluster).concat().join(" ")
    };
    assert_eq!(cluster(false, 10, 3000), "");
    assert_eq!(cluster(true, 10, 3000), "low");
    assert_eq!(cluster(true, 10, 4000), "mid low");
    assert_eq!(cluster(true, 10, 5000), "", "it would not fit even then");
    assert_eq!(cluster(true, 0, 3000), "", "no pod has a lower priority");
}

#[test]
fn one_larger_pod_is_preempted_rather_than_several_of_lower_priority() {
    let mut cluster = cluster();
    cluster.update(running("large", 1000, 5));
    for name in ["a", "b"] {
        cluster.update(running(name, 500, 0));
    }
    cluster.update(deferred("grows", 2000, 3000, 10));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster), [["large"]]);
}

#[test]
fn a_pod_that_a_disruption_budget_protects_is_preempted_last() {
    let mut cluster = cluster();
    cluster.update_budget(json!({
        "metadata": { "name": "b", "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": "kept" } } },
        "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
    }));
    cluster.update(running("kept", 1000, 0));
    for name in ["a", "b"] {
        cluster.update(running(name, 500, 5));
    }
    cluster.update(deferred("grows", 2000, 3000, 10));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster), [["a", "b"]]);
}

#[test]
fn a_mirror_pod_is_not_preempted_since_its_deletion_frees_nothing() {
    let mut cluster = cluster();
    let mut mirror = running("static", 1000, 0);
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "h".to_owned())].into());
    cluster.update(mirror);
    cluster.update(running("other", 1000, 5));
    cluster.update(deferred("grows", 2000, 3000, 10));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster), [["other"]]);
}

#[test]
fn a_deferred_resize_does_not_preempt_twice() {
    let mut cluster = cluster();
    cluster.graceful = true;
    cluster.update(running("low", 1000, 0));
    cluster.update(running("mid", 1000, 5));
    cluster.update(deferred("grows", 2000, 3000, 10));
    cluster.run_until_idle();
    cluster.update(deferred("grows", 2000, 3000, 10));
    cluster.pass(10);
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).len(), 1);
    cluster.delete("low");
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).len(), 1, "the node has not allocated it yet");
}

#[test]
fn victims_are_not_selected_again_before_their_deletion_is_observed() {
    let mut cluster = cluster();
    cluster.update(running("low", 1000, 0));
    cluster.update(running("mid", 1000, 5));
    cluster.update(deferred("grows", 2000, 3000, 10));
    let decided = cluster.planner.next(cluster.now);
    assert!(matches!(decided, Some(Decision::PreemptForResize(_))), "{decided:?}");
    cluster.update(running("mid", 900, 5));
    cluster.update(deferred("grows", 2000, 3000, 10));
    assert_eq!(cluster.planner.next(cluster.now), None);
}

#[test]
fn a_preemption_that_the_api_server_refused_is_decided_again_after_a_second() {
    let mut cluster = cluster();
    cluster.update(running("low", 1000, 0));
    cluster.update(running("mid", 1000, 5));
    cluster.update(deferred("grows", 2000, 3000, 10));
    let decided = cluster.planner.next(cluster.now);
    assert!(matches!(decided, Some(Decision::PreemptForResize(_))), "{decided:?}");
    assert_eq!(cluster.planner.next(cluster.now), None);
    cluster.planner.preemption_failed("uid-grows", cluster.now);
    assert_eq!(cluster.planner.next(cluster.now), None);
    assert_eq!(cluster.planner.due(), Some(cluster.now + std::time::Duration::from_secs(1)));
    cluster.pass(1);
    assert_eq!(cluster.planner.next(cluster.now), decided);
    assert_eq!(cluster.planner.due(), None);
}

#[test]
fn a_restarted_scheduler_goes_on_with_the_victims_of_the_one_before() {
    // Of two victims, the scheduler that ended has deleted, marked, or not begun with each.
    let (first, second) = (|| running("first", 500, 5), || running("second", 500, 5));
    let terminating = |pod: Pod| {
        let mut pod = marked(pod);
        let deleted = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        pod.metadata.deletion_timestamp = Some(deleted);
        pod
    };
    let table = vec![
        ("neither", Some(first()), Some(second()), "other"),
        ("one is marked", Some(marked(first())), Some(second()), "first second"),
        ("one terminates", Some(terminating(first())), Some(second()), "second"),
        ("one is gone", None, Some(second()), "second"),
        ("both terminate", Some(terminating(first())), Some(terminating(second())), ""),
    ];
    for (name, first, second, expected) in table {
        let mut cluster = cluster();
        cluster.graceful = true;
        // More important than the two, but alone enough.
        cluster.update(running("other", 1000, 7));
        for pod in first.into_iter().chain(second) {
            cluster.update(pod);
        }
        cluster.update(deferred("grows", 2000, 3000, 10));
        cluster.run_until_idle();
        assert_eq!(victims(&cluster).concat().join(" "), expected, "{name}");
    }
}

#[test]
fn the_growth_of_a_pod_that_the_node_retries_later_needs_no_victims_of_an_earlier_one() {
    let mut cluster = cluster();
    for name in ["a", "b"] {
        cluster.update(running(name, 500, 0));
    }
    cluster.update(deferred("first", 2000, 2500, 10));
    // Its priority is too low to preempt, and its growth is no reason to preempt more for the first one.
    cluster.update(deferred("second", 1000, 1500, 0));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster).concat().len(), 1, "{:?}", victims(&cluster));
}

#[test]
fn a_resize_that_can_never_fit_does_not_block_the_next_one() {
    let mut cluster = cluster();
    cluster.update(running("low", 1000, 0));
    cluster.update(deferred("never", 1000, 9000, 20));
    cluster.update(deferred("grows", 2000, 3000, 10));
    cluster.run_until_idle();
    assert_eq!(victims(&cluster), [["low"]]);
}

/// A pod of a random node: CPU in cores, memory in gibibytes, priority, and by how much it grows if its resize is deferred.
#[derive(Clone, Copy, Debug)]
struct Random {
    cpu: i64,
    memory: i64,
    priority: i32,
    growth: (i64, i64),
}

impl Random {
    fn is_deferred(&self) -> bool {
        self.growth != (0, 0)
    }
}

fn random(is_deferred: bool) -> impl Strategy<Value = Random> {
    let growth = if is_deferred { (0..5_i64, 0..5_i64).boxed() } else { Just((0, 0)).boxed() };
    (0..4_i64, 0..4_i64, 0..4_i32, growth).prop_map(|(cpu, memory, priority, growth)| Random {
        cpu,
        memory,
        priority,
        growth,
    })
}

/// The number of victims of a preemption, and how many of them have each priority, the highest first.
type Cost = (usize, [usize; 4]);

/// Which pod preempts, and what the cheapest of all sets of victims costs.
fn brute_force(pods: &[Random], allocatable: i64) -> Option<(usize, Cost)> {
    let mut held: Vec<(i64, i64)> = pods.iter().map(|pod| (pod.cpu, pod.memory)).collect();
    let mut order: Vec<usize> = (0..pods.len()).filter(|index| pods[*index].is_deferred()).collect();
    order.sort_by_key(|index| (-pods[*index].priority, *index));
    for preemptor in order {
        let growth = pods[preemptor].growth;
        let fits = |victims: usize| {
            let left = (0..pods.len()).filter(|index| (victims >> index) & 1 == 0);
            let (cpu, memory) =
                left.fold((0, 0), |sum, index| (sum.0 + held[index].0, sum.1 + held[index].1));
            (growth.0 == 0 || cpu + growth.0 <= allocatable)
                && (growth.1 == 0 || memory + growth.1 <= allocatable)
        };
        if fits(0) {
            held[preemptor] = (held[preemptor].0 + growth.0, held[preemptor].1 + growth.1);
            continue;
        }
        let is_lower = |victims: usize| {
            (0..pods.len())
                .all(|index| (victims >> index) & 1 == 0 || pods[index].priority < pods[preemptor].priority)
        };
        let sets = (1..1_usize << pods.len()).filter(|victims| is_lower(*victims) && fits(*victims));
        if let Some(cost) = sets.map(|victims| cost(pods, |index| (victims >> index) & 1 == 1)).min() {
            return Some((preemptor, cost));
        }
    }
    None
}

fn cost(pods: &[Random], is_victim: impl Fn(usize) -> bool) -> Cost {
    let victims = || pods.iter().enumerate().filter(|(index, _)| is_victim(*index));
    (
        victims().count(),
        [3, 2, 1, 0].map(|priority| victims().filter(|(_, pod)| pod.priority == priority).count()),
    )
}

fn name(index: usize) -> String {
    format!("p{index}")
}

/// The first decision of a scheduler about a node of these pods.
fn first_decision(pods: &[Random], allocatable: i64) -> Option<Decision> {
    let mut planner = Planner::new(settings());
    let now = tokio::time::Instant::now();
    planner.handle_nodes(WatchEvent::Applied(Box::new(node("n", allocatable, "a"))));
    let (plain, waiting) = (running("", 0, 0), deferred("", 0, 0, 0));
    for (index, random) in pods.iter().enumerate() {
        let mut pod = if random.is_deferred() { waiting.clone() } else { plain.clone() };
        (pod.metadata.name, pod.metadata.uid) = (Some(name(index)), Some(name(index)));
        let list = |(cpu, memory): (i64, i64)| {
            let cpu = Quantity((random.cpu + cpu).to_string());
            let memory = Quantity(format!("{}Gi", random.memory + memory));
            [("cpu".to_owned(), cpu), ("memory".to_owned(), memory)].into()
        };
        let spec = pod.spec.as_mut().unwrap();
        spec.priority = Some(random.priority);
        spec.containers[0].resources.as_mut().unwrap().requests = Some(list(random.growth));
        let statuses = pod.status.as_mut().unwrap().container_statuses.iter_mut().flatten();
        for status in statuses {
            status.allocated_resources = Some(list((0, 0)));
            status.resources.as_mut().unwrap().requests = Some(list((0, 0)));
        }
        planner.handle_pods(WatchEvent::Applied(Box::new(pod)), now);
    }
    planner.next(now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, rng_seed: RngSeed::Fixed(5836), ..ProptestConfig::default() })]

    #[test]
    fn the_victims_are_the_fewest_and_least_important_of_all_that_suffice(
        waiting in vec(random(true), 1..3),
        others in vec(random(false), 0..6),
        allocatable in 4..12_i64,
    ) {
        let pods: Vec<Random> = waiting.into_iter().chain(others).collect();
        let found = match first_decision(&pods, allocatable) {
            None => None,
            Some(Decision::PreemptForResize(preemption)) => {
                let preemptor = (0..pods.len()).find(|index| preemption.preemptor.name == name(*index));
                let is_victim = |index: usize| preemption.victims.iter().any(|victim| victim.name == name(index));
                Some((preemptor.unwrap(), cost(&pods, is_victim)))
            }
            Some(other) => panic!("{other:?}"),
        };
        prop_assert_eq!(found, brute_force(&pods, allocatable));
    }
}
