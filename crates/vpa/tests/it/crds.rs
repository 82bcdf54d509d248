//! The `CustomResourceDefinition`s: their YAML, and what an API server makes of objects by them.

use std::path::PathBuf;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_testkit::TestCluster;
use plumb_vpa_api::{
    BucketWeights, ConditionType, ContainerControlledValues, ContainerScalingMode, UpdateMode,
    VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint, crds,
};
use serde_json::{Value, json};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds.yaml")
}

fn yaml() -> String {
    let documents = crds::all().map(|crd| serde_saphyr::to_string(&crd).unwrap());
    format!(
        "# Generated from the types of plumb-vpa-api. `cargo test -p plumb-vpa -- --ignored update_the_definitions`\n\
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
         run `cargo test -p plumb-vpa -- --ignored update_the_definitions` and read the difference"
    );
}

#[test]
#[ignore = "writes crds.yaml"]
fn update_the_definitions() {
    std::fs::write(golden(), yaml()).unwrap();
}

async fn with_definitions() -> (TestCluster, Client) {
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

const VPAS: &str = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers";
const CHECKPOINTS: &str = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalercheckpoints";

async fn create(client: &Client, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let request = Request::post(path).header("content-type", "application/json");
    client.request(request.body(serde_json::to_vec(body).unwrap()).unwrap()).await
}

fn vpa(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec.as_object_mut()
        .unwrap()
        .entry("targetRef")
        .or_insert(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }));
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name }, "spec": spec,
    })
}

/// A spec with every field.
fn full_spec() -> Value {
    json!({
        "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "updatePolicy": {
            "updateMode": "InPlace", "minReplicas": 1, "evictAfterOOMSeconds": 300,
            "evictionRequirements": [{
                "resources": ["cpu", "memory"], "changeRequirement": "TargetHigherThanRequests",
            }],
        },
        "resourcePolicy": { "containerPolicies": [
            {
                "containerName": "web", "mode": "Auto",
                "minAllowed": { "cpu": "50m", "memory": "64Mi" }, "maxAllowed": { "cpu": 2, "memory": "4Gi" },
                "controlledResources": ["cpu"], "controlledValues": "RequestsOnly",
                "oomBumpUpRatio": "1.5", "oomMinBumpUp": 104_857_600,
                "memoryAggregationIntervalSeconds": 3600, "memoryAggregationIntervalCount": 24,
                "startupBoost": { "cpu": { "type": "Quantity", "quantity": "500m", "durationSeconds": 30 } },
            },
            { "containerName": "*", "mode": "Off" },
        ] },
        "recommenders": [{ "name": "default" }],
        "startupBoost": { "cpu": { "type": "Factor", "factor": 2, "durationSeconds": 10 } },
    })
}

#[tokio::test]
async fn an_object_with_every_field_comes_back_as_written_and_is_read_by_the_types() {
    let (_cluster, client) = with_definitions().await;
    let stored = create(&client, VPAS, &vpa("full", full_spec())).await.unwrap();
    assert_eq!(stored["spec"], full_spec());

    let read: VerticalPodAutoscaler = Api::default_namespaced(client).get("full").await.unwrap();
    assert_eq!(read.spec.update_mode(), UpdateMode::InPlace);
    let web = read.spec.container_policy("web").unwrap();
    assert_eq!(web.max_allowed["cpu"].0, "2");
    assert_eq!(web.oom_min_bump_up.as_ref().unwrap().0, "104857600");
    assert_eq!(web.controlled_values(), ContainerControlledValues::RequestsOnly);
    assert!(web.controls("cpu") && !web.controls("memory"));
    let boost = |container| read.spec.startup_boost_of(container).unwrap().cpu.clone().unwrap();
    assert_eq!(boost("web").quantity.unwrap().0, "500m");
    assert_eq!(boost("other").factor, Some(2));
    let other = read.spec.container_policy("other").unwrap();
    assert_eq!(other.mode, Some(ContainerScalingMode::Off));
    assert!(!read.spec.scales("other") && read.spec.scales("web"));
}

#[tokio::test]
async fn objects_that_violate_the_schema_are_refused() {
    let (_cluster, client) = with_definitions().await;
    let boost = |boost: Value| json!({ "startupBoost": { "cpu": boost } });
    let policy = |policy: Value| json!({ "resourcePolicy": { "containerPolicies": [policy] } });
    let factor = "factor is required when type is Factor and forbidden otherwise";
    let quantity = "quantity is required when type is Quantity and forbidden otherwise";
    let cases = [
        (
            "an unknown mode",
            json!({ "updatePolicy": { "updateMode": "Never" } }),
            "Unsupported value: \"Never\"",
        ),
        (
            "a mode in the wrong case",
            json!({ "updatePolicy": { "updateMode": "off" } }),
            "Unsupported value: \"off\"",
        ),
        (
            "a target without a kind",
            json!({ "targetRef": { "name": "web" } }),
            "spec.targetRef.kind: Required value",
        ),
        (
            "a target without a name",
            json!({ "targetRef": { "kind": "Job" } }),
            "spec.targetRef.name: Required value",
        ),
        (
            "no seconds after an OOM",
            json!({ "updatePolicy": { "evictAfterOOMSeconds": 0 } }),
            "evictAfterOOMSeconds",
        ),
        ("replicas as text", json!({ "updatePolicy": { "minReplicas": "2" } }), "minReplicas"),
        (
            "a requirement without a direction",
            json!({ "updatePolicy": { "evictionRequirements": [{ "resources": ["cpu"] }] } }),
            "changeRequirement: Required value",
        ),
        (
            "a recommender without a name",
            json!({ "recommenders": [{}] }),
            "recommenders[0].name: Required value",
        ),
        ("an unknown container mode", policy(json!({ "mode": "On" })), "Unsupported value: \"On\""),
        ("unknown controlled values", policy(json!({ "controlledValues": "Limits" })), "Unsupported value"),
        ("a quantity that is none", policy(json!({ "minAllowed": { "cpu": "much" } })), "should match"),
        ("a ratio that is none", policy(json!({ "oomBumpUpRatio": "1,2" })), "should match"),
        ("a quantity of another type", policy(json!({ "maxAllowed": { "cpu": true } })), "maxAllowed"),
        ("no interval", policy(json!({ "memoryAggregationIntervalSeconds": 0 })), "IntervalSeconds"),
        ("no intervals", policy(json!({ "memoryAggregationIntervalCount": 0 })), "IntervalCount"),
        (
            "a boost without a type",
            boost(json!({ "factor": 2 })),
            "spec.startupBoost.cpu.type: Required value",
        ),
        (
            "a boost of no type",
            boost(json!({ "type": "Double", "factor": 2 })),
            "Unsupported value: \"Double\"",
        ),
        ("a factor boost without a factor", boost(json!({ "type": "Factor" })), factor),
        (
            "a quantity boost with a factor",
            boost(json!({ "type": "Quantity", "quantity": "1", "factor": 2 })),
            factor,
        ),
        (
            "a factor of zero",
            boost(json!({ "type": "Factor", "factor": 0 })),
            "should be greater than or equal to 1",
        ),
        (
            "a negative factor",
            boost(json!({ "type": "Factor", "factor": -1 })),
            "should be greater than or equal to 1",
        ),
        ("a broken factor", boost(json!({ "type": "Factor", "factor": 1.5 })), "factor"),
        ("a factor that is a quantity", boost(json!({ "type": "Factor", "factor": "500m" })), "factor"),
        ("a factor over int32", boost(json!({ "type": "Factor", "factor": 2_147_483_648_i64 })), "factor"),
        (
            "a negative duration",
            boost(json!({ "type": "Factor", "factor": 2, "durationSeconds": -1 })),
            "should be greater than or equal to 0",
        ),
        ("a quantity boost without a quantity", boost(json!({ "type": "Quantity" })), quantity),
        (
            "a factor boost with a quantity, of a container",
            policy(json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": 2, "quantity": 1 } } })),
            quantity,
        ),
    ];
    for (case, spec, expected) in cases {
        let refused = create(&client, VPAS, &vpa("bad", spec)).await.map(|stored| stored.to_string());
        let error = refused.expect_err(case).to_string();
        assert!(error.contains(expected), "{case}: {error}");
    }
    let without_spec = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "bad" },
    });
    assert!(
        create(&client, VPAS, &without_spec).await.unwrap_err().to_string().contains("spec: Required value")
    );
}

#[tokio::test]
async fn nothing_is_defaulted_and_unknown_fields_are_pruned() {
    let (_cluster, client) = with_definitions().await;
    let spec = json!({
        "targetRef": { "kind": "Deployment", "name": "web" }, "updatePolicy": { "pace": 3 },
        "resourcePolicy": { "containerPolicies": [{}] }, "startupBoost": {}, "novelty": true, "recommenders": null,
    });
    let stored = create(&client, VPAS, &vpa("sparse", spec)).await.unwrap();
    assert_eq!(
        stored["spec"],
        json!({
            "targetRef": { "kind": "Deployment", "name": "web" }, "updatePolicy": {},
            "resourcePolicy": { "containerPolicies": [{}] }, "startupBoost": {},
        })
    );
    let read: VerticalPodAutoscaler = Api::default_namespaced(client).get("sparse").await.unwrap();
    assert_eq!(read.spec.update_mode(), UpdateMode::Recreate);
    assert!(read.spec.scales("any") && read.spec.startup_boost_of("any").unwrap().cpu.is_none());
}

#[tokio::test]
async fn status_of_an_autoscaler_is_a_subresource_and_columns_show_its_first_container() {
    let (_cluster, client) = with_definitions().await;
    let mut body = vpa("web", json!({ "updatePolicy": { "updateMode": "Off", "minReplicas": 3 } }));
    body["status"] = json!({ "observedGeneration": 7 });
    let stored = create(&client, VPAS, &body).await.unwrap();
    assert_eq!(stored.get("status"), None, "a create does not write status");

    let status = json!({ "status": {
        "observedGeneration": 1,
        "recommendation": { "containerRecommendations": [
            { "containerName": "a", "target": { "cpu": "126m", "memory": "250Mi" }, "upperBound": { "cpu": "100G" } },
            { "containerName": "b", "target": { "cpu": "1", "memory": "1Gi" } },
        ] },
        "conditions": [
            { "type": "LowConfidence", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            { "type": "RecommendationProvided", "status": "True", "reason": "R", "message": "M" },
        ],
    } });
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let patched = vpas.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(1), "status does not count as a new generation");
    let read = patched.status.unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), status["status"]);
    assert_eq!(read.condition(&ConditionType::RecommendationProvided).unwrap().reason.as_deref(), Some("R"));
    assert_eq!(read.condition(&ConditionType::NoPodsMatched), None);

    let table = |path: &str| {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        Request::get(path).header("accept", accept).body(Vec::new()).unwrap()
    };
    let columns = |table: &Value| -> Vec<(String, i64)> {
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        columns
            .map(|column| (column["name"].as_str().unwrap().to_owned(), column["priority"].as_i64().unwrap()))
            .collect()
    };
    let shown: Value = client.request(table(VPAS)).await.unwrap();
    let expected = [
        ("Name", 0),
        ("Mode", 0),
        ("CPU", 0),
        ("Mem", 0),
        ("Provided", 0),
        ("Age", 0),
        ("MinReplicas", 1),
        ("OOMSeconds", 1),
    ];
    assert_eq!(columns(&shown), expected.map(|(name, priority)| (name.to_owned(), priority)));
    let cells = shown["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..5], [json!("web"), json!("Off"), json!("126m"), json!("250Mi"), json!("True")]);
    assert_eq!(cells[6..], [json!(3), json!(null)]);

    let groups: Value =
        client.request(Request::get("/apis/autoscaling.k8s.io/v1").body(Vec::new()).unwrap()).await.unwrap();
    let short = |name: &str| {
        let resources = groups["resources"].as_array().unwrap().iter();
        resources
            .clone()
            .find(|resource| resource["name"] == name)
            .map(|resource| resource["shortNames"].clone())
    };
    assert_eq!(short("verticalpodautoscalers"), Some(json!(["vpa"])));
    assert_eq!(short("verticalpodautoscalercheckpoints"), Some(json!(["vpacheckpoint"])));
    assert!(short("verticalpodautoscalers/status").is_some());
    assert_eq!(short("verticalpodautoscalercheckpoints/status"), None);
    let older =
        client.request::<Value>(Request::get("/apis/autoscaling.k8s.io/v1beta2").body(Vec::new()).unwrap());
    assert!(older.await.is_err(), "v1beta2 is not served");
}

#[tokio::test]
async fn a_checkpoint_holds_any_buckets_and_is_written_with_its_status() {
    let (_cluster, client) = with_definitions().await;
    let body = |name: &str, buckets: Value| {
        json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": { "name": name },
            "spec": { "vpaObjectName": "web", "containerName": "app" },
            "status": {
                "version": "v3", "lastUpdateTime": null, "totalSamplesCount": 1440,
                "firstSampleStart": "2026-01-01T00:00:00Z", "lastSampleStart": "2026-01-02T00:00:00Z",
                "cpuHistogram": {
                    "referenceTimestamp": "2026-01-02T00:00:00Z", "bucketWeights": buckets, "totalWeight": 207.698_089_899,
                },
                "memoryHistogram": { "referenceTimestamp": null },
            },
        })
    };
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(client.clone());
    let stored =
        create(&client, CHECKPOINTS, &body("web-app", json!({ "8": 6467, "13": 10000 }))).await.unwrap();
    assert_eq!(stored["status"]["cpuHistogram"]["bucketWeights"], json!({ "8": 6467, "13": 10000 }));
    let read = checkpoints.get("web-app").await.unwrap();
    let status = read.status.clone().unwrap();
    assert_eq!(status.total_samples_count, 1440);
    let BucketWeights::Weights(mut weights) = status.cpu_histogram.bucket_weights else { unreachable!() };
    weights.sort_unstable();
    assert_eq!(weights, [(8, 6467), (13, 10000)]);
    assert!(status.memory_histogram.bucket_weights.is_empty());

    let written = checkpoints.patch("web-app", &PatchParams::default(), &Patch::Merge(&read)).await.unwrap();
    assert_eq!(written.status, read.status, "what was read can be written back");

    // None of these may make the LIST unreadable.
    create(&client, CHECKPOINTS, &body("not-an-index", json!({ "first": 1 }))).await.unwrap();
    create(&client, CHECKPOINTS, &body("not-a-weight", json!({ "1": -1 }))).await.unwrap();
    create(&client, CHECKPOINTS, &body("too-heavy", json!({ "1": 4_294_967_296_u64 }))).await.unwrap();
    let bare = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint", "metadata": { "name": "bare" },
    });
    create(&client, CHECKPOINTS, &bare).await.unwrap();
    let listed = checkpoints.list(&kube::api::ListParams::default()).await.unwrap();
    let malformed = |name: &str| {
        let found = listed.iter().find(|item| item.metadata.name.as_deref() == Some(name)).unwrap();
        match &found.status.as_ref().unwrap().cpu_histogram.bucket_weights {
            BucketWeights::Malformed(reason) => reason.clone(),
            BucketWeights::Weights(weights) => panic!("{name}: {weights:?}"),
        }
    };
    assert_eq!(malformed("not-an-index"), "bucket \"first\" has the weight 1");
    assert_eq!(malformed("not-a-weight"), "bucket \"1\" has the weight -1");
    assert_eq!(malformed("too-heavy"), "bucket \"1\" has the weight 4294967296");
    assert_eq!(listed.items.len(), 5);
}

#[test]
fn values_of_a_newer_schema_are_read_and_written_as_they_are() {
    let body = vpa("future", json!({ "updatePolicy": { "updateMode": "Telepathic" } }));
    let read: VerticalPodAutoscaler = serde_json::from_value(body).unwrap();
    assert_eq!(read.spec.update_mode(), UpdateMode::Other("Telepathic".to_owned()));
    assert_eq!(serde_json::to_value(&read).unwrap()["spec"]["updatePolicy"]["updateMode"], "Telepathic");
}

#[test]
fn the_first_policy_with_the_name_wins_else_the_last_for_all() {
    let policies = json!([
        { "containerName": "*", "mode": "Off" }, { "containerName": "a", "mode": "Auto" },
        { "containerName": "a", "mode": "Off" }, { "containerName": "*", "mode": "Auto" },
    ]);
    let read: VerticalPodAutoscaler =
        serde_json::from_value(vpa("p", json!({ "resourcePolicy": { "containerPolicies": policies } })))
            .unwrap();
    assert_eq!(read.spec.container_policy("a").unwrap().mode, Some(ContainerScalingMode::Auto));
    assert_eq!(read.spec.container_policy("b").unwrap().mode, Some(ContainerScalingMode::Auto));
    let none: VerticalPodAutoscaler = serde_json::from_value(vpa("p", json!({}))).unwrap();
    assert_eq!(none.spec.container_policy("a"), None);
}
