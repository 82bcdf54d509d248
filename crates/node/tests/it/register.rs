//! A node in the cluster.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use plumb_node::Clock;
use plumb_node::register::{
    Machine, NodeHealth, Registered, Registrar, Setup, allocatable, check_reserved, status,
};
use plumb_testkit::in_time;
use serde_json::json;
use tokio::sync::watch;

use super::cluster::{Cluster, NODE};

fn machine() -> Machine {
    Machine {
        cpus: 4,
        memory: 8 << 30,
        disk: 100 << 30,
        boot_id: "boot".into(),
        os_image: "Some Linux 1".into(),
        ..Machine::default()
    }
}

fn setup() -> Setup {
    let mut setup = Setup::new(NODE);
    setup.labels.insert("zone".into(), "a".into());
    setup.reserved = serde_json::from_value(json!({ "cpu": "500m", "memory": "1Gi" })).unwrap();
    setup.addresses = vec!["192.168.1.7".parse().unwrap()];
    setup.port = 10251;
    setup.agent_version = "v1.36.4".into();
    setup.runtime_version = "plumb://1".into();
    setup.taints = serde_json::from_value(json!([{ "key": "gpu", "effect": "NoSchedule" }])).unwrap();
    setup.declared_features = vec!["InPlacePodLevelResourcesVerticalScaling".into()];
    setup.features = serde_json::from_value(json!({ "supplementalGroupsPolicy": true })).unwrap();
    setup
}

fn clock() -> Clock {
    Arc::new(Timestamp::now)
}

fn registrar(cluster: &Cluster) -> Registrar {
    Registrar::new(cluster.node(), setup(), Arc::new(machine()), clock())
}

fn condition(node: &Node, kind: &str) -> (String, String) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let found = conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone().unwrap())
}

/// Waits until the Node is such.
async fn node_that(cluster: &Cluster, holds: impl Fn(&Node) -> bool) -> Node {
    let nodes = Api::<Node>::all(cluster.admin());
    let fields = format!("metadata.name={NODE}");
    in_time(async {
        loop {
            let mut events = nodes.watch(&WatchParams::default().fields(&fields), "0").await.unwrap().boxed();
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event
                    && holds(&node)
                {
                    return node;
                }
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_registers_its_capacity_and_system() {
    let cluster = Cluster::start();
    let node = registrar(&cluster).register(&NodeHealth::default()).await.unwrap().node;
    assert_eq!(node.labels()["kubernetes.io/hostname"], NODE);
    assert_eq!(node.labels()["zone"], "a");
    // The API server adds that of a node that is not ready yet.
    let taints = json!(node.spec.as_ref().unwrap().taints);
    assert_eq!(taints[0], json!({ "key": "gpu", "effect": "NoSchedule" }), "{taints}");
    let status = node.status.clone().unwrap();
    assert_eq!(json!(status.declared_features), json!(["InPlacePodLevelResourcesVerticalScaling"]));
    assert_eq!(json!(status.features), json!({ "supplementalGroupsPolicy": true }));
    assert_eq!(
        json!(status.capacity),
        json!({ "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi" })
    );
    assert_eq!(
        json!(status.allocatable),
        json!({ "cpu": "3500m", "memory": "7068Mi", "pods": "110", "ephemeral-storage": "90Gi" })
    );
    let expected = json!([
        { "type": "InternalIP", "address": "192.168.1.7" }, { "type": "Hostname", "address": NODE },
    ]);
    assert_eq!(json!(status.addresses), expected);
    assert_eq!(status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port, 10251);
    let info = status.node_info.unwrap();
    assert_eq!((info.boot_id.as_str(), info.os_image.as_str()), ("boot", "Some Linux 1"));
    assert_eq!(condition(&node, "Ready"), ("True".into(), "kubelet is posting ready status".into()));
    assert_eq!(condition(&node, "DiskPressure"), ("False".into(), "kubelet has no disk pressure".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_node_is_updated_and_fields_of_other_writers_stay() {
    let cluster = Cluster::start();
    let nodes = Api::<Node>::all(cluster.admin());
    let there = json!({
        "metadata": { "name": NODE, "labels": { "team": "blue", "kubernetes.io/os": "other" } },
        "spec": { "unschedulable": true, "taints": [{ "key": "k", "effect": "NoSchedule" }] },
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(there).unwrap()).await.unwrap();
    let network = json!({ "type": "NetworkUnavailable", "status": "False" });
    let said = json!({ "status": { "conditions": [network], "capacity": { "example.com/gpu": "2" } } });
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(said)).await.unwrap();

    let node = registrar(&cluster).register(&NodeHealth::default()).await.unwrap().node;
    assert_eq!(
        (node.labels()["team"].as_str(), node.labels()["kubernetes.io/os"].as_str()),
        ("blue", "linux")
    );
    let spec = node.spec.clone().unwrap();
    assert_eq!(spec.unschedulable, Some(true));
    assert!(spec.taints.unwrap().iter().any(|taint| taint.key == "k"));
    let status = node.status.clone().unwrap();
    assert!(status.conditions.unwrap().iter().any(|condition| condition.type_ == "NetworkUnavailable"));
    assert_eq!(status.capacity.unwrap()["example.com/gpu"].0, "2");
    assert_eq!(condition(&node, "Ready").0, "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_reported_at_once_and_a_deleted_node_is_created_again() {
    let cluster = Cluster::start();
    let registrar = registrar(&cluster);
    let node = registrar.register(&NodeHealth::default()).await.unwrap();
    let (health_sender, health) = watch::channel(NodeHealth::default());
    let keeping = tokio::spawn(async move { registrar.run(node, health).await });
    let not_ready = NodeHealth { not_ready: Some("the runtime is away".into()), ..NodeHealth::default() };
    health_sender.send_replace(not_ready.clone());
    let node = node_that(&cluster, |node| condition(node, "Ready").0 == "False").await;
    assert_eq!(condition(&node, "Ready").1, "the runtime is away");

    // A runtime that is back does not make a node ready that is being shut down.
    health_sender.send_replace(NodeHealth { shutting_down: true, ..NodeHealth::default() });
    let node = node_that(&cluster, |node| condition(node, "Ready").1 == "node is shutting down").await;
    assert_eq!(condition(&node, "Ready").0, "False");

    Api::<Node>::all(cluster.admin()).delete(NODE, &DeleteParams::default()).await.unwrap();
    health_sender.send_replace(NodeHealth { memory_pressure: true, ..NodeHealth::default() });
    let back = node_that(&cluster, |node| {
        node.status.as_ref().is_some_and(|status| status.conditions.is_some())
            && condition(node, "MemoryPressure").0 == "True"
    })
    .await;
    assert_ne!(back.uid(), node.uid());
    keeping.abort();
}

/// Registers the node like an agent that has just started.
fn keep(cluster: &Cluster, registered: &Registered) -> tokio::task::JoinHandle<()> {
    let (registrar, node) = (registrar(cluster), registered.clone());
    let health = watch::channel(NodeHealth::default()).1;
    tokio::spawn(async move { registrar.run(node, health).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_owned_by_the_node_and_renewed_after_other_writers() {
    let cluster = Cluster::start();
    let registered = registrar(&cluster).register(&NodeHealth::default()).await.unwrap();
    let node = registered.node.clone();
    let leases = Api::<Lease>::namespaced(cluster.admin(), "kube-node-lease");
    let keeping = keep(&cluster, &registered);
    let lease = in_time(async {
        loop {
            let mut events = leases.watch(&WatchParams::default(), "0").await.unwrap().boxed();
            if let Some(Ok(WatchEvent::Added(lease))) = events.next().await {
                return lease;
            }
        }
    })
    .await;
    keeping.abort();
    let spec = lease.spec.clone().unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(NODE), Some(40)));
    assert_eq!(lease.owner_references()[0].uid, node.uid().unwrap());

    // An agent that comes after takes up the lease that is there.
    let keeping = keep(&cluster, &registered);
    let renewed = in_time(async {
        let mut events =
            leases.watch(&WatchParams::default(), &lease.resource_version().unwrap()).await.unwrap().boxed();
        loop {
            let event = events.next().await.expect("the watch goes on").unwrap();
            if let WatchEvent::Modified(lease) = event {
                return lease;
            }
        }
    })
    .await;
    keeping.abort();
    assert!(renewed.spec.unwrap().renew_time.unwrap().0 > spec.renew_time.unwrap().0);
}

#[test]
fn unchanged_conditions_keep_their_transition_time() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let first = status(&setup(), &machine(), None, &NodeHealth::default(), at(10));
    let short = NodeHealth { disk_pressure: true, ..NodeHealth::default() };
    let second = status(&setup(), &machine(), Some(&first), &short, at(20));
    let times: Vec<(String, i64, i64)> = second
        .conditions
        .unwrap()
        .into_iter()
        .map(|condition| {
            let since = condition.last_transition_time.unwrap().0.as_second();
            (condition.type_, since, condition.last_heartbeat_time.unwrap().0.as_second())
        })
        .collect();
    let expected = [("MemoryPressure", 10), ("DiskPressure", 20), ("PIDPressure", 10), ("Ready", 10)];
    assert_eq!(times, expected.map(|(kind, since)| (kind.to_owned(), since, 20)));
}

#[test]
fn a_node_with_made_up_figures_gives_all_of_them() {
    let mut setup = Setup::new("virtual");
    setup.capacity =
        serde_json::from_value(json!({ "cpu": "64", "memory": "256Gi", "example.com/x": "1" })).unwrap();
    setup.max_pods = 30;
    let given = allocatable(&setup, &Machine { disk: 0, ..machine() });
    assert_eq!(json!(given), json!({ "cpu": "64", "memory": "256Gi", "pods": "30", "example.com/x": "1" }));
    setup.reserved = serde_json::from_value(json!({ "memory": "300Gi" })).unwrap();
    assert_eq!(allocatable(&setup, &machine())["memory"].0, "0");
}

#[test]
fn what_hard_eviction_thresholds_keep_free_is_not_allocatable() {
    let mut setup = Setup::new(NODE);
    let mut amounts = |eviction_hard: &str| {
        setup.eviction_hard = eviction_hard.parse().unwrap();
        let all = allocatable(&setup, &machine());
        ["memory", "ephemeral-storage"].map(|name| all[name].0.clone())
    };
    assert_eq!(amounts(""), ["8Gi", "100Gi"]);
    assert_eq!(amounts("memory.available<1Gi,nodefs.available<25Gi,imagefs.available<50%"), ["7Gi", "75Gi"]);
    assert_eq!(amounts("memory.available<50%"), ["4Gi", "100Gi"]);
}

#[test]
fn a_reservation_that_leaves_pods_no_memory_or_processes_is_refused() {
    let machine = Machine { pids: 32_768, ..machine() };
    let check = |name: &str, amount: &str| {
        let mut setup = Setup::new(NODE);
        setup.reserved = serde_json::from_value(json!({ name: amount })).unwrap();
        check_reserved(&setup, &machine).map_err(|error| error.to_string())
    };
    let refused = |name, amount, has, why| {
        Err(format!(
            "invalid Node Allocatable configuration. Resource {name:?} has a reservation of {amount} but capacity of \
             {has}. {why}"
        ))
    };
    let (exceeds, all) = ("Expected capacity >= reservation.", "It leaves nothing for pods.");
    assert_eq!(check("pid", "5000000"), refused("pid", "5000000", "32768", exceeds));
    assert_eq!(check("pid", "32768"), refused("pid", "32768", "32768", all));
    assert_eq!(check("pid", "32767"), Ok(()));
    assert_eq!(check("memory", "8Gi"), refused("memory", "8Gi", "8Gi", all));
    assert_eq!(check("memory", "9Gi"), refused("memory", "9Gi", "8Gi", exceeds));
    assert_eq!(check("memory", "1Gi"), Ok(()));
    // The CPU of pods is a weight: a node may reserve all of it.
    assert_eq!(check("cpu", "4"), Ok(()));
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn the_machine_is_read_from_the_kernels_files() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n");
    put(root, "proc/meminfo", "MemTotal:        2048 kB\nMemAvailable:    1024 kB\n");
    put(root, "proc/sys/kernel/random/boot_id", "b-1\n");
    put(root, "proc/sys/kernel/osrelease", "6.1.0\n");
    put(root, "proc/sys/kernel/pid_max", "100\n");
    put(root, "proc/sys/kernel/threads-max", "4096\n");
    put(root, "etc/machine-id", "m-1\n");
    put(root, "etc/os-release", "ID=some\nPRETTY_NAME=\"Some Linux 1\"\n");
    let expected = Machine {
        cpus: 2,
        memory: 2 << 20,
        disk: 0,
        pids: 100,
        boot_id: "b-1".into(),
        machine_id: "m-1".into(),
        system_uuid: "m-1".into(),
        os_image: "Some Linux 1".into(),
        kernel_version: "6.1.0".into(),
    };
    assert_eq!(Machine::read(root).unwrap(), expected);
    let here = Machine::read(Path::new("/")).unwrap().with_disk_of(root).unwrap();
    assert!(here.cpus > 0 && here.memory > 0 && here.disk > 0);
}
