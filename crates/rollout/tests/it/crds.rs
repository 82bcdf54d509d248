//! The `CustomResourceDefinition`s: their YAML, and what an API server makes of objects by them.

use std::path::PathBuf;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::PostParams;
use plumb_client::Api;
use plumb_rollout::api::{OnFailure, RolloutPolicy, Share, crds};
use plumb_rollout::engine::Settings;
use plumb_rollout::workloads::WorkloadKind;
use plumb_testkit::TestCluster;
use serde_json::{Value, json};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds.yaml")
}

fn yaml() -> String {
    let documents: Vec<String> =
        crds::all().iter().map(|crd| serde_saphyr::to_string(crd).unwrap()).collect();
    format!(
        "# Generated from the types in src/api. `cargo test -p plumb-rollout -- --ignored update_the_definitions`\n\
         # writes it anew.\n---\n{}",
        documents.join("---\n")
    )
}

#[test]
fn the_definitions_are_those_in_the_golden_file() {
    let stored = std::fs::read_to_string(golden()).unwrap_or_default();
    assert!(
        stored == yaml(),
        "crds.yaml is not what the types give: \
         run `cargo test -p plumb-rollout -- --ignored update_the_definitions` and read the difference"
    );
}

#[test]
#[ignore = "writes crds.yaml"]
fn update_the_definitions() {
    std::fs::write(golden(), yaml()).unwrap();
}

/// A cluster with the definitions.
pub(crate) async fn with_definitions() -> (TestCluster, Client) {
    let cluster = TestCluster::start();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    for crd in crds::all() {
        let stored = definitions.create(&PostParams::default(), &crd).await.unwrap();
        let conditions = stored.status.and_then(|status| status.conditions).unwrap_or_default();
        let established = conditions.iter().find(|condition| condition.type_ == "Established").unwrap();
        assert_eq!(established.status, "True", "{established:?}");
        assert!(
            conditions.iter().all(|condition| condition.type_ != "NonStructuralSchema"),
            "{conditions:?}"
        );
    }
    let client = cluster.admin();
    (cluster, client)
}

async fn create(client: &Client, spec: Value) -> Result<Value, kube::Error> {
    let body = json!({ "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "generateName": "policy-" }, "spec": spec });
    let path = "/apis/plumb.dev/v1alpha1/namespaces/default/rolloutpolicies";
    let request = Request::post(path).header("content-type", "application/json");
    client.request(request.body(serde_json::to_vec(&body).unwrap()).unwrap()).await
}

#[tokio::test]
async fn a_policy_has_the_defaults_that_apply_without_one() {
    let (_cluster, client) = with_definitions().await;
    let stored =
        create(&client, json!({ "targetRef": { "kind": "Deployment", "name": "web" } })).await.unwrap();
    assert_eq!(
        stored["spec"],
        json!({
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxConcurrent": "10%", "partition": 0, "soakSeconds": 0, "deferredDeadlineSeconds": 300,
            "onFailure": "Hold", "drift": "Ignore", "paused": false,
        })
    );
    let policy: RolloutPolicy = serde_json::from_value(stored).unwrap();
    assert_eq!(Settings::from(&policy.spec), Settings::default());
}

#[tokio::test]
async fn a_policy_with_every_field_comes_back_as_written() {
    let (_cluster, client) = with_definitions().await;
    let spec = json!({
        "selector": { "matchLabels": { "tier": "front" },
            "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web"] }] },
        "maxConcurrent": 50, "maxUnavailable": "25%", "partition": "20%",
        "canary": [{ "pods": 1, "pauseSeconds": 60 }, { "pods": "10%" }],
        "soakSeconds": 30, "deferredDeadlineSeconds": 60, "onFailure": "RollbackAll", "drift": "Enforce",
        "paused": true,
    });
    let stored = create(&client, spec.clone()).await.unwrap();
    assert_eq!(stored["spec"], spec);
    let policy: RolloutPolicy = serde_json::from_value(stored).unwrap();
    let settings = Settings::from(&policy.spec);
    assert_eq!((settings.max_concurrent, settings.partition), (Share::Count(50), Share::Percent(20)));
    assert_eq!((settings.on_failure, settings.steps.len()), (OnFailure::RollbackAll, 2));
    assert_eq!((settings.steps[0].pause.map(|p| p.as_secs()), settings.steps[1].pause), (Some(60), None));
}

#[tokio::test]
async fn invalid_policies_are_refused() {
    let (_cluster, client) = with_definitions().await;
    let table = [
        (json!({ "maxConcurrent": 0 }), "greater than or equal to 1"),
        (json!({ "maxConcurrent": "0%" }), "should match"),
        (json!({ "maxConcurrent": "101%" }), "should match"),
        (json!({ "maxConcurrent": "many" }), "should match"),
        (json!({ "maxConcurrent": -1 }), "greater than or equal to 1"),
        (json!({ "maxUnavailable": "150%" }), "should match"),
        (json!({ "partition": -1 }), "greater than or equal to 0"),
        (json!({ "onFailure": "Panic" }), "supported values"),
        (json!({ "drift": "Both" }), "supported values"),
        (json!({ "soakSeconds": -1 }), "greater than or equal to 0"),
        (json!({ "deferredDeadlineSeconds": 0 }), "greater than or equal to 1"),
        (json!({ "canary": [{ "pods": 0 }] }), "greater than or equal to 1"),
        (json!({ "canary": [{ "pauseSeconds": 1 }] }), "Required value"),
        (
            json!({ "canary": [{ "pods": "50%" }, { "pods": 1 }] }),
            "a step includes the pods of those before it",
        ),
        (
            json!({ "canary": [{ "pods": 3 }, { "pods": "50%" }, { "pods": 2 }] }),
            "a step includes the pods of",
        ),
        (json!({ "canary": [{ "pods": "50%" }, { "pods": "9%" }] }), "a step includes the pods of"),
        (json!({ "targetRef": { "kind": "Foo", "name": "web" } }), "supported values: \"CloneSet\""),
        (json!({ "targetRef": { "kind": "Pod", "name": "web" } }), "supported values: \"CloneSet\""),
        (json!({ "targetRef": { "kind": "CloneSet", "name": "web" } }), "a CloneSet is of apps.kruise.io"),
        (
            json!({ "targetRef": { "kind": "StatefulSet", "apiVersion": "v1", "name": "web" } }),
            "apps or apps.kruise.io",
        ),
        (
            json!({ "targetRef": { "kind": "Deployment", "apiVersion": "apps.kruise.io/v1", "name": "web" } }),
            "a Deployment of apps",
        ),
        (json!({ "selector": {} }), "exactly one of targetRef and selector"),
        (json!({ "targetRef": null }), "exactly one of targetRef and selector"),
    ];
    for (fields, expected) in table {
        let mut spec = json!({ "targetRef": { "kind": "Deployment", "name": "web" } });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let refused = create(&client, spec).await.expect_err(&fields.to_string()).to_string();
        assert!(refused.contains(expected), "{fields}: {refused}");
    }
}

#[tokio::test]
async fn every_kind_that_is_resized_can_be_a_target_and_canaries_may_mix_numbers_and_percentages() {
    let (_cluster, client) = with_definitions().await;
    let clone_set = ("apps.kruise.io/v1alpha1", "CloneSet");
    let kinds =
        WorkloadKind::ALL.map(|kind| (kind.api_version(), kind.name())).into_iter().chain([clone_set]);
    let canaries = [
        json!([{ "pods": 1 }, { "pods": "50%" }, { "pods": 7 }, { "pods": "100%" }]),
        json!([{ "pods": "5%" }, { "pods": "10%" }, { "pods": "100%" }]),
        json!([{ "pods": "50%" }, { "pods": 2 }, { "pods": 10 }]),
    ];
    for (api_version, kind) in kinds {
        for canary in &canaries {
            let target = json!({ "apiVersion": api_version, "kind": kind, "name": "web" });
            let created = create(&client, json!({ "targetRef": target, "canary": canary })).await;
            assert!(created.is_ok(), "{api_version} {kind}: {created:?}");
        }
    }
}

#[test]
fn a_value_of_a_newer_schema_is_read_as_the_one_that_does_least() {
    let policy: RolloutPolicy = serde_json::from_value(json!({
        "metadata": {}, "spec": { "selector": {}, "onFailure": "MoveToAnotherNode" },
    }))
    .unwrap();
    assert_eq!(policy.spec.on_failure, OnFailure::Hold);
}
