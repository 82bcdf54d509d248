//! Volumes of pods: where their claims let them run, and when they are bound. The tests play the binder.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_features::FeatureGates;
use plumb_resize::rules::Rules;
use plumb_scheduler::features::STORAGE_CAPACITY_SCORING;
use plumb_scheduler::{Decision, Settings, VolumeBinding};
use serde_json::{Value, json};

use super::cluster::{Cluster, node, pod};

fn uses(claim: &str) -> Value {
    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] } })
}

fn claim(name: &str, class: &str, more: &[(&str, Value)]) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "annotations": {} },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Pending" },
    });
    for (pointer, value) in more {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        claim.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value.clone();
    }
    serde_json::from_value(claim).unwrap()
}

fn bound(name: &str, class: &str, volume: &str) -> PersistentVolumeClaim {
    claim(
        name,
        class,
        &[
            ("/metadata/annotations/pv.kubernetes.io~1bind-completed", json!("yes")),
            ("/spec/volumeName", json!(volume)),
            ("/status/phase", json!("Bound")),
        ],
    )
}

fn volume(name: &str, class: &str, on: Option<&str>) -> PersistentVolume {
    let affinity = on.map(|node| {
        let term = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
        json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [term] }] } })
    });
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "capacity": { "storage": "2Gi" },
            "nodeAffinity": affinity,
        },
        "status": { "phase": "Available" },
    }))
    .unwrap()
}

fn class(name: &str, provisioner: &str, mode: &str) -> StorageClass {
    let class =
        json!({ "metadata": { "name": name }, "provisioner": provisioner, "volumeBindingMode": mode });
    serde_json::from_value(class).unwrap()
}

fn two() -> Cluster {
    let mut cluster = Cluster::new([node("a", 4, "z"), node("b", 4, "z")]);
    for (name, provisioner, mode) in [
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("dynamic", "plumb.dev/local-path", "WaitForFirstConsumer"),
        ("immediate", "p.example/x", "Immediate"),
    ] {
        cluster.planner.handle_classes(WatchEvent::Applied(Box::new(class(name, provisioner, mode))));
    }
    cluster
}

impl Cluster {
    fn claim(&mut self, claim: PersistentVolumeClaim) {
        let now = self.now;
        self.planner.handle_claims(WatchEvent::Applied(Box::new(claim)), now);
    }

    fn volume(&mut self, volume: PersistentVolume) {
        self.planner.handle_volumes(WatchEvent::Applied(Box::new(volume)));
    }

    fn bindings(&mut self) -> Option<(String, Vec<VolumeBinding>)> {
        loop {
            if let Decision::BindVolumes { node, bindings, .. } = self.step()? {
                return Some((node, bindings));
            }
        }
    }
}

#[test]
fn a_pod_waits_for_its_claims_and_says_so_in_the_words_of_upstream() {
    let deleted = [("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))];
    let lost = [("/status/phase", json!("Lost")), ("/spec/volumeName", json!("gone"))];
    let no_help = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    for (claim, why) in [
        (None, "persistentvolumeclaim \"data\" not found."),
        (Some(claim("data", "immediate", &[])), "pod has unbound immediate PersistentVolumeClaims."),
        (Some(claim("data", "none", &[])), "pod has unbound immediate PersistentVolumeClaims."),
        (Some(claim("data", "dynamic", &deleted)), "persistentvolumeclaim \"data\" is being deleted."),
        (
            Some(claim("data", "dynamic", &lost)),
            "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"gone\".",
        ),
        (Some(claim("data", "local", &[])), "2 node(s) didn't find available persistent volumes to bind."),
        (
            Some(bound("data", "local", "elsewhere")),
            "2 node(s) didn't match PersistentVolume's node affinity.",
        ),
        (
            Some(bound("data", "local", "missing")),
            "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
        ),
    ] {
        let mut cluster = two();
        cluster.volume(volume("elsewhere", "local", Some("c")));
        if let Some(claim) = claim {
            cluster.claim(claim);
        }
        cluster.update(pod("p", 100, uses("data")));
        cluster.run_until_idle();
        assert_eq!(cluster.messages["p"], format!("0/2 nodes are available: {why} {no_help}"));
    }
}

#[test]
fn a_pod_follows_its_bound_claim_and_is_scheduled_when_the_claim_is_bound() {
    let mut cluster = two();
    cluster.claim(claim("data", "immediate", &[]));
    cluster.update(pod("p", 100, uses("data")));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), None);
    cluster.volume(volume("v", "immediate", Some("b")));
    cluster.claim(bound("data", "immediate", "v"));
    cluster.pass(2);
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("b"));
}

#[test]
fn a_volume_on_the_node_is_reserved_for_the_first_consumer_and_the_pod_bound_after_it() {
    let mut cluster = two();
    cluster.volume(volume("on-b", "local", Some("b")));
    cluster.claim(claim("one", "local", &[]));
    cluster.claim(claim("two", "local", &[]));
    cluster.update(pod("p", 100, uses("one")));
    let (node, bindings) = cluster.bindings().unwrap();
    assert_eq!(node, "b");
    let [VolumeBinding::Static { volume, claim }] = bindings.as_slice() else { panic!("{bindings:?}") };
    assert_eq!(
        (volume.metadata.name.as_deref(), claim.metadata.name.as_deref()),
        (Some("on-b"), Some("one"))
    );
    // The volume is assumed: no other pod gets it.
    cluster.update(pod("q", 100, uses("two")));
    cluster.run_until_idle();
    assert!(cluster.messages["q"].contains("2 node(s) didn't find available persistent volumes to bind"));
    assert_eq!(cluster.node_of("p"), None);
    cluster.claim(bound("one", "local", "on-b"));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), Some("b"));
}

#[test]
fn a_provisioner_is_asked_for_a_volume_on_the_selected_node_and_may_give_it_back() {
    let mut cluster = two();
    cluster.claim(claim("data", "dynamic", &[]));
    cluster.update(pod("p", 100, uses("data")));
    let (first, bindings) = cluster.bindings().unwrap();
    assert!(matches!(bindings.as_slice(), [VolumeBinding::Provision { .. }]), "{bindings:?}");
    let selected = [("/metadata/annotations/volume.kubernetes.io~1selected-node", json!(first))];
    cluster.claim(claim("data", "dynamic", &selected));
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("p"), None);
    // The provisioner cannot: the scheduler tries again.
    cluster.claim(claim("data", "dynamic", &[]));
    cluster.run_until_idle();
    assert_eq!(
        cluster.messages["p"],
        "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"data\""
    );
    cluster.pass(20);
    let (again, _) = cluster.bindings().unwrap();
    // What another pod uses of the same claim goes to the same node.
    cluster.update(pod("q", 100, uses("data")));
    let (of_other, _) = cluster.bindings().unwrap();
    assert_eq!(of_other, again);
    cluster.volume(volume("v", "dynamic", Some(&again)));
    cluster.claim(bound("data", "dynamic", "v"));
    cluster.run_until_idle();
    assert_eq!((cluster.node_of("p"), cluster.node_of("q")), (Some(&*again), Some(&*again)));
}

#[test]
fn bindings_of_volumes_time_out() {
    let mut cluster = two();
    cluster.claim(claim("data", "dynamic", &[]));
    cluster.update(pod("p", 100, uses("data")));
    assert!(cluster.bindings().is_some());
    cluster.pass(601);
    cluster.run_until_idle();
    assert!(cluster.messages["p"].ends_with("binding volumes: context deadline exceeded"));
    // The pod is deleted meanwhile: nothing is left of it.
    cluster.pass(20);
    assert!(cluster.bindings().is_some());
    cluster.delete("p");
    cluster.planner.handle_claims(WatchEvent::Deleted(ObjectRef::namespaced("default", "data")), cluster.now);
    cluster.run_until_idle();
    assert_eq!(cluster.planner.size(), (2, 0, 0));
}

#[test]
fn a_claim_for_one_pod_is_used_by_one_pod() {
    let mut cluster = two();
    let mut once = bound("data", "immediate", "v");
    once.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteOncePod".to_owned()]);
    cluster.volume(volume("v", "immediate", None));
    cluster.claim(once);
    cluster.update(pod("p", 100, uses("data")));
    cluster.run_until_idle();
    assert!(cluster.node_of("p").is_some());
    cluster.update(pod("q", 100, uses("data")));
    cluster.run_until_idle();
    let reason = "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                  another pod.";
    assert!(cluster.messages["q"].contains(reason), "{}", cluster.messages["q"]);
    cluster.delete("p");
    cluster.pass(2);
    cluster.run_until_idle();
    assert!(cluster.node_of("q").is_some());
}

#[test]
fn a_node_gets_no_more_volumes_of_a_driver_than_it_can_have() {
    let csi_node = |name: &str, count: Option<i32>| -> CSINode {
        let allocatable = count.map(|count| json!({ "count": count }));
        let driver = json!({ "name": "d.example", "nodeID": name, "allocatable": allocatable });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "drivers": [driver] } }))
            .unwrap()
    };
    let mut cluster = two();
    for (node, count) in [("a", 1), ("b", 0)] {
        let limited = csi_node(node, Some(count));
        cluster.planner.handle_csi_nodes(WatchEvent::Applied(Box::new(limited)));
    }
    for name in ["one", "two"] {
        let mut volume = volume(&format!("v-{name}"), "immediate", None);
        let source = json!({ "driver": "d.example", "volumeHandle": name });
        volume.spec.as_mut().unwrap().csi = serde_json::from_value(source).unwrap();
        cluster.volume(volume);
        cluster.claim(bound(name, "immediate", &format!("v-{name}")));
    }
    // One that is not bound yet counts as a volume of its provisioner.
    cluster.planner.handle_classes(WatchEvent::Applied(Box::new(class(
        "csi",
        "d.example",
        "WaitForFirstConsumer",
    ))));
    cluster.claim(claim("three", "csi", &[]));
    for (pod_name, claim, node) in
        [("p", "one", Some("a")), ("q", "two", None), ("r", "three", None), ("s", "one", Some("a"))]
    {
        cluster.update(pod(pod_name, 100, uses(claim)));
        cluster.run_until_idle();
        assert_eq!(cluster.node_of(pod_name), node, "{pod_name}");
    }
    assert!(cluster.messages["q"].contains("2 node(s) exceed max volume count"), "{}", cluster.messages["q"]);
    // Without a limit there is none.
    cluster.planner.handle_csi_nodes(WatchEvent::Applied(Box::new(csi_node("b", None))));
    cluster.pass(20);
    cluster.run_until_idle();
    assert_eq!(cluster.node_of("q"), Some("b"));
}

#[test]
fn a_claim_is_not_provisioned_on_a_node_whose_whole_disk_is_smaller() {
    let mut cluster = two();
    let mut with_disk = |name: &str, disk: &str| {
        let mut node = node(name, 4, "z");
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("plumb.dev/local-volumes-capacity".to_owned(), disk.to_owned());
        cluster.planner.handle_nodes(WatchEvent::Applied(Box::new(node)));
    };
    with_disk("a", "1Gi");
    with_disk("b", "10Gi");
    let requests = |size: &str| [("/spec/resources/requests/storage", json!(size))];
    for (name, size) in [("fits", "10Gi"), ("large", "11Gi")] {
        cluster.claim(claim(name, "dynamic", &requests(size)));
        cluster.update(pod(name, 100, uses(name)));
    }
    let (node, bindings) = cluster.bindings().unwrap();
    assert_eq!(node, "b");
    assert!(matches!(&*bindings, [VolumeBinding::Provision { .. }]), "{bindings:?}");
    cluster.run_until_idle();
    let why = "0/2 nodes are available: 2 node(s) did not have enough free storage. preemption: ";
    assert!(cluster.messages["large"].starts_with(why), "{}", cluster.messages["large"]);
}

fn driver(publishes: bool) -> CSIDriver {
    let spec = json!({ "storageCapacity": publishes });
    serde_json::from_value(json!({ "metadata": { "name": "d.example" }, "spec": spec })).unwrap()
}

fn capacity(name: &str, class: &str, on: Option<&str>, sizes: Value) -> CSIStorageCapacity {
    let topology = on.map(|node| json!({ "matchLabels": { "kubernetes.io/hostname": node } }));
    let mut object = json!({
        "metadata": { "name": name, "namespace": "driver" }, "storageClassName": class, "nodeTopology": topology,
    });
    object.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_driver_that_publishes_its_capacity_gets_claims_where_it_has_enough() {
    let enough = json!({ "capacity": "5Gi" });
    let split = json!({ "capacity": "5Gi", "maximumVolumeSize": "512Mi" });
    for (published, feasible) in [
        (vec![], None),
        (vec![capacity("on-b", "csi", Some("b"), enough.clone())], Some("b")),
        (vec![capacity("on-b", "other", Some("b"), enough.clone())], None),
        (vec![capacity("on-b", "csi", Some("b"), json!({ "capacity": "512Mi" }))], None),
        (vec![capacity("on-b", "csi", Some("b"), split)], None),
        (vec![capacity("on-b", "csi", Some("b"), json!({}))], None),
        (vec![capacity("nowhere", "csi", None, enough.clone())], None),
    ] {
        let mut cluster = two();
        let csi = class("csi", "d.example", "WaitForFirstConsumer");
        cluster.planner.handle_classes(WatchEvent::Applied(Box::new(csi)));
        cluster.planner.handle_csi_drivers(WatchEvent::Restarted(vec![driver(true)]));
        cluster.planner.handle_storage_capacities(WatchEvent::Restarted(published.clone()));
        cluster.claim(claim("data", "csi", &[]));
        cluster.update(pod("p", 100, uses("data")));
        let found = cluster.bindings().map(|(node, _)| node);
        assert_eq!(found.as_deref(), feasible, "{published:?}");
        if feasible.is_some() {
            continue;
        }
        let why = "0/2 nodes are available: 2 node(s) did not have enough free storage. preemption: ";
        assert!(cluster.messages["p"].starts_with(why), "{}", cluster.messages["p"]);
        // The driver has more space, or no longer says how much.
        if published.is_empty() {
            cluster.planner.handle_csi_drivers(WatchEvent::Applied(Box::new(driver(false))));
        } else {
            let more = capacity("more", "csi", Some("a"), enough.clone());
            cluster.planner.handle_storage_capacities(WatchEvent::Applied(Box::new(more)));
        }
        cluster.pass(20);
        assert!(cluster.bindings().is_some(), "{published:?}");
    }
}

/// Nodes `a` and `b`, of which `b` has less free cpu; storage counts with the gate.
fn scored(score_storage_capacity: bool) -> Cluster {
    let gates = FeatureGates::default().with(&STORAGE_CAPACITY_SCORING, score_storage_capacity);
    let settings = Settings::new(Rules::v1_36()).with_features(&gates);
    let mut cluster = Cluster::with(settings, [node("a", 4, "z"), node("b", 4, "z")]);
    let csi = class("csi", "d.example", "WaitForFirstConsumer");
    cluster.planner.handle_classes(WatchEvent::Applied(Box::new(csi)));
    cluster.update(pod("busy", 400, json!({ "spec": { "nodeName": "b" } })));
    cluster
}

#[test]
fn with_storage_capacity_scoring_a_claim_is_provisioned_where_most_is_free() {
    for (is_on, expected) in [(false, "a"), (true, "b")] {
        let mut cluster = scored(is_on);
        cluster.planner.handle_csi_drivers(WatchEvent::Restarted(vec![driver(true)]));
        let published = [("a", "2Gi"), ("b", "20Gi")]
            .map(|(node, size)| capacity(node, "csi", Some(node), json!({ "capacity": size })));
        cluster.planner.handle_storage_capacities(WatchEvent::Restarted(published.to_vec()));
        cluster.claim(claim("data", "csi", &[]));
        cluster.update(pod("p", 100, uses("data")));
        assert_eq!(cluster.bindings().map(|(node, _)| node).as_deref(), Some(expected), "{is_on}");
    }
}

#[test]
fn with_storage_capacity_scoring_a_claim_gets_the_volume_of_which_it_uses_least() {
    for (is_on, expected) in [(false, "a"), (true, "b")] {
        let mut cluster = scored(is_on);
        for (name, size) in [("a", "1Gi"), ("b", "10Gi")] {
            let mut volume = volume(name, "csi", Some(name));
            let capacity = volume.spec.as_mut().unwrap().capacity.as_mut().unwrap();
            capacity.insert("storage".to_owned(), Quantity(size.to_owned()));
            cluster.volume(volume);
        }
        cluster.claim(claim("data", "csi", &[]));
        cluster.update(pod("p", 100, uses("data")));
        let (node, bindings) = cluster.bindings().unwrap();
        assert_eq!(node, expected, "{is_on}");
        assert!(matches!(&*bindings, [VolumeBinding::Static { .. }]), "{bindings:?}");
    }
}
