//! Which VPA controls a pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::{Store, WatchEvent};
use plumb_testkit::{ManualClock, TestCluster};
use plumb_vpa::node_groups::{NODE_SELECTOR_ANNOTATION, node_of};
use plumb_vpa::target::{ControllerRef, TargetConfig, Targets};
use plumb_vpa::vpas::{Controlling, VpaIndex, Vpas, why_stronger};
use plumb_vpa_api::VerticalPodAutoscaler;
use proptest::prelude::*;
use serde_json::{Value, json};

fn vpa(name: &str, created: Option<i64>, spec: Value) -> Arc<VerticalPodAutoscaler> {
    let mut spec = spec;
    let fields = spec.as_object_mut().unwrap();
    fields
        .entry("targetRef")
        .or_insert(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }));
    let created = created.map(|hour| format!("2026-01-01T{hour:02}:00:00Z"));
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name, "namespace": "default", "creationTimestamp": created }, "spec": spec,
    }))
    .unwrap()
}

fn deployment(name: &str) -> ControllerRef {
    ControllerRef::new("default", "apps/v1", "Deployment", name)
}

fn index(startup_boost: bool, vpas: &[Arc<VerticalPodAutoscaler>]) -> VpaIndex {
    let mut index = VpaIndex::new(startup_boost);
    for vpa in vpas {
        index.apply(vpa.clone());
    }
    index
}

/// The names of the VPA that controls the pods of a controller, and of the others.
fn controlling(index: &VpaIndex, target: &ControllerRef) -> Vec<String> {
    named(index.controlling(target, None))
}

fn named(found: Option<Controlling>) -> Vec<String> {
    let name = |vpa: Arc<VerticalPodAutoscaler>| vpa.metadata.name.clone().unwrap();
    found.map_or(Vec::new(), |found| std::iter::once(found.vpa).chain(found.others).map(name).collect())
}

/// Of none.
const NONE: Vec<String> = Vec::new();

fn names(first: &str, others: &[&str]) -> Vec<String> {
    std::iter::once(&first).chain(others).map(|&name| name.to_owned()).collect()
}

/// A VPA of the `DaemonSet` agent for the nodes that a selector matches.
fn of_nodes(name: &str, created: i64, nodes: &str, mut spec: Value) -> Arc<VerticalPodAutoscaler> {
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent" });
    let mut vpa = (*vpa(name, Some(created), spec)).clone();
    if !nodes.is_empty() {
        vpa.metadata.annotations = Some([(NODE_SELECTOR_ANNOTATION.to_owned(), nodes.to_owned())].into());
    }
    Arc::new(vpa)
}

#[test]
fn the_reason_for_choosing_one_of_two_vpas_is_named() {
    let (old, new) = (vpa("b", Some(1), json!({})), vpa("a", Some(2), json!({})));
    assert_eq!(why_stronger(&old, &new), "is older");
    let same = vpa("c", Some(1), json!({}));
    assert_eq!(why_stronger(&old, &same), "was created in the same second, comes first by name");
}

#[test]
fn vpas_that_select_nodes_control_the_pods_on_these_before_all_others() {
    let off = json!({ "updatePolicy": { "updateMode": "Off" } });
    let vpas = [
        of_nodes("all", 1, "", json!({})),
        of_nodes("large", 2, "size in (large,huge)", json!({})),
        of_nodes("huge", 3, "size=huge", json!({})),
        of_nodes("off", 0, "size=small", off),
        of_nodes("syntax", 0, "size in", json!({})),
    ];
    let agent = ControllerRef::new("default", "apps/v1", "DaemonSet", "agent");
    let mut index = VpaIndex::new(true).with_node_selectors(true);
    let mut without = VpaIndex::new(true);
    for vpa in vpas {
        index.apply(vpa.clone());
        without.apply(vpa);
    }
    assert!(index.selects_nodes(&agent) && !without.selects_nodes(&agent));
    for (size, expected) in [
        (None, names("all", &[])),
        (Some("small"), names("all", &[])),
        (Some("large"), names("large", &[])),
        (Some("huge"), names("large", &["huge"])),
    ] {
        let labels = size.map(|size| BTreeMap::from([("size".to_owned(), size.to_owned())]));
        let found = |index: &VpaIndex| named(index.controlling(&agent, labels.as_ref()));
        assert_eq!(found(&index), expected, "{size:?}");
        assert_eq!(found(&without), names("all", &[]), "{size:?} without the flag");
    }
}

#[test]
fn a_vpa_of_a_deployment_cannot_select_nodes_and_controls_no_pod() {
    let mut by_nodes = (*vpa("nodes", Some(1), json!({}))).clone();
    by_nodes.metadata.annotations =
        Some([(NODE_SELECTOR_ANNOTATION.to_owned(), "size=large".to_owned())].into());
    let mut index = VpaIndex::new(true).with_node_selectors(true);
    index.apply(Arc::new(by_nodes));
    index.apply(vpa("newer", Some(2), json!({})));
    assert_eq!(controlling(&index, &deployment("web")), names("newer", &[]));
}

#[test]
fn the_node_of_a_pod_is_known_before_it_is_bound_if_a_daemonset_has_created_it() {
    let terms = |terms: Value| {
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms } } } })
    };
    let name = |names: Value| json!([{ "key": "metadata.name", "operator": "In", "values": names }]);
    for (what, spec, expected) in [
        ("bound", json!({ "nodeName": "a" }), Some("a")),
        ("named", terms(json!([{ "matchFields": name(json!(["b"])) }])), Some("b")),
        (
            "twice",
            terms(json!([{ "matchFields": name(json!(["b"])) }, { "matchFields": name(json!(["b"])) }])),
            Some("b"),
        ),
        (
            "either",
            terms(json!([{ "matchFields": name(json!(["b"])) }, { "matchFields": name(json!(["c"])) }])),
            None,
        ),
        ("any of two", terms(json!([{ "matchFields": name(json!(["b", "c"])) }])), None),
        ("by labels", terms(json!([{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }])), None),
        ("nothing", json!({}), None),
    ] {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(node_of(&pod), expected, "{what}");
    }
}

#[test]
fn the_oldest_vpa_controls_a_pod_and_the_others_are_reported() {
    let vpas = [
        vpa("b-young", Some(3), json!({})),
        vpa("old", Some(1), json!({})),
        vpa("a-young", Some(3), json!({})),
        vpa("unborn", None, json!({})),
    ];
    let index = index(true, &vpas);
    assert_eq!(controlling(&index, &deployment("web")), names("old", &["a-young", "b-young", "unborn"]));
    assert_eq!(controlling(&index, &deployment("other")), NONE);
    assert_eq!(controlling(&index, &ControllerRef::new("other", "apps/v1", "Deployment", "web")), NONE);
    assert!(index.has_any_in("default") && !index.has_any_in("other"));
}

#[test]
fn a_vpa_of_mode_off_controls_pods_only_if_it_boosts_them() {
    let off = |more: Value| {
        let mut spec = json!({ "updatePolicy": { "updateMode": "Off" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        vpa("off", Some(1), spec)
    };
    let boost = json!({ "cpu": { "type": "Factor", "factor": 2 } });
    let of_container = json!({ "resourcePolicy": { "containerPolicies": [{ "startupBoost": boost }] } });
    let younger = vpa("younger", Some(2), json!({ "updatePolicy": { "updateMode": "Initial" } }));
    for (name, off, gate, expected) in [
        ("no boost", off(json!({})), true, names("younger", &[])),
        ("an empty boost", off(json!({ "startupBoost": {} })), true, names("younger", &[])),
        ("a boost", off(json!({ "startupBoost": boost })), true, names("off", &["younger"])),
        ("a boost of one container", off(of_container), true, names("off", &["younger"])),
        ("a boost, and the gate is off", off(json!({ "startupBoost": boost })), false, names("younger", &[])),
    ] {
        assert_eq!(
            controlling(&index(gate, &[off, younger.clone()]), &deployment("web")),
            expected,
            "{name}"
        );
    }
}

#[test]
fn targets_of_other_groups_are_other_targets() {
    let target = |version: Value| json!({ "targetRef": { "apiVersion": version, "kind": "StatefulSet", "name": "db" } });
    let vpas = [
        vpa("kruise", Some(1), target(json!("apps.kruise.io/v1beta1"))),
        vpa("none", Some(2), target(Value::Null)),
        vpa("apps", Some(3), target(json!("apps/v1beta2"))),
        vpa("extensions", Some(4), target(json!("extensions/v1beta1"))),
    ];
    let index = index(true, &vpas);
    let found = |version| controlling(&index, &ControllerRef::new("default", version, "StatefulSet", "db"));
    assert_eq!(found("apps/v1"), names("none", &["apps", "extensions"]));
    assert_eq!(found("apps.kruise.io/v1alpha1"), names("kruise", &[]));
}

#[test]
fn a_vpa_that_targets_something_else_now_controls_that() {
    let mut index = index(true, &[vpa("web", Some(1), json!({}))]);
    assert_eq!(controlling(&index, &deployment("web")), names("web", &[]));
    index.apply(vpa("web", Some(1), json!({ "targetRef": { "kind": "Deployment", "name": "other" } })));
    assert_eq!(controlling(&index, &deployment("web")), NONE);
    assert_eq!(controlling(&index, &deployment("other")), names("web", &[]));
    assert_eq!(index.len(), 1);
    assert!(index.get("default", "web").is_some());
    index.delete("default", "web");
    assert!(index.is_empty() && index.get("default", "web").is_none());
}

#[tokio::test]
async fn a_pod_belongs_to_the_vpa_of_its_topmost_controller_if_that_selects_it() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } },
    });
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();

    let store = Arc::new(Store::default());
    let vpas = Vpas::new(&store, Targets::new(client, TargetConfig::default()), true, None);
    let pod = |app: &str, kind: &str| -> Pod {
        let metadata = json!({
            "namespace": "default", "labels": { "app": app },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": true }],
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    assert_eq!(vpas.of_pod(&pod("web", "Deployment")).await, Ok(None), "no VPA, and no request");
    store.apply(WatchEvent::Restarted(vec![(*vpa("web", Some(1), json!({}))).clone()]));
    let found = |controlling: Controlling| controlling.vpa.metadata.name.clone().unwrap();
    assert_eq!(vpas.of_pod(&pod("web", "Deployment")).await.unwrap().map(found).as_deref(), Some("web"));
    assert_eq!(vpas.of_pod(&pod("db", "Deployment")).await, Ok(None), "the target does not select it");
    let mut bare = pod("web", "Deployment");
    bare.metadata.owner_references = None;
    assert_eq!(vpas.of_pod(&bare).await, Ok(None));
    assert!(vpas.of_pod(&pod("web", "StatefulSet")).await.is_err(), "its controller does not exist");

    store.apply(WatchEvent::Restarted(Vec::new()));
    assert_eq!(vpas.of_pod(&pod("web", "Deployment")).await, Ok(None));
}

#[tokio::test]
async fn the_pods_of_a_target_that_was_replaced_belong_to_its_vpa_though_it_selects_other_labels() {
    let cluster = TestCluster::start();
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.admin());
    let deployment = |app: &str| -> Deployment {
        let template = json!({ "metadata": { "labels": { "app": app } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let spec = json!({ "selector": { "matchLabels": { "app": app } }, "template": template });
        serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap()
    };
    let pod = |app: &str| -> Pod {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true });
        let metadata =
            json!({ "namespace": "default", "labels": { "app": app }, "ownerReferences": [owner] });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let client = cluster.intercepted("webhook", ["system:masters"], move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let clock = ManualClock::default();
    let config = TargetConfig { clock: clock.clock(), ..TargetConfig::default() };
    let store = Arc::new(Store::default());
    let vpas = Vpas::new(&store, Targets::new(client, config), true, None);
    store.apply(WatchEvent::Restarted(vec![(*vpa("web", Some(1), json!({}))).clone()]));
    let is_controlled = async |app: &str| vpas.of_pod(&pod(app)).await.unwrap().is_some();

    deployments.create(&PostParams::default(), &deployment("web")).await.unwrap();
    assert!(is_controlled("web").await && !is_controlled("shop").await);
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    deployments.create(&PostParams::default(), &deployment("shop")).await.unwrap();
    clock.advance(Duration::from_mins(1));
    assert!(is_controlled("shop").await && !is_controlled("web").await);
    let before = requests.load(Ordering::SeqCst);
    for _ in 0..10 {
        assert!(!is_controlled("web").await);
    }
    assert_eq!(requests.load(Ordering::SeqCst), before, "what was read a moment ago counts");
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_of_all_vpas_finds(
        steps in prop::collection::vec((0usize..6, 0usize..3, prop::option::of(0i64..3), any::<bool>()), 1..40)
    ) {
        let mut index = VpaIndex::new(true);
        let mut all: BTreeMap<String, Arc<VerticalPodAutoscaler>> = BTreeMap::new();
        for (name, target, created, deleted) in steps {
            let name = format!("vpa{name}");
            if deleted {
                index.delete("default", &name);
                all.remove(&name);
            } else {
                let target = json!({ "targetRef": { "kind": "Deployment", "name": format!("web{target}") } });
                let vpa = vpa(&name, created, target);
                index.apply(vpa.clone());
                all.insert(name, vpa);
            }
            for target in 0..3 {
                let target = format!("web{target}");
                let oldest = all.values().filter(|vpa| vpa.spec.target_ref.name == target).min_by_key(|vpa| {
                    let created = vpa.metadata.creation_timestamp.as_ref().map(|time| time.0);
                    (created.is_none(), created, vpa.metadata.name.clone())
                });
                let found = index.controlling(&deployment(&target), None);
                prop_assert_eq!(found.as_ref().map(|found| &found.vpa), oldest);
            }
        }
        prop_assert_eq!(index.len(), all.len());
    }
}
