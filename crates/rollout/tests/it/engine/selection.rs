use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::engine::{Selected, select};
use plumb_testkit::object;
use serde_json::{Value, json};

fn policy(name: &str, created: &str, spec: Value) -> Arc<RolloutPolicy> {
    Arc::new(object(json!({
        "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": name, "namespace": "default", "creationTimestamp": created },
        "spec": spec,
    })))
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-02T00:00:00Z";

#[test]
fn the_oldest_policy_that_selects_a_workload_binds_it() {
    let by_name = json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
    let by_label = json!({ "selector": { "matchLabels": { "app": "web" } } });
    let elsewhere = json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web" } });
    let unreadable = json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } });
    let policies = [
        policy("late", LATE, by_name.clone()),
        policy("b", EARLY, by_label.clone()),
        policy("a", EARLY, by_label.clone()),
        policy("other", EARLY, elsewhere),
        policy("odd", EARLY, unreadable),
    ];
    let metadata: ObjectMeta =
        object(json!({ "name": "web", "namespace": "default", "labels": { "app": "web" } }));
    let workload = Selected { group: "apps", kind: "Deployment", metadata: &metadata };
    let selection = select(&policies, &workload);
    let others: Vec<String> = selection.others.iter().map(|policy| policy.name_any()).collect();
    assert_eq!((selection.bound.unwrap().name_any(), others), ("a".into(), vec!["b".into(), "late".into()]));

    let unlabelled: ObjectMeta = object(json!({ "name": "web", "namespace": "default" }));
    let selection = select(&policies, &Selected { metadata: &unlabelled, ..workload });
    assert_eq!(selection.bound.unwrap().name_any(), "late");

    let foreign: ObjectMeta =
        object(json!({ "name": "web", "namespace": "team", "labels": { "app": "web" } }));
    assert_eq!(select(&policies, &Selected { metadata: &foreign, ..workload }).bound, None);
    assert_eq!(
        select(&policies, &Selected { group: "apps.kruise.io", ..workload }).bound.unwrap().name_any(),
        "a"
    );
}
