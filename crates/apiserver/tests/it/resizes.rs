//! Resizes by pod update and through `/resize`, in both dialects.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn cpu(amount: &str) -> Value {
    let amounts = json!({ "cpu": amount });
    json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } })
}

#[tokio::test]
async fn a_new_pod_is_allocated_what_it_requests_as_the_kep_says() {
    let apiserver = TestApiServer::open(Rules::kep());
    let made = apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    let container = &made["spec"]["containers"][0];
    assert_eq!(
        container["resizePolicy"],
        json!([
            { "resourceName": "cpu", "restartPolicy": "NotRequired" },
            { "resourceName": "memory", "restartPolicy": "NotRequired" },
        ])
    );
    let status = &made["status"];
    assert_eq!(
        status["containerStatuses"][0]["allocatedResources"],
        json!({ "cpu": "500m", "memory": "500Mi" })
    );
    assert_eq!((&status["phase"], &status["qosClass"]), (&json!("Pending"), &json!("Guaranteed")));
    assert_eq!(made["metadata"]["generation"], 1);
}

#[tokio::test]
async fn pod_update_and_resize_both_propose_a_resize_in_the_kep_dialect() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    let resized = apiserver.strategic(&format!("{PODS}/web"), &cpu("650m")).await.ok();
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "650m");
    assert_eq!(
        (&resized["status"]["resize"], &resized["metadata"]["generation"]),
        (&json!("Proposed"), &json!(2))
    );
    let resized = apiserver.strategic(&format!("{PODS}/web/resize"), &cpu("700m")).await.ok();
    assert_eq!(resized["spec"]["containers"][0]["resources"]["limits"]["cpu"], "700m");
    assert_eq!(resized["metadata"]["generation"], 3);
    assert_eq!(resized["status"]["containerStatuses"][0]["allocatedResources"]["cpu"], "500m");
}

#[tokio::test]
async fn a_pod_update_cannot_resize_in_the_dialect_of_kubernetes() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let made = apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    assert!(made["status"].get("containerStatuses").is_none());
    assert!(made["spec"]["containers"][0].get("resizePolicy").is_none());
    let (code, reason, message) = apiserver.strategic(&format!("{PODS}/web"), &cpu("650m")).await.rejected();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.starts_with(
            "Pod \"web\" is invalid: spec: Forbidden: pod updates may not change fields other than"
        ),
        "{message}"
    );
    let resized = apiserver.strategic(&format!("{PODS}/web/resize"), &cpu("650m")).await.ok();
    assert!(resized["status"].get("resize").is_none());
    assert_eq!(resized["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_resize_changes_nothing_but_resources() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    let mut patch = cpu("650m");
    patch["metadata"] = json!({ "labels": { "sneaky": "yes" } });
    patch["spec"]["containers"][0]["image"] = json!("other");
    let resized = apiserver.strategic(&format!("{PODS}/web/resize"), &patch).await.ok();
    assert!(resized["metadata"].get("labels").is_none());
    assert_eq!(resized["spec"]["containers"][0]["image"], "plumb/load");
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "650m");
}

#[tokio::test]
async fn a_resize_that_changes_the_qos_class_is_rejected() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    let patch =
        json!({ "spec": { "containers": [{ "name": "main", "resources": { "limits": { "cpu": "1" } } }] } });
    let (code, _, message) = apiserver.strategic(&format!("{PODS}/web/resize"), &patch).await.rejected();
    assert_eq!(code, 422);
    assert_eq!(
        message,
        "Pod \"web\" is invalid: spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"
    );
}

#[tokio::test]
async fn a_resize_beyond_the_allocatable_resources_is_rejected_with_its_cause() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let node = json!({ "metadata": { "name": "n1" } });
    apiserver.post("/api/v1/nodes", &node).await.ok();
    let status = json!({ "status": { "allocatable": { "cpu": "4", "memory": "8Gi" } } });
    apiserver.merge("/api/v1/nodes/n1/status", &status).await.ok();
    apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n1" } });
    apiserver.post(&format!("{PODS}/web/binding"), &binding).await.ok();
    let answer = apiserver.strategic(&format!("{PODS}/web/resize"), &cpu("5")).await;
    assert_eq!(answer.body["details"]["causes"], json!([{ "reason": "NodeCapacity" }]));
    assert_eq!(
        answer.rejected().2,
        "pods \"web\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000"
    );
    assert_eq!(apiserver.strategic(&format!("{PODS}/web/resize"), &cpu("3")).await.status, 200);
}

#[tokio::test]
async fn a_resize_that_needs_a_feature_which_the_node_does_not_declare_is_rejected() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await.ok();
    let status = json!({ "status": { "allocatable": { "cpu": "4", "memory": "8Gi" } } });
    apiserver.merge("/api/v1/nodes/n1/status", &status).await.ok();
    let pod_level = |cpu: &str| {
        let amounts = json!({ "cpu": cpu, "memory": "1Gi" });
        json!({ "requests": amounts, "limits": amounts })
    };
    let mut web = pod("web", "500m", "500Mi");
    web["spec"]["resources"] = pod_level("1");
    apiserver.post(PODS, &web).await.ok();
    let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n1" } });
    apiserver.post(&format!("{PODS}/web/binding"), &binding).await.ok();
    let resize = json!({ "spec": { "resources": pod_level("2") } });
    let path = format!("{PODS}/web/resize");
    let (code, _, message) = apiserver.strategic(&path, &resize).await.rejected();
    assert_eq!(code, 403);
    assert_eq!(
        message,
        "pods \"web\" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not \
         available on node \"n1\""
    );
    assert_eq!(
        apiserver.strategic(&path, &cpu("600m")).await.status,
        200,
        "resizing a container needs no feature"
    );
    let declared = json!({ "status": { "declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"] } });
    apiserver.merge("/api/v1/nodes/n1/status", &declared).await.ok();
    assert_eq!(apiserver.strategic(&path, &resize).await.status, 200);
}

#[tokio::test]
async fn an_old_client_does_not_lose_what_it_does_not_know() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut made = apiserver.post(PODS, &pod("web", "500m", "500Mi")).await.ok();
    made["spec"]["containers"][0].as_object_mut().unwrap().remove("resizePolicy");
    made["metadata"]["labels"] = json!({ "seen": "yes" });
    let updated = apiserver.put(&format!("{PODS}/web"), &made).await.ok();
    assert_eq!(updated["spec"]["containers"][0]["resizePolicy"].as_array().unwrap().len(), 2);
    assert_eq!(updated["metadata"]["labels"], json!({ "seen": "yes" }));
    assert_eq!(updated["metadata"]["generation"], 1);
}

#[tokio::test]
async fn an_alpha_manifest_is_accepted_in_the_kep_dialect() {
    let mut alpha = pod("web", "500m", "500Mi");
    alpha["spec"]["containers"][0]["resizePolicy"] = json!([
        { "resourceName": "cpu", "policy": "RestartNotRequired" }, { "resourceName": "memory", "policy": "Restart" },
    ]);
    let made =
        TestApiServer::open(Rules::kep()).post(&format!("{PODS}?fieldValidation=Strict"), &alpha).await.ok();
    assert_eq!(
        made["spec"]["containers"][0]["resizePolicy"],
        json!([
            { "resourceName": "cpu", "restartPolicy": "NotRequired" },
            { "resourceName": "memory", "restartPolicy": "RestartContainer" },
        ])
    );
    let refused =
        TestApiServer::open(Rules::v1_36()).post(&format!("{PODS}?fieldValidation=Strict"), &alpha).await;
    assert_eq!(refused.status, 400);
}
