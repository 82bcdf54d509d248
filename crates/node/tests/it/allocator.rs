//! Allocation: which pods fit, which resizes are deferred, and their order.

use plumb_node::allocator::{AdmissionError, AllocationResult, Allocator, PodInfo};
use plumb_node::cpus::CpuAllocator;
use plumb_node::holders::Outlook;
use plumb_node::journal::Entry;
use plumb_node::predicates::Predicate;
use plumb_placement::HostPort;
use plumb_resize::admission::NodeFacts;
use plumb_resize::aggregate::Role;
use plumb_resize::pod::{ContainerShape, PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Amounts, Declared, PerResource, Requirements, Resource};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, PendingReason, ResizeOutcome};
use proptest::prelude::*;

fn rules() -> Rules {
    Rules::kep()
}

fn node(cpu: i64) -> Allocator {
    Allocator::new(Amounts::new(cpu, 1 << 30), 3, NodeFacts::default(), rules())
}

fn cpu(milli: i64) -> PodResources {
    PodResources { containers: vec![Requirements::equal(milli, 1 << 20)], pod: None }
}

fn info(name: &str, milli: i64, priority: i32) -> PodInfo {
    let container = ContainerShape { name: "c".into(), role: Role::Main, policy: PerResource::default() };
    PodInfo {
        namespace: "default".into(),
        name: name.into(),
        shape: PodShape { containers: vec![container], overhead: Declared::NONE, qos: QosClass::Guaranteed },
        host_ports: Vec::new(),
        priority,
        critical: false,
        ephemeral_storage: 0,
        desired: cpu(milli),
        generation: 1,
    }
}

/// Admits a pod with its desired resources; its name is its uid.
fn admit(allocator: &mut Allocator, info: PodInfo) -> Result<Entry, AdmissionError> {
    let allocation = Allocation::new(info.desired.clone(), info.generation);
    allocator.admit(&info.name.clone(), info, allocation, None)
}

/// Retries the deferred resizes, none of which panics.
fn retry(allocator: &mut Allocator, now: i64) -> Vec<(String, AllocationResult)> {
    allocator.retry_deferred(now).into_iter().map(|(uid, result)| (uid, result.unwrap())).collect()
}

#[test]
fn a_pod_is_admitted_with_its_allocation_and_its_growth_is_a_resize() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("a", 700, 0)).unwrap();
    let grown = PodInfo { generation: 2, ..info("b", 600, 0) };
    let entry = allocator.admit("b", grown, Allocation::new(cpu(300), 1), None).unwrap();
    assert_eq!((entry.allocation.allocated, entry.allocation.generation), (cpu(300), 1));
    let result = allocator.request_resize("b", cpu(600), 2, 7).unwrap();
    assert_eq!(result.outcome, ResizeOutcome::Pending(PendingReason::Deferred));
    allocator.release("a");
    assert_eq!(retry(&mut allocator, 8)[0].1.outcome, ResizeOutcome::Started);
}

#[test]
fn a_pod_that_does_not_fit_is_rejected_with_the_message_of_the_kubelet() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("a", 700, 0)).unwrap();
    let rejected = admit(&mut allocator, info("b", 400, 0)).unwrap_err();
    assert_eq!(rejected.reason(), "OutOfcpu");
    assert_eq!(
        rejected.to_string(),
        "Node didn't have enough resource: cpu, requested: 400, used: 700, capacity: 1000"
    );
    for name in ["b", "c"] {
        admit(&mut allocator, info(name, 100, 0)).unwrap();
    }
    let rejected = admit(&mut allocator, info("d", 0, 0)).unwrap_err();
    assert_eq!(rejected.reason(), "OutOfpods");
}

#[test]
fn a_shrink_frees_capacity_only_once_it_is_actual() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("a", 600, 0)).unwrap();
    admit(&mut allocator, info("b", 400, 0)).unwrap();
    assert_eq!(
        allocator.request_resize("b", cpu(600), 2, 7).unwrap().outcome,
        ResizeOutcome::Pending(PendingReason::Deferred)
    );
    assert_eq!(allocator.request_resize("a", cpu(400), 2, 8).unwrap().outcome, ResizeOutcome::Started);
    assert_eq!(retry(&mut allocator, 9), [], "the actual resources are not lowered yet");
    assert!(allocator.set_actual("a", cpu(400)));
    let results = retry(&mut allocator, 10);
    assert_eq!(results.len(), 1);
    assert_eq!((results[0].0.as_str(), results[0].1.outcome), ("b", ResizeOutcome::Started));
    assert_eq!(results[0].1.entry.since, None);
    assert_eq!(allocator.deferred().count(), 0);
}

#[test]
fn a_deferred_resize_says_what_can_end_its_wait() {
    // The other pod, the CPU that `a` is to have beside it (of 1000m, it has 300m), and how the explanation goes on.
    let critical = |milli| PodInfo { critical: true, ..info("b", milli, 0) };
    let table = [
        (info("b", 700, -1), 800, ""),
        (
            info("b", 700, 0),
            800,
            ". Pods of lower priority do not hold enough: it fits only if pods of the same or a higher priority end or shrink",
        ),
        (
            critical(700),
            800,
            ". It can never fit this node beside the static and critical pods there, whatever other pods free",
        ),
        (critical(700), 1100, ". It can never fit this node, whatever other pods free"),
    ];
    for (other, desired, outlook) in table {
        // Under these rules a resize that does not fit the empty node is deferred, too.
        let mut allocator =
            Allocator::new(Amounts::new(1000, 1 << 30), 3, NodeFacts::default(), Rules::v1_36());
        let held = other.desired.containers[0].requests.cpu.unwrap();
        admit(&mut allocator, other).unwrap();
        admit(&mut allocator, info("a", 300, 0)).unwrap();
        let result = allocator.request_resize("a", cpu(desired), 2, 7).unwrap();
        assert_eq!(result.outcome, ResizeOutcome::Pending(PendingReason::Deferred));
        assert_eq!(
            allocator.explain_wait("a").unwrap().to_string(),
            format!(
                "Pod resize waits for {}m more of cpu, which is held by default/b ({held}m), default/a (300m){outlook}",
                desired + held - 1000
            )
        );
    }
    let mut allocator = node(1000);
    admit(&mut allocator, info("b", 700, 0)).unwrap();
    admit(&mut allocator, info("a", 300, 0)).unwrap();
    allocator.request_resize("b", cpu(100), 2, 7).unwrap();
    allocator.request_resize("a", cpu(800), 2, 8).unwrap();
    let wait = allocator.explain_wait("a").unwrap();
    assert_eq!(wait.outlook, Outlook::ResizesInProgress, "{wait}");
}

#[test]
fn cpus_that_a_pod_gives_up_are_free_only_once_the_resize_is_actual() {
    let cpus = CpuAllocator::new("0-3".parse().unwrap(), "0".parse().unwrap());
    let mut allocator = node(8000).with_cpus(Some(cpus));
    assert_eq!(admit(&mut allocator, info("a", 2000, 0)).unwrap().cpus["c"].to_string(), "1-2");
    assert_eq!(admit(&mut allocator, info("b", 1000, 0)).unwrap().cpus["c"].to_string(), "3");
    let result = allocator.request_resize("b", cpu(2000), 2, 7).unwrap();
    assert_eq!(result.outcome, ResizeOutcome::Pending(PendingReason::Deferred));
    let result = allocator.request_resize("a", cpu(1000), 2, 8).unwrap();
    assert_eq!(
        (result.outcome, result.entry.cpus["c"].to_string()),
        (ResizeOutcome::Started, "1".to_owned())
    );
    assert_eq!(retry(&mut allocator, 9), []);
    assert_eq!(allocator.shared_cpus().unwrap().to_string(), "0");
    assert!(allocator.set_actual("a", cpu(1000)));
    let results = retry(&mut allocator, 10);
    assert_eq!(results[0].1.entry.cpus["c"].to_string(), "2-3");
    allocator.release("a");
    assert_eq!(allocator.shared_cpus().unwrap().to_string(), "0-1");
}

#[test]
fn cpus_of_a_growth_that_is_reverted_before_it_is_actual_are_free_again() {
    let cpus = CpuAllocator::new("0-3".parse().unwrap(), "0".parse().unwrap());
    let mut allocator = node(8000).with_cpus(Some(cpus));
    admit(&mut allocator, info("a", 1000, 0)).unwrap();
    assert_eq!(allocator.request_resize("a", cpu(3000), 2, 7).unwrap().entry.cpus["c"].to_string(), "1-3");
    assert!(!allocator.release_unused_cpus("a"), "the growth is not actual yet");
    assert_eq!(allocator.request_resize("a", cpu(1000), 3, 8).unwrap().entry.cpus["c"].to_string(), "1");
    assert!(!allocator.set_actual("a", cpu(1000)), "they never were more");
    assert!(allocator.release_unused_cpus("a"));
    assert_eq!(allocator.shared_cpus().unwrap().to_string(), "0,2-3");
}

#[test]
fn a_deferred_growth_that_becomes_a_shrink_waits_no_longer() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("a", 600, 0)).unwrap();
    admit(&mut allocator, info("b", 400, 0)).unwrap();
    allocator.request_resize("b", cpu(600), 2, 7).unwrap();
    assert_eq!(allocator.deferred().count(), 1);
    assert_eq!(allocator.request_resize("b", cpu(300), 3, 8).unwrap().outcome, ResizeOutcome::Started);
    assert_eq!(allocator.deferred().count(), 0);
}

#[test]
fn the_weight_of_burstable_pods_is_the_sum_of_their_allocations() {
    let mut allocator = node(8000);
    let burstable = |name: &str, milli: i64| {
        let mut info = info(name, milli, 0);
        info.shape.qos = QosClass::Burstable;
        info
    };
    admit(&mut allocator, burstable("a", 1000)).unwrap();
    admit(&mut allocator, burstable("b", 500)).unwrap();
    admit(&mut allocator, info("c", 2000, 0)).unwrap();
    assert_eq!(allocator.burstable_cpu(), 1500);
    allocator.request_resize("b", cpu(300), 2, 7).unwrap();
    assert_eq!(allocator.burstable_cpu(), 1300, "the allocated resources count, not the actual ones");
    allocator.set_actual("b", cpu(300));
    allocator.release("a");
    allocator.release("c");
    assert_eq!(allocator.burstable_cpu(), 300);
    allocator.release("b");
    assert_eq!(allocator.burstable_cpu(), 0);
}

#[test]
fn deferred_resizes_are_retried_by_priority_and_keep_their_position() {
    let mut allocator = node(1000);
    for (name, milli, priority) in [("low", 100, 0), ("high", 100, 10), ("big", 800, 0)] {
        admit(&mut allocator, info(name, milli, priority)).unwrap();
    }
    let low = allocator.request_resize("low", cpu(300), 2, 5).unwrap();
    assert_eq!(low.entry.since, Some(5));
    allocator.request_resize("high", cpu(300), 2, 6).unwrap();
    assert_eq!(allocator.deferred().collect::<Vec<_>>(), ["high", "low"]);
    // Requested again without a change, it has waited since the first request.
    assert_eq!(allocator.request_resize("low", cpu(300), 2, 50).unwrap().entry.since, Some(5));
    assert!(
        allocator.request_resize("big", cpu(600), 2, 51).is_some() && allocator.set_actual("big", cpu(600))
    );
    let taken: Vec<String> = retry(&mut allocator, 60).into_iter().map(|(uid, _)| uid).collect();
    assert_eq!(taken, ["high"], "one of them fits");
    assert!(allocator.release("big"));
    assert_eq!(retry(&mut allocator, 61).len(), 1);
}

#[test]
fn an_infeasible_resize_is_rejected_and_not_queued() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("a", 100, 0)).unwrap();
    let result = allocator.request_resize("a", cpu(2000), 2, 5).unwrap();
    assert_eq!(result.outcome, ResizeOutcome::Pending(PendingReason::Infeasible));
    assert_eq!(result.entry.allocation.allocated, cpu(100), "the allocation is unchanged");
    assert_eq!(allocator.deferred().count(), 0);
    assert_eq!(allocator.request_resize("a", cpu(100), 3, 6).unwrap().outcome, ResizeOutcome::Withdrawn);
}

#[test]
fn after_a_restart_a_pod_has_its_allocation_and_its_resize_is_pending_since_then() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("a", 600, 0)).unwrap();
    admit(&mut allocator, info("b", 400, 0)).unwrap();
    let kept = allocator.request_resize("b", cpu(600), 2, 7).unwrap().entry;

    let mut again = node(1000);
    again.readmit("b", PodInfo { desired: cpu(600), generation: 2, ..info("b", 600, 0) }, kept);
    again.readmit("a", info("a", 600, 0), allocator.entry("a").unwrap().clone());
    assert_eq!(again.deferred().collect::<Vec<_>>(), ["b"]);
    let result = again.request_resize("b", cpu(600), 2, 1_000).unwrap();
    assert_eq!((result.outcome, result.entry.since), (ResizeOutcome::Unchanged, Some(7)));
}

/// An event of a node.
#[derive(Clone, Debug)]
enum Move {
    Admit(u8, i64),
    Ask(u8, i64),
    Settle(u8),
    Release(u8),
    Retry,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let pod = 0..3u8;
    let size = 0..12i64;
    let one = prop_oneof![
        (pod.clone(), size.clone()).prop_map(|(pod, size)| Move::Admit(pod, size * 100)),
        (pod.clone(), size).prop_map(|(pod, size)| Move::Ask(pod, size * 100)),
        pod.clone().prop_map(Move::Settle),
        pod.prop_map(Move::Release),
        Just(Move::Retry),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    /// In any order of requests, the allocated and the actual resources fit the node.
    #[test]
    fn nothing_is_allocated_twice(moves in moves()) {
        const CPU: i64 = 1000;
        let mut allocator = node(CPU);
        let mut actual = std::collections::BTreeMap::new();
        for (now, step) in moves.into_iter().enumerate() {
            let now = i64::try_from(now).unwrap();
            match step {
                Move::Admit(pod, milli) => {
                    let uid = pod.to_string();
                    if allocator.entry(&uid).is_none() && admit(&mut allocator, info(&uid, milli, 0)).is_ok() {
                        actual.insert(uid, cpu(milli));
                    }
                }
                Move::Ask(pod, milli) => drop(allocator.request_resize(&pod.to_string(), cpu(milli), now, now)),
                Move::Settle(pod) => {
                    let uid = pod.to_string();
                    if let Some(entry) = allocator.entry(&uid) {
                        let allocated = entry.allocation.allocated.clone();
                        actual.insert(uid.clone(), allocated.clone());
                        allocator.set_actual(&uid, allocated);
                    }
                }
                Move::Release(pod) => {
                    allocator.release(&pod.to_string());
                    actual.remove(&pod.to_string());
                }
                Move::Retry => drop(retry(&mut allocator, now)),
            }
            let held: i64 = actual
                .iter()
                .map(|(uid, actual)| {
                    let allocated = &allocator.entry(uid).unwrap().allocation.allocated;
                    let cpu = |pod: &PodResources| pod.containers[0].requests[Resource::Cpu].unwrap();
                    cpu(allocated).max(cpu(actual))
                })
                .sum();
            prop_assert!(held <= CPU, "{held} of {CPU}");
        }
    }
}

#[test]
fn ephemeral_storage_counts_at_admission() {
    let mut allocator = node(1000).with_ephemeral_storage(Some(1000));
    let with = |name: &str, bytes: i64| PodInfo { ephemeral_storage: bytes, ..info(name, 100, 0) };
    let allocation = || Allocation::new(cpu(100), 1);
    allocator.admit("a", with("a", 600), allocation(), None).unwrap();
    let rejected = allocator.admit("b", with("b", 500), allocation(), None).unwrap_err();
    assert_eq!(rejected.reason(), "OutOfephemeral-storage");
    assert_eq!(
        rejected.to_string(),
        "Node didn't have enough resource: ephemeral-storage, requested: 500, used: 600, capacity: 1000"
    );
    allocator.admit("c", with("c", 400), allocation(), None).unwrap();
    allocator.release("a");
    allocator.admit("b", with("b", 500), allocation(), None).unwrap();
}

#[test]
fn a_pod_is_critical_by_its_priority_and_not_by_an_annotation_that_users_may_set() {
    for (priority, expected) in [(0, false), (1_999_999_999, false), (2_000_000_000, true)] {
        let pod = serde_json::json!({
            "metadata": { "name": "a", "annotations": { "kubernetes.io/config.mirror": "0123" } },
            "spec": { "priority": priority, "containers": [{ "name": "c" }] },
        });
        let info = PodInfo::of(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(info.critical, expected, "{priority}");
    }
}

#[test]
fn no_pod_is_preempted_for_a_critical_pod_that_is_not_admitted_without_it_either() {
    let with_port = |info: PodInfo, port: i32| {
        let spec = serde_json::json!({
            "containers": [{ "name": "c", "ports": [{ "containerPort": port, "hostPort": port }] }],
        });
        PodInfo { host_ports: HostPort::read(&serde_json::from_value(spec).unwrap()), ..info }
    };
    let mut full = node(1000);
    admit(&mut full, with_port(info("small", 100, 0), 80)).unwrap();
    admit(&mut full, with_port(info("large", 900, 0), 443)).unwrap();
    let critical = || PodInfo { critical: true, ..info("critical", 800, 0) };
    let large = vec!["large".to_owned()];
    let table = [
        (critical(), None, Some(large.clone())),
        (PodInfo { critical: false, ..critical() }, None, None),
        (critical(), Some(Predicate::NodeAffinity), None),
        (critical(), Some(Predicate::TaintToleration), None),
        (with_port(critical(), 80), None, None),
        (with_port(critical(), 443), None, Some(large)),
    ];
    for (info, failed, expected) in table {
        let mut allocator = full.clone();
        let allocation = Allocation::new(info.desired.clone(), 1);
        let victims = allocator.begin_preemption("critical", &info, &allocation, failed);
        assert_eq!(victims, expected, "{:?} {failed:?}", info.host_ports);
        assert_eq!(allocator.counted("critical").cpu, if expected.is_some() { 800 } else { 0 });
    }
}

#[test]
fn a_second_critical_pod_waits_for_the_pods_that_the_first_has_preempted_before_it_preempts_more() {
    let mut allocator = node(1000);
    admit(&mut allocator, info("large", 800, 0)).unwrap();
    admit(&mut allocator, info("small", 200, 0)).unwrap();
    let mut begin = |name: &str, milli: i64| {
        let critical = PodInfo { critical: true, ..info(name, milli, 0) };
        let allocation = Allocation::new(cpu(milli), 1);
        allocator.begin_preemption(name, &critical, &allocation, None)
    };
    assert_eq!(begin("first", 500).unwrap(), ["large"]);
    // What is left of its capacity is enough.
    assert_eq!(begin("second", 300).unwrap(), ["large"]);
    assert_eq!(begin("third", 200).unwrap(), ["large", "small"]);
    assert_eq!(begin("fourth", 100), None);
}

#[test]
fn a_critical_pod_that_waits_counts_as_a_pod() {
    let mut allocator = node(1000);
    for name in ["a", "b", "c"] {
        admit(&mut allocator, info(name, 100, 0)).unwrap();
    }
    let critical = PodInfo { critical: true, ..info("critical", 100, 0) };
    let allocation = Allocation::new(cpu(100), 1);
    let victims = allocator.begin_preemption("critical", &critical, &allocation, None).unwrap();
    assert_eq!(victims, ["a"]);
    allocator.release("a");
    assert_eq!(admit(&mut allocator, info("other", 100, 0)).unwrap_err().reason(), "OutOfpods");
    admit(&mut allocator, critical).unwrap();
    assert!(!allocator.end_preemption("critical"), "it was admitted");
    assert_eq!(allocator.counted("critical").cpu, 100);
}
