//! Binding pods to nodes.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn binding(metadata: Value) -> Value {
    let mut binding = json!({ "metadata": { "name": "a" }, "target": { "kind": "Node", "name": "n1" } });
    binding["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    binding
}

#[tokio::test]
async fn a_binding_checks_the_uid_and_resource_version_of_the_pod() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let made = apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let path = format!("{PODS}/a/binding");
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    for (metadata, what, found) in [
        (json!({ "uid": "other" }), "UID", uid),
        (json!({ "resourceVersion": "1" }), "ResourceVersion", version),
    ] {
        let wanted = metadata.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        let (code, reason, message) = apiserver.post(&path, &binding(metadata)).await.rejected();
        assert_eq!((code, reason.as_str()), (409, "Conflict"));
        let why = format!(
            "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {}",
            found.as_str().unwrap()
        );
        assert!(message.ends_with(&why), "{message}");
    }
    let mut other = binding(json!({}));
    other["metadata"]["name"] = json!("b");
    assert_eq!(apiserver.post(&path, &other).await.rejected().0, 400);
    let mut elsewhere = binding(json!({}));
    elsewhere["target"]["kind"] = json!("Rack");
    let (code, _, message) = apiserver.post(&path, &elsewhere).await.rejected();
    let unsupported = "target.kind: Unsupported value: \"Rack\": supported values: \"Node\", \"<empty>\"";
    assert_eq!((code, message.as_str()), (500, unsupported));
    let seen = json!({ "uid": uid, "resourceVersion": version });
    assert_eq!(apiserver.post(&path, &binding(seen)).await.status, 201);
}

#[tokio::test]
async fn a_pod_with_scheduling_gates_is_not_bound() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut gated = pod("a", "1", "1Gi");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    apiserver.post(PODS, &gated).await.ok();
    let (code, _, message) =
        apiserver.post(&format!("{PODS}/a/binding"), &binding(json!({}))).await.rejected();
    assert_eq!(code, 409);
    assert!(message.ends_with("pod a has non-empty .spec.schedulingGates"), "{message}");
    assert!(apiserver.get(&format!("{PODS}/a")).await.ok()["spec"].get("nodeName").is_none());
}

#[tokio::test]
async fn a_bound_pod_has_the_annotations_and_labels_of_its_binding_and_no_nomination() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut own = pod("a", "1", "1Gi");
    own["metadata"]["annotations"] = json!({ "kept": "1", "replaced": "1" });
    apiserver.post(PODS, &own).await.ok();
    let status = json!({ "status": { "nominatedNodeName": "n2", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2025-01-01T00:00:00Z" },
        { "type": "Ready", "status": "False" },
    ] } });
    apiserver.merge(&format!("{PODS}/a/status"), &status).await.ok();
    let metadata = json!({ "annotations": { "replaced": "2", "new": "2" }, "labels": { "zone": "z1" } });
    assert_eq!(apiserver.post(&format!("{PODS}/a/binding"), &binding(metadata)).await.status, 201);
    let bound = apiserver.get(&format!("{PODS}/a")).await.ok();
    assert_eq!(bound["metadata"]["annotations"], json!({ "kept": "1", "new": "2", "replaced": "2" }));
    assert_eq!(bound["metadata"]["labels"], json!({ "zone": "z1" }));
    assert!(bound["status"].get("nominatedNodeName").is_none());
    let conditions = bound["status"]["conditions"].as_array().unwrap();
    assert_eq!((&conditions[0]["type"], &conditions[0]["status"]), (&json!("PodScheduled"), &json!("True")));
    assert!(conditions[0].get("reason").is_none());
    assert_eq!(conditions.len(), 2);
}
