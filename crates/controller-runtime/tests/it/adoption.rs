//! Adoption and release of pods by workloads.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::adoption::{Claim, adoption_patch, claims, release_patch};
use plumb_controller_runtime::{Store, WatchEvent, controller_reference};
use plumb_testkit::object;
use serde_json::json;

fn mk_set(terminating: bool) -> ReplicaSet {
    let time = terminating.then_some("2026-01-01T00:00:00Z");
    object(json!({
        "metadata": { "name": "web", "namespace": "n", "uid": "u", "deletionTimestamp": time },
        "spec": { "selector": { "matchLabels": { "app": "web" } } },
    }))
}

fn mk_pod(name: &str, app: &str, owner: Option<&str>, terminating: bool) -> Pod {
    let owners: Vec<_> = owner
        .iter()
        .map(|uid| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true }))
        .collect();
    let time = terminating.then_some("2026-01-01T00:00:00Z");
    object(json!({ "metadata": {
        "name": name, "namespace": "n", "uid": name, "labels": { "app": app }, "ownerReferences": owners, "deletionTimestamp": time,
    } }))
}

fn claimed(set: &ReplicaSet) -> Vec<String> {
    let store = Store::default();
    store.apply(WatchEvent::Restarted(vec![
        mk_pod("mine", "web", Some("u"), false),
        mk_pod("lost", "other", Some("u"), false),
        mk_pod("found", "web", None, false),
        mk_pod("terminating", "web", None, true),
        mk_pod("theirs", "web", Some("v"), false),
    ]));
    let claims = claims(set, Some(&set.spec.as_ref().unwrap().selector), &store);
    let text = |claim: &Claim<Pod>| match claim {
        Claim::Adopt(pod) => format!("adopt {}", pod.metadata.name.as_deref().unwrap()),
        Claim::Release(pod) => format!("release {}", pod.metadata.name.as_deref().unwrap()),
    };
    claims.iter().map(text).collect()
}

#[test]
fn pods_that_the_selector_matches_are_adopted_and_others_are_released() {
    assert_eq!(claimed(&mk_set(false)), ["release lost", "adopt found"]);
    assert_eq!(claimed(&mk_set(true)), [""; 0], "what is terminating claims nothing");
}

#[test]
fn the_finalizer_is_added_and_removed_with_the_owner_reference() {
    let owner = controller_reference(&mk_set(false));
    let patch = adoption_patch(&owner, "p", Some("example.com/tracking"));
    assert_eq!(patch["metadata"]["uid"], "p");
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(patch["metadata"]["finalizers"], json!(["example.com/tracking"]));
    let patch = release_patch(&owner, "p", Some("example.com/tracking"));
    assert_eq!(patch["metadata"]["ownerReferences"], json!([{ "$patch": "delete", "uid": "u" }]));
    assert_eq!(patch["metadata"]["$deleteFromPrimitiveList/finalizers"], json!(["example.com/tracking"]));
}
