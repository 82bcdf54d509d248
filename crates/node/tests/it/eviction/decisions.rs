//! Which pods are evicted, in tables and by laws.

use std::sync::Arc;
use std::time::Duration;

use plumb_node::eviction::{
    Action, Candidate, ContainerUsage, DiskUsage, Disks, Eviction, IMMEDIATE, MinimumReclaims, Observation,
    Observations, PodUsage, Round, Signal, SoftGracePeriods, StarvedResource, Threshold, Thresholds, combine,
    decide,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn candidate(name: &str, spec: &Value, usage: Option<PodUsage>) -> Candidate {
    let pod = json!({ "metadata": { "name": name, "uid": name }, "spec": spec });
    Candidate { pod: Arc::new(serde_json::from_value(pod).unwrap()), critical: false, usage }
}

/// A pod with one container that requests `request` MiB of a resource.
fn requesting(name: &str, resource: &str, request: u64, priority: i32, usage: PodUsage) -> Candidate {
    let requests = if request == 0 { json!({}) } else { json!({ resource: format!("{request}Mi") }) };
    let container = json!({ "name": "main", "resources": { "requests": requests } });
    candidate(name, &json!({ "containers": [container], "priority": priority }), Some(usage))
}

fn memory(mib: u64) -> PodUsage {
    let main = ContainerUsage { name: "main".into(), memory: Some(mib * MIB), ..ContainerUsage::default() };
    PodUsage { memory: mib * MIB, tasks: 1, containers: vec![main], ..PodUsage::default() }
}

/// A pod whose container has a writable layer and logs of these sizes, in MiB and in inodes.
fn disk(layer: u64, logs: u64) -> PodUsage {
    let usage = |amount: u64| Some(DiskUsage { bytes: amount * MIB, inodes: amount });
    let main =
        ContainerUsage { name: "main".into(), memory: None, writable_layer: usage(layer), logs: usage(logs) };
    PodUsage { containers: vec![main], ..PodUsage::default() }
}

fn thresholds(hard: &str, soft: &str, grace_periods: &str) -> Vec<Threshold> {
    let hard: Thresholds = hard.parse().unwrap();
    let grace_periods: SoftGracePeriods = grace_periods.parse().unwrap();
    combine(&hard, &soft.parse().unwrap(), &grace_periods, &MinimumReclaims::default()).unwrap()
}

/// This much of every signal is available, in MiB and in units, of 100 GiB.
fn available(amount: i64) -> Observations {
    let observation = |signal: Signal| {
        let factor = if signal.resource() == StarvedResource::Pids { 1 } else { 1 << 20 };
        (signal, Observation { available: amount * factor, capacity: 100 << 30 })
    };
    Observations(Signal::ALL.map(observation).into())
}

/// The decision with the resources of the node reclaimed already.
fn decided(met: &[Threshold], candidates: &[Candidate], dedicated_image_fs: bool) -> Vec<Eviction> {
    let round = Round {
        met,
        observations: &available(60),
        candidates,
        disks: Disks { dedicated_image_fs },
        max_pod_grace_period: Duration::from_secs(20),
        reclaimed: true,
    };
    let evictions = decide(round).into_iter().map(|action| match action {
        Action::Evict(eviction) => eviction,
        Action::Reclaim(resource) => panic!("reclaims {resource:?} again"),
    });
    evictions.collect()
}

fn victim(hard: &str, candidates: &[Candidate]) -> String {
    let [eviction] = &decided(&thresholds(hard, "", ""), candidates, false)[..] else { panic!("not one") };
    eviction.uid.clone()
}

#[test]
fn of_pods_that_exceed_their_requests_the_one_of_the_lowest_priority_is_evicted_and_then_the_largest() {
    let hard = "memory.available<100Mi";
    let pod = |name, request, priority, used| requesting(name, "memory", request, priority, memory(used));
    let below = pod("below", 1000, -10, 900);
    let small = pod("small", 10, 0, 20);
    let large = pod("large", 100, 0, 200);
    let important = pod("important", 0, 1000, 5000);
    let all = [below, important, small, large];
    let mut left = all.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        let uid = victim(hard, &left);
        left.retain(|candidate| candidate.pod.metadata.uid.as_deref() != Some(&uid));
        order.push(uid);
    }
    assert_eq!(order, ["large", "small", "important", "below"]);
    let unknown = candidate("unknown", &json!({ "containers": [], "priority": 5000 }), None);
    assert_eq!(victim(hard, &[all.to_vec(), vec![unknown]].concat()), "unknown", "no usage is known of it");
}

#[test]
fn critical_pods_are_spared_and_if_there_are_no_others_none_is_evicted() {
    let hard = thresholds("memory.available<100Mi", "", "");
    let critical = Candidate { critical: true, ..requesting("critical", "memory", 0, 0, memory(5000)) };
    let other = requesting("other", "memory", 100, 0, memory(1));
    let evicted = decided(&hard, &[critical.clone(), other], false);
    assert_eq!(evicted.iter().map(|eviction| &*eviction.uid).collect::<Vec<_>>(), ["other"]);
    assert_eq!(decided(&hard, &[critical], false), []);
}

#[test]
fn the_message_names_the_threshold_and_the_containers_that_use_more_than_they_request() {
    let hard = thresholds("memory.available<100Mi,nodefs.available<10%", "", "");
    let [eviction] = &decided(&hard, &[requesting("a", "memory", 0, 0, memory(1024))], false)[..] else {
        panic!("not one")
    };
    let expected = Eviction {
        uid: "a".into(),
        message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. Container main was \
                  using 1Gi, request is 0, has larger consumption of memory. "
            .into(),
        grace_period: IMMEDIATE,
        signal: "memory.available",
        is_disruption: true,
    };
    assert_eq!(*eviction, expected);
    let message = |hard: &str, candidate: Candidate| {
        decided(&thresholds(hard, "", ""), &[candidate], false).remove(0).message
    };
    assert_eq!(
        message("nodefs.available<10%", requesting("a", "ephemeral-storage", 5, 0, disk(4, 3))),
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 60Mi. Container main was \
         using 7Mi, request is 5Mi, has larger consumption of ephemeral-storage. "
    );
    assert_eq!(
        message("pid.available<1k", requesting("a", "memory", 0, 0, memory(7))),
        "The node was low on resource: pids. Threshold quantity: 1k, available: 60. "
    );
    let pod_level = json!({
        "containers": [{ "name": "main" }], "resources": { "requests": { "memory": "4Mi" } },
    });
    assert_eq!(
        message("memory.available<100Mi", candidate("a", &pod_level, Some(memory(7)))),
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. Pod a was using 7Mi, request is \
         4Mi, has larger consumption of memory. Container main was using 7Mi, request is 0, has larger consumption of memory. "
    );
}

#[test]
fn disk_pressure_ranks_by_what_pods_have_on_the_file_system_that_is_full() {
    let layer = requesting("layer", "memory", 0, 0, disk(50, 1));
    let logs = requesting("logs", "memory", 0, 0, disk(1, 40));
    let mut with_volume = disk(1, 1);
    with_volume.volumes.insert("v".into(), DiskUsage { bytes: 45 * MIB, inodes: 1 });
    let volume = requesting("volume", "memory", 0, 0, with_volume);
    let within = requesting("within", "ephemeral-storage", 1000, 0, disk(500, 400));
    let all = [layer, logs, volume, within];
    for (hard, dedicated, expected) in [
        ("nodefs.available<10%", false, "layer"),
        ("nodefs.available<10%", true, "volume"),
        ("imagefs.available<10%", true, "layer"),
        ("imagefs.available<10%", false, "layer"),
    ] {
        let evicted = decided(&thresholds(hard, "", ""), &all, dedicated);
        assert_eq!(evicted[0].uid, expected, "{hard} {dedicated}");
    }
    let inodes = decided(&thresholds("nodefs.inodesFree<1M", "", ""), &all[1..3], true);
    assert_eq!((inodes[0].uid.as_str(), inodes[0].signal), ("logs", "nodefs.inodesFree"));
}

#[test]
fn process_ids_are_reclaimed_from_the_pod_of_the_lowest_priority_with_the_most_processes() {
    let pod = |name, priority, tasks| {
        requesting(name, "memory", 0, priority, PodUsage { tasks, ..PodUsage::default() })
    };
    let all = [pod("few", 0, 3), pod("many", 0, 300), pod("important", 1, 3000)];
    assert_eq!(victim("pid.available<1k", &all), "many");
}

#[test]
fn memory_is_reclaimed_before_disk_and_a_soft_threshold_gives_pods_time() {
    let pod = [requesting("a", "memory", 0, 0, memory(5))];
    let both = thresholds("nodefs.available<10%", "memory.available<1Gi", "memory.available=1m");
    let soft = decided(&both, &pod, false);
    assert_eq!((soft[0].signal, soft[0].grace_period), ("memory.available", Duration::from_secs(20)));
    let hard = thresholds("memory.available<100Mi", "memory.available<1Gi", "memory.available=1m");
    let hard = decided(&hard, &pod, false);
    assert_eq!(hard[0].grace_period, IMMEDIATE);
    assert!(hard[0].message.contains("Threshold quantity: 100Mi"), "{}", hard[0].message);
}

#[test]
fn images_and_ended_containers_are_removed_before_a_pod_is_evicted_for_the_disk_that_they_are_on() {
    let pods = [requesting("a", "memory", 0, 0, disk(5, 5))];
    let decided = |hard: &str, dedicated_image_fs: bool| {
        let actions = decide(Round {
            met: &thresholds(hard, "", ""),
            observations: &available(60),
            candidates: &pods,
            disks: Disks { dedicated_image_fs },
            max_pod_grace_period: Duration::ZERO,
            reclaimed: false,
        });
        matches!(actions[..], [Action::Reclaim(StarvedResource::EphemeralStorage)])
    };
    assert!(decided("nodefs.available<10%", false) && decided("imagefs.available<10%", false));
    assert!(decided("imagefs.available<10%", true) && !decided("nodefs.available<10%", true));
    assert!(!decided("memory.available<100Mi", false));
}

/// The spec of a pod, what it uses, and the signal and the message of its eviction.
type Row = (Value, PodUsage, Option<(&'static str, &'static str)>);

#[test]
fn a_pod_that_exceeds_a_limit_of_its_local_storage_is_evicted_whether_the_node_is_under_pressure_or_not() {
    let limits = |limit: &str| json!({ "limits": { "ephemeral-storage": limit } });
    let with_size = |limit: &str| {
        json!({ "containers": [{ "name": "main" }],
                "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": limit } }] })
    };
    let in_volume = |bytes: u64| {
        let volumes = [("v".to_owned(), DiskUsage { bytes, inodes: 1 })].into();
        PodUsage { volumes, ..disk(0, 0) }
    };
    let one = |limit: &str| json!({ "containers": [{ "name": "main", "resources": limits(limit) }] });
    let two = json!({ "containers": [{ "name": "main", "resources": limits("10Mi") },
                                     { "name": "other", "resources": limits("1Mi") }] });
    let memory = json!({ "containers": [], "volumes": [
        { "name": "v", "emptyDir": { "sizeLimit": "1Mi", "medium": "Memory" } },
    ] });
    let table: [Row; 11] = [
        (with_size("1Mi"), in_volume(MIB), None),
        (
            with_size("1Mi"),
            in_volume(MIB + 1),
            Some(("emptydirfs.limit", "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ")),
        ),
        (memory, in_volume(2 * MIB), None),
        (one("5Mi"), disk(3, 2), None),
        (
            one("5Mi"),
            disk(3, 3),
            Some((
                "ephemeralpodfs.limit",
                "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
            )),
        ),
        (two.clone(), disk(5, 5), None),
        (
            two.clone(),
            disk(8, 4),
            Some((
                "ephemeralpodfs.limit",
                "Pod ephemeral local storage usage exceeds the total limit of containers 11Mi. ",
            )),
        ),
        (
            two,
            disk(6, 5),
            Some((
                "ephemeralcontainerfs.limit",
                "Container main exceeded its local ephemeral storage limit \"10Mi\". ",
            )),
        ),
        (one("0"), disk(0, 0), None),
        (
            one("0"),
            disk(0, 1),
            Some((
                "ephemeralpodfs.limit",
                "Pod ephemeral local storage usage exceeds the total limit of containers 0. ",
            )),
        ),
        (json!({ "containers": [{ "name": "main" }] }), disk(5000, 5000), None),
    ];
    for (spec, usage, expected) in table {
        let evicted = decided(&[], &[candidate("a", &spec, Some(usage.clone()))], false);
        let found = evicted.first().map(|eviction| (eviction.signal, &*eviction.message));
        assert_eq!(found, expected, "{spec} {usage:?}");
        assert!(evicted.iter().all(|one| !one.is_disruption && one.grace_period == IMMEDIATE));
        let critical = Candidate { critical: true, ..candidate("a", &spec, Some(usage)) };
        assert_eq!(decided(&[], &[critical], false), []);
    }
    // On a file system of their own writable layers do not count against the limit of a container.
    let evicted = decided(&[], &[candidate("a", &one("5Mi"), Some(disk(4, 4)))], true);
    assert_eq!(evicted[0].signal, "ephemeralpodfs.limit");
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    let usage = proptest::option::of((0_u64..200, 0_u64..200, 0_u64..200));
    ("[a-z]{6}", any::<bool>(), 0_u64..200, 0_i32..3, usage).prop_map(
        |(name, critical, request, priority, usage)| {
            let usage = usage.map(|(used, layer, logs)| PodUsage {
                tasks: used,
                memory: used * MIB,
                ..disk(layer, logs)
            });
            let known = requesting(&name, "memory", request, priority, PodUsage::default());
            Candidate { critical, usage, ..known }
        },
    )
}

proptest! {
    #[test]
    fn no_critical_pod_is_evicted_no_two_in_a_round_and_none_without_a_threshold_that_is_met(
        candidates in proptest::collection::vec(any_candidate(), 0..12),
        amount in 0_i64..200,
        dedicated_image_fs in any::<bool>(),
        reclaimed in any::<bool>(),
    ) {
        let all = thresholds(
            "memory.available<100Mi,nodefs.available<50Mi,imagefs.inodesFree<150M,pid.available<20",
            "memory.available<150Mi",
            "memory.available=1s",
        );
        let observations = available(amount);
        let met = observations.met(&all, false);
        let disks = Disks { dedicated_image_fs };
        let max_pod_grace_period = Duration::from_secs(5);
        let round = Round {
            met: &met, observations: &observations, candidates: &candidates, disks, max_pod_grace_period, reclaimed,
        };
        let actions = decide(round);
        prop_assert_eq!(&actions, &decide(round), "it is a function");
        prop_assert!(actions.len() <= 1);
        if met.is_empty() {
            prop_assert!(actions.is_empty());
        }
        for action in actions {
            match action {
                Action::Reclaim(resource) => prop_assert!(resource.is_disk() && !reclaimed),
                Action::Evict(eviction) => {
                    let named = candidates.iter().filter(|one| one.pod.metadata.uid.as_ref() == Some(&eviction.uid));
                    prop_assert!(named.into_iter().any(|one| !one.critical));
                    prop_assert!(eviction.grace_period <= max_pod_grace_period);
                }
            }
        }
    }
}
