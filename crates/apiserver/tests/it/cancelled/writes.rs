//! Every kind of write, dropped at every await.

use http::Method;
use serde_json::{Value, json};

use super::super::test_api_server::{TestApiServer, pod};
use super::{Outcome, TestRequest, at_every_await};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A quota that was counted while there was nothing.
async fn quota(apiserver: &TestApiServer) {
    let hard = json!({ "pods": "5", "requests.cpu": "1" });
    apiserver.post(QUOTAS, &json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } })).await.ok();
    let status = json!({ "status": { "hard": hard, "used": { "pods": "0", "requests.cpu": "0" } } });
    apiserver.merge(&format!("{QUOTAS}/q/status"), &status).await.ok();
}

async fn used(apiserver: &TestApiServer) -> Value {
    apiserver.get(&format!("{QUOTAS}/q")).await.ok()["status"]["used"].clone()
}

async fn running_pod(apiserver: &TestApiServer) {
    let mut pod = pod("web", "100m", "64Mi");
    pod["metadata"]["labels"] = json!({ "app": "web" });
    apiserver.post(PODS, &pod).await.ok();
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    apiserver
        .merge(
            &format!("{PODS}/web/status"),
            &json!({ "status": { "phase": "Running", "conditions": ready } }),
        )
        .await
        .ok();
}

async fn budget(apiserver: &TestApiServer) {
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } });
    apiserver.post(BUDGETS, &json!({ "metadata": { "name": "b" }, "spec": spec })).await.ok();
    let status = json!({
        "observedGeneration": 1, "disruptionsAllowed": 3, "currentHealthy": 4, "desiredHealthy": 1, "expectedPods": 4,
    });
    apiserver.merge(&format!("{BUDGETS}/b/status"), &json!({ "status": status })).await.ok();
}

async fn config_maps(apiserver: &TestApiServer) {
    for name in ["a", "b", "c", "d"] {
        apiserver.post(CONFIG_MAPS, &json!({ "metadata": { "name": name } })).await.ok();
    }
}

async fn deployment(apiserver: &TestApiServer) {
    let template = json!({
        "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "plumb/load" }] },
    });
    let spec =
        json!({ "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template });
    apiserver.post(DEPLOYMENTS, &json!({ "metadata": { "name": "web" }, "spec": spec })).await.ok();
}

/// A request that commits is dropped at least once before it is committed, and at least once afterwards.
fn both(outcomes: &[Outcome]) {
    assert_eq!(outcomes.first(), Some(&Outcome::Undone), "a request that was never polled does nothing");
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn a_pod_is_charged_to_the_quota_exactly_if_it_is_stored() {
    let create = TestRequest::new(Method::POST, PODS, pod("web", "100m", "64Mi"));
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        let expected = match outcome {
            Outcome::Undone => json!({ "pods": "0", "requests.cpu": "0" }),
            _ => json!({ "pods": "1", "requests.cpu": "100m" }),
        };
        assert_eq!(used(apiserver).await, expected);
    };
    both(&at_every_await(&create, quota, check).await);
}

#[tokio::test]
async fn a_resize_is_charged_to_the_quota_exactly_if_it_is_stored() {
    let amounts = json!({ "cpu": "200m", "memory": "64Mi" });
    let container = json!({ "name": "main", "resources": { "requests": amounts, "limits": amounts } });
    let mut resize = TestRequest::new(
        Method::PATCH,
        format!("{PODS}/web/resize"),
        json!({ "spec": { "containers": [container] } }),
    );
    resize.media = "application/strategic-merge-patch+json";
    let prepare = async |apiserver: &TestApiServer| {
        quota(apiserver).await;
        apiserver.post(PODS, &pod("web", "100m", "64Mi")).await.ok();
    };
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        let cpu = if outcome == Outcome::Undone { "100m" } else { "200m" };
        assert_eq!(used(apiserver).await["requests.cpu"], cpu);
    };
    both(&at_every_await(&resize, prepare, check).await);
}

#[tokio::test]
async fn an_eviction_uses_a_disruption_exactly_if_the_pod_is_deleted() {
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "web" } });
    let evict = TestRequest::new(Method::POST, format!("{PODS}/web/eviction"), eviction);
    let prepare = async |apiserver: &TestApiServer| {
        running_pod(apiserver).await;
        budget(apiserver).await;
    };
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        let left = if outcome == Outcome::Undone { 3 } else { 2 };
        let budget = apiserver.get(&format!("{BUDGETS}/b")).await.ok();
        assert_eq!(budget["status"]["disruptionsAllowed"], left);
        assert_eq!(apiserver.get(&format!("{PODS}/web")).await.status == 404, outcome != Outcome::Undone);
    };
    both(&at_every_await(&evict, prepare, check).await);
}

#[tokio::test]
async fn every_other_write_is_undone_or_completed() {
    let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n" } });
    let scale = json!({ "spec": { "replicas": 3 } });
    let condition = json!({ "type": "Ready", "status": "False" });
    let status = json!({ "status": { "phase": "Running", "conditions": [condition] } });
    let mut apply = TestRequest::new(
        Method::PATCH,
        format!("{CONFIG_MAPS}/new?fieldManager=m"),
        json!({ "data": { "a": "b" } }),
    );
    apply.body["apiVersion"] = json!("v1");
    apply.body["kind"] = json!("ConfigMap");
    apply.body["metadata"] = json!({ "name": "new" });
    apply.media = "application/apply-patch+yaml";
    let writes = [
        TestRequest::new(Method::POST, format!("{PODS}/web/binding"), binding),
        TestRequest::new(Method::PATCH, format!("{DEPLOYMENTS}/web/scale"), scale),
        TestRequest::new(Method::PATCH, format!("{PODS}/web/status"), status),
        TestRequest::new(Method::PATCH, format!("{CONFIG_MAPS}/a"), json!({ "data": { "a": "b" } })),
        apply,
        TestRequest::new(Method::DELETE, format!("{CONFIG_MAPS}/a"), Value::Null),
        TestRequest::new(Method::DELETE, CONFIG_MAPS, Value::Null),
        TestRequest::new(Method::DELETE, "/api/v1/namespaces/other", Value::Null),
        TestRequest::new(Method::POST, "/api/v1/namespaces", json!({ "metadata": { "name": "new" } })),
    ];
    let prepare = async |apiserver: &TestApiServer| {
        apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await.ok();
        apiserver.post(PODS, &pod("web", "100m", "64Mi")).await.ok();
        config_maps(apiserver).await;
        deployment(apiserver).await;
    };
    for write in &writes {
        both(&at_every_await(write, prepare, async |_: &TestApiServer, _: Outcome| {}).await);
    }
}
