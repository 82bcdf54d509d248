//! The `CustomResourceDefinition`: its YAML, and what an API server makes of objects by it.

use std::path::PathBuf;

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::crds::{InstallOutcome, KeepReason};
use plumb_rollout::api::cloneset::{self, CloneSet, PodUpdatePolicy};
use plumb_rollout::install::{CLONESETS, install_cloneset};
use plumb_testkit::TestCluster;
use serde_json::{Value, json};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cloneset-crd.yaml")
}

fn yaml() -> String {
    format!(
        "# Generated from the types in src/api/cloneset.\n\
         # `cargo test -p plumb-rollout -- --ignored update_the_definition_of_clonesets` writes it anew.\n---\n{}",
        serde_saphyr::to_string(&cloneset::crd()).unwrap()
    )
}

#[test]
fn the_definition_is_that_in_the_golden_file() {
    let stored = std::fs::read_to_string(golden()).unwrap_or_default();
    assert!(
        stored == yaml(),
        "cloneset-crd.yaml is not what the types give: run \
         `cargo test -p plumb-rollout -- --ignored update_the_definition_of_clonesets` and read the difference"
    );
}

#[test]
#[ignore = "writes cloneset-crd.yaml"]
fn update_the_definition_of_clonesets() {
    std::fs::write(golden(), yaml()).unwrap();
}

async fn cluster() -> (TestCluster, Client) {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    assert_eq!(install_cloneset(&client).await.unwrap(), InstallOutcome::Created);
    (cluster, client)
}

async fn create(client: &Client, version: &str, spec: Value) -> Result<Value, kube::Error> {
    let body = json!({
        "apiVersion": format!("apps.kruise.io/{version}"), "kind": "CloneSet",
        "metadata": { "generateName": "web-" }, "spec": spec,
    });
    let path = format!("/apis/apps.kruise.io/{version}/namespaces/default/clonesets");
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request(request.body(serde_json::to_vec(&body).unwrap()).unwrap()).await
}

fn spec(more: Value) -> Value {
    let mut spec = json!({
        "selector": { "matchLabels": { "app": "web" } },
        "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "cpu": 2 } } }] },
        },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// A strategy with every field, as `v1beta1` writes it.
fn nested() -> Value {
    json!({
        "type": "RollingUpdate",
        "rollingUpdate": {
            "podUpdatePolicy": "InPlaceIfPossible", "partition": "30%", "maxUnavailable": 3, "maxSurge": 1,
            "paused": true,
            "priorityStrategy": { "weightPriority": [
                { "weight": 50, "matchSelector": { "matchLabels": { "canary": "true" } } },
            ] },
            "scatterStrategy": [{ "key": "zone", "value": "a" }],
            "inPlaceUpdateStrategy": { "gracePeriodSeconds": 10, "imagePreDownloadParallelism": "2",
                "imagePreDownloadTimeoutSeconds": 60, "imagePreDownloadMinUpdatedReadyPods": 1 },
        },
    })
}

fn full_spec() -> Value {
    spec(json!({
        "replicas": 5, "revisionHistoryLimit": 3, "minReadySeconds": 4, "progressDeadlineSeconds": 600,
        "updateStrategy": nested(),
        "scaleStrategy": {
            "podsToDelete": ["web-1"], "maxUnavailable": "50%", "enablePVCReuse": true, "excludePreparingDelete": true,
        },
        "lifecycle": {
            "preDelete": { "finalizersHandler": ["example.com/drain"], "markPodNotReady": true },
            "inPlaceUpdate": { "labelsHandler": { "example.com/hook": "on" } },
            "preNormal": { "labelsHandler": { "example.com/warm": "yes" } },
        },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"] } }],
    }))
}

#[tokio::test]
async fn an_object_with_every_field_comes_back_as_written_in_both_versions() {
    let (_cluster, client) = cluster().await;
    for version in ["v1beta1", "v1alpha1"] {
        let stored = create(&client, version, full_spec()).await.unwrap();
        assert_eq!(stored["spec"], full_spec(), "{version}");
        let name = stored["metadata"]["name"].as_str().unwrap();
        let read: CloneSet = Api::default_namespaced(client.clone()).get(name).await.unwrap();
        let settings = read.settings();
        assert_eq!(settings.policy, PodUpdatePolicy::InPlaceIfPossible);
        assert_eq!((settings.partition, settings.max_unavailable, settings.max_surge), (2, 3, 0), "paused");
        assert!(cloneset::validate(&read).is_ok());
    }
}

#[tokio::test]
async fn objects_written_in_one_version_are_served_unchanged_in_the_other() {
    let (_cluster, client) = cluster().await;
    let flat = json!({ "type": "InPlaceOnly", "partition": 1, "maxUnavailable": "10%" });
    let stored = create(&client, "v1alpha1", spec(json!({ "updateStrategy": flat }))).await.unwrap();
    let name = stored["metadata"]["name"].as_str().unwrap();
    let read: CloneSet = Api::default_namespaced(client.clone()).get(name).await.unwrap();
    let read = serde_json::to_value(&read).unwrap();
    assert_eq!(read["apiVersion"], "apps.kruise.io/v1beta1");
    assert_eq!(read["spec"]["updateStrategy"], flat);
}

#[tokio::test]
async fn absent_replicas_are_defaulted_and_can_be_scaled() {
    let (_cluster, client) = cluster().await;
    let stored = create(&client, "v1alpha1", spec(json!({}))).await.unwrap();
    assert_eq!(stored["spec"]["replicas"], 1);
    assert_eq!(stored["spec"]["revisionHistoryLimit"], 10);
    assert_eq!(stored["spec"].get("updateStrategy"), None);
    let path = format!(
        "/apis/apps.kruise.io/v1beta1/namespaces/default/clonesets/{}/scale",
        stored["metadata"]["name"].as_str().unwrap()
    );
    let request = http::Request::get(&path).body(Vec::new()).unwrap();
    let scale: Scale = client.request(request).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(1));
}

#[tokio::test]
async fn objects_that_openkruise_refuses_are_refused() {
    let (_cluster, client) = cluster().await;
    let update = |strategy: Value| json!({ "updateStrategy": strategy });
    let rolling = |rolling: Value| json!({ "updateStrategy": { "rollingUpdate": rolling } });
    let pod = |pod: Value| {
        let mut whole = json!({ "containers": [{ "name": "c", "image": "i" }] });
        whole.as_object_mut().unwrap().extend(pod.as_object().unwrap().clone());
        json!({ "template": { "metadata": { "labels": { "app": "web" } }, "spec": whole } })
    };
    let surge = "can not use maxSurge with";
    let both = "maxUnavailable and maxSurge should not both be less than 1";
    let cases = [
        ("negative replicas", json!({ "replicas": -1 }), "spec.replicas"),
        ("no selector", json!({ "selector": {} }), "empty selector is invalid for cloneset"),
        ("no template", json!({ "template": null }), "spec.template: Required value"),
        ("an unknown type", update(json!({ "type": "Never" })), "Unsupported value: \"Never\""),
        ("an unknown policy", rolling(json!({ "podUpdatePolicy": "Never" })), "Unsupported value: \"Never\""),
        ("a negative partition", update(json!({ "partition": -1 })), "partition"),
        ("a partition that is no percentage", rolling(json!({ "partition": "half" })), "partition"),
        ("surge in place only", update(json!({ "type": "InPlaceOnly", "maxSurge": 1 })), surge),
        (
            "surge in place only, nested",
            rolling(json!({ "podUpdatePolicy": "InPlaceOnly", "maxSurge": "5%" })),
            surge,
        ),
        ("no pace", update(json!({ "maxUnavailable": 0 })), both),
        ("no pace, nested", rolling(json!({ "maxUnavailable": "0%", "maxSurge": 0 })), both),
        (
            "weights and orders",
            update(json!({ "priorityStrategy": {
                "orderPriority": [{ "orderedKey": "a" }], "weightPriority": [{ "weight": 1, "matchSelector": {} }],
            } })),
            "only one of orderPriority and weightPriority",
        ),
        (
            "a weight over 100",
            update(
                json!({ "priorityStrategy": { "weightPriority": [{ "weight": 101, "matchSelector": {} }] } }),
            ),
            "weight",
        ),
        ("a scatter term without a value", update(json!({ "scatterStrategy": [{ "key": "a" }] })), "value"),
        (
            "a pod to delete twice",
            json!({ "scaleStrategy": { "podsToDelete": ["a", "a"] } }),
            "Duplicate value",
        ),
        (
            "a deadline before pods are available",
            json!({ "minReadySeconds": 60, "progressDeadlineSeconds": 60 }),
            "must be greater than minReadySeconds",
        ),
        (
            "pods that are not restarted",
            pod(json!({ "restartPolicy": "Never" })),
            "Unsupported value: \"Never\"",
        ),
        ("pods with a deadline", pod(json!({ "activeDeadlineSeconds": 5 })), "is not Supported"),
    ];
    for version in ["v1beta1", "v1alpha1"] {
        for (case, more, expected) in &cases {
            let refused = create(&client, version, spec(more.clone())).await.map(|stored| stored.to_string());
            let error = refused.expect_err(case).to_string();
            assert!(error.contains(expected), "{version}: {case}: {error}");
        }
    }
}

#[tokio::test]
async fn objects_that_openkruise_accepts_are_accepted() {
    let (_cluster, client) = cluster().await;
    let update = |strategy: Value| json!({ "updateStrategy": strategy });
    let cases = [
        ("nothing unavailable but surge", update(json!({ "maxUnavailable": 0, "maxSurge": 1 }))),
        ("in place only without surge", update(json!({ "type": "InPlaceOnly", "maxSurge": "0%" }))),
        ("no deadline", json!({ "minReadySeconds": 60, "progressDeadlineSeconds": 2_147_483_647 })),
        ("on delete", update(json!({ "type": "OnDelete" }))),
        ("more than all unavailable", update(json!({ "maxUnavailable": "200%" }))),
    ];
    for (case, more) in cases {
        assert!(create(&client, "v1alpha1", spec(more)).await.is_ok(), "{case}");
    }
}

#[tokio::test]
async fn the_selector_does_not_change() {
    let (_cluster, client) = cluster().await;
    let stored = create(&client, "v1beta1", spec(json!({}))).await.unwrap();
    let sets: Api<CloneSet> = Api::default_namespaced(client.clone());
    let patch = json!({ "spec": { "selector": { "matchLabels": { "app": "db" } } } });
    let name = stored["metadata"]["name"].as_str().unwrap();
    let refused = sets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable"), "{refused}");
}

#[tokio::test]
async fn one_template_that_is_none_leaves_the_others_readable() {
    let (_cluster, client) = cluster().await;
    create(&client, "v1beta1", spec(json!({}))).await.unwrap();
    let bad = json!({ "template": { "spec": { "containers": 7 } }, "volumeClaimTemplates": [{ "spec": 1 }] });
    create(&client, "v1beta1", spec(bad)).await.unwrap();
    let sets: Api<CloneSet> = Api::default_namespaced(client);
    let all = sets.list(&kube::api::ListParams::default()).await.unwrap();
    let valid = all.items.iter().filter(|set| cloneset::validate(set).is_ok()).count();
    assert_eq!((all.items.len(), valid), (2, 1));
}

#[tokio::test]
async fn the_definition_of_openkruise_is_left_alone() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let foreign = PostParams { field_manager: Some("helm".to_owned()), ..PostParams::default() };
    let definitions = Api::all(client.clone());
    let made = definitions.create(&foreign, &cloneset::crd()).await.unwrap();
    let outcome = install_cloneset(&client).await.unwrap();
    assert_eq!(outcome, InstallOutcome::Kept(KeepReason::Foreign("helm".to_owned())));
    let now = definitions.get(CLONESETS).await.unwrap();
    assert_eq!(now.metadata.resource_version, made.metadata.resource_version);
}
