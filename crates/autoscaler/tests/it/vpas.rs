//! Which VPA controls a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::Selector;
use plumb_autoscaler::api::{CrossVersionObjectReference, VerticalPodAutoscaler};
use plumb_autoscaler::vpas::VpaIndex;
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

fn labels(app: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), app.to_owned())])
}

fn deployment(name: &str) -> CrossVersionObjectReference {
    reference("apps/v1", "Deployment", name)
}

fn reference(version: &str, kind: &str, name: &str) -> CrossVersionObjectReference {
    CrossVersionObjectReference { api_version: Some(version.into()), kind: kind.into(), name: name.into() }
}

fn index(startup_boost: bool, vpas: &[Arc<VerticalPodAutoscaler>]) -> VpaIndex {
    let mut index = VpaIndex::new(startup_boost);
    for vpa in vpas {
        index.apply(vpa.clone());
        let name = vpa.metadata.name.clone().unwrap();
        index.set_selector("default", &name, Some(Selector::from_iter(labels("web"))));
    }
    index
}

/// The names of the VPA that controls a pod, and of the others.
fn controlling(index: &VpaIndex, target: &CrossVersionObjectReference) -> Vec<String> {
    let name = |vpa: &Arc<VerticalPodAutoscaler>| vpa.metadata.name.clone().unwrap();
    let found = index.controlling("default", &labels("web"), target);
    found.map_or(Vec::new(), |found| std::iter::once(found.vpa).chain(found.others).map(name).collect())
}

/// Of none.
const NONE: Vec<String> = Vec::new();

fn names(first: &str, others: &[&str]) -> Vec<String> {
    std::iter::once(&first).chain(others).map(|&name| name.to_owned()).collect()
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
    assert!(index.controlling("other", &labels("web"), &deployment("web")).is_none());
    assert!(index.controlling("default", &labels("db"), &deployment("web")).is_none());
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
        vpa("any", Some(2), target(Value::Null)),
        vpa("apps", Some(3), target(json!("apps/v1beta2"))),
        vpa("extensions", Some(4), target(json!("extensions/v1beta1"))),
    ];
    let index = index(true, &vpas);
    let found = |version| controlling(&index, &reference(version, "StatefulSet", "db"));
    assert_eq!(found("apps/v1"), names("any", &["apps", "extensions"]));
    assert_eq!(found("apps.kruise.io/v1alpha1"), names("kruise", &["any"]));
}

#[test]
fn a_vpa_whose_target_cannot_be_read_controls_nothing_until_it_can() {
    let mut index = VpaIndex::new(true);
    index.apply(vpa("web", Some(1), json!({})));
    assert_eq!(controlling(&index, &deployment("web")), NONE);
    index.set_selector("default", "web", Some(Selector::from_iter(labels("web"))));
    assert_eq!(controlling(&index, &deployment("web")), names("web", &[]));

    index.apply(vpa("web", Some(1), json!({ "recommenders": [{ "name": "x" }] })));
    assert_eq!(controlling(&index, &deployment("web")), names("web", &[]), "an update leaves the selector");
    let elsewhere = json!({ "targetRef": { "kind": "Deployment", "name": "other" } });
    index.apply(vpa("web", Some(1), elsewhere));
    assert_eq!(controlling(&index, &deployment("web")), NONE);
    assert_eq!(controlling(&index, &deployment("other")), NONE, "the selector was that of another target");
    assert_eq!(index.len(), 1);

    index.delete("default", "web");
    assert!(index.is_empty() && index.get("default", "web").is_none());
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
                index.set_selector("default", &name, Some(Selector::from_iter(labels("web"))));
                all.insert(name, vpa);
            }
            for target in 0..3 {
                let target = format!("web{target}");
                let oldest = all.values().filter(|vpa| vpa.spec.target_ref.name == target).min_by_key(|vpa| {
                    let created = vpa.metadata.creation_timestamp.as_ref().map(|time| time.0);
                    (created.is_none(), created, vpa.metadata.name.clone())
                });
                let found = index.controlling("default", &labels("web"), &deployment(&target));
                prop_assert_eq!(found.map(|found| found.vpa), oldest);
            }
        }
        prop_assert_eq!(index.len(), all.len());
    }
}
