//! `metrics.k8s.io`: the usage of nodes and pods.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use plumb_apiserver::authn::{InProcess, User};
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_resize::Quantity;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{NOW, TestApiServer, admin, pod};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

/// Has measured node `n1` and every pod but `young`.
struct Fixed;

fn amounts(cpu: &str, memory: &str) -> Amounts {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    Amounts { cpu: quantity(cpu), memory: quantity(memory) }
}

fn span() -> Span {
    Span { until: NOW.parse().unwrap(), length: Duration::from_millis(15_040) }
}

impl UsageSource for Fixed {
    fn node(&self, name: &str) -> Option<NodeUsage> {
        (name == "n1").then(|| NodeUsage { span: span(), used: amounts("1250m", "3Gi") })
    }

    fn pod(&self, _: &str, _: &str, name: &str) -> Option<PodUsage> {
        let containers = vec![
            ("main".to_owned(), amounts("123456789n", "64Mi")),
            ("side".to_owned(), amounts("1m", "1Mi")),
        ];
        (name != "young").then(|| PodUsage { span: span(), containers })
    }
}

/// Two nodes and three pods, of which one of each was not measured yet.
async fn measured() -> TestApiServer {
    let apiserver = TestApiServer::measuring(Rules::v1_36(), Arc::new(Fixed));
    for node in ["n1", "n2"] {
        let node = json!({ "metadata": { "name": node, "labels": { "disk": "fast" } } });
        apiserver.post("/api/v1/nodes", &node).await.ok();
    }
    apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await.ok();
    for (namespace, name, app) in
        [("default", "web", "web"), ("default", "young", "web"), ("other", "db", "db")]
    {
        let mut pod = pod(name, "1m", "1Mi");
        pod["metadata"]["labels"] = json!({ "app": app });
        pod["spec"]["nodeName"] = json!("n1");
        apiserver.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await.ok();
    }
    apiserver
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn metrics_have_the_labels_of_their_object() {
    let apiserver = measured().await;
    assert_eq!(
        apiserver.get(&format!("{METRICS}/namespaces/default/pods/web")).await.ok(),
        json!({
            "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {
                "name": "web", "namespace": "default", "creationTimestamp": NOW, "labels": { "app": "web" },
            },
            "timestamp": NOW, "window": "15.04s",
            "containers": [
                { "name": "main", "usage": { "cpu": "123456789n", "memory": "64Mi" } },
                { "name": "side", "usage": { "cpu": "1m", "memory": "1Mi" } },
            ],
        })
    );
    let node = apiserver.get(&format!("{METRICS}/nodes/n1")).await.ok();
    assert_eq!(node["kind"], "NodeMetrics");
    assert_eq!(node["usage"], json!({ "cpu": "1250m", "memory": "3Gi" }));
    assert_eq!(node["metadata"].get("namespace"), None);
}

#[tokio::test]
async fn lists_have_the_metrics_of_the_selected_objects() {
    let apiserver = measured().await;
    let nodes = apiserver.get(&format!("{METRICS}/nodes")).await.ok();
    assert_eq!((nodes["kind"].as_str(), names(&nodes)), (Some("NodeMetricsList"), vec!["n1"]));
    assert_eq!(nodes["items"][0].get("kind"), None);
    for (query, expected) in [
        ("pods", vec!["web", "db"]),
        ("namespaces/default/pods", vec!["web"]),
        ("pods?labelSelector=app%3Ddb", vec!["db"]),
        ("pods?labelSelector=app%20in%20(nope)", vec![]),
        ("pods?fieldSelector=metadata.namespace%3Dother", vec!["db"]),
        ("nodes?labelSelector=disk%21%3Dfast", vec![]),
    ] {
        let list = apiserver.get(&format!("{METRICS}/{query}")).await.ok();
        assert_eq!(names(&list), expected, "{query}");
    }
    let table = apiserver.table(&format!("{METRICS}/namespaces/default/pods")).await.ok();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns: Vec<&str> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"][0]["cells"], json!(["web", "124456789n", "65Mi", "15.04s"]));
}

#[tokio::test]
async fn metrics_of_a_deleted_or_unmeasured_object_are_not_found() {
    let apiserver = measured().await;
    let missing = |path: &str, text: &str| (format!("{METRICS}/{path}"), text.to_owned());
    for (path, message) in [
        missing("namespaces/default/pods/young", "podmetrics.metrics.k8s.io \"default/young\" not found"),
        missing("namespaces/default/pods/missing", "pods \"missing\" not found"),
        missing("nodes/n2", "nodemetrics.metrics.k8s.io \"n2\" not found"),
        missing("nodes/n3", "nodes \"n3\" not found"),
    ] {
        assert_eq!(apiserver.get(&path).await.rejected(), (404, "NotFound".into(), message));
    }
    for (method, path) in [(Method::DELETE, "nodes/n1"), (Method::POST, "nodes"), (Method::PUT, "nodes/n1")] {
        let answer = apiserver.request(method, &format!("{METRICS}/{path}"), "application/json", "{}").await;
        assert_eq!(answer.rejected().0, 405, "{path}");
    }
    assert_eq!(apiserver.get(&format!("{METRICS}/nodes?watch=1")).await.rejected().0, 405);
}

#[tokio::test]
async fn the_metrics_group_is_served_without_a_metrics_source() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for path in ["nodes", "nodes/n1", "pods", "namespaces/default/pods/web"] {
        let answer = apiserver.get(&format!("{METRICS}/{path}")).await;
        assert_eq!(
            answer.rejected(),
            (503, "ServiceUnavailable".into(), "nothing here measures what nodes and pods use".into())
        );
    }
    let resources = apiserver.get(METRICS).await.ok();
    let found: Vec<(&str, &str, &Value)> = (resources["resources"].as_array().unwrap().iter())
        .map(|row| (row["name"].as_str().unwrap(), row["kind"].as_str().unwrap(), &row["verbs"]))
        .collect();
    let verbs = json!(["get", "list"]);
    assert_eq!(found, [("nodes", "NodeMetrics", &verbs), ("pods", "PodMetrics", &verbs)]);

    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get("/apis").header("accept", accept).extension(admin());
    let response = apiserver.server.handle(request.body(Full::<bytes::Bytes>::default()).unwrap()).await;
    let groups: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let group =
        groups["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "metrics.k8s.io");
    assert_eq!(group.unwrap()["versions"][0]["version"], "v1beta1");
    let document = apiserver.get("/openapi/v3/apis/metrics.k8s.io/v1beta1").await.ok();
    assert!(document["paths"].get("/apis/metrics.k8s.io/v1beta1/nodes").is_some());
}

#[tokio::test]
async fn the_role_of_upstream_permits_resource_metrics() {
    let apiserver = measured().await;
    let jane = || InProcess(Arc::new(User::new("jane", "", ["people"])));
    let path = format!("{METRICS}/nodes");
    let refused = apiserver.request_as(jane(), Method::GET, &path, "", "").await.rejected();
    assert_eq!(
        refused.2,
        "nodes.metrics.k8s.io is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \
         \"metrics.k8s.io\" at the cluster scope"
    );
    let binding = json!({
        "metadata": { "name": "jane" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:aggregated-metrics-reader",
        },
        "subjects": [{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane" }],
    });
    apiserver.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.ok();
    apiserver.request_as(jane(), Method::GET, &path, "", "").await.ok();
    assert_eq!(apiserver.request_as(jane(), Method::GET, "/api/v1/nodes", "", "").await.status, 403);
}

/// Panics on every request.
struct Broken;

#[expect(clippy::panic, reason = "it is what is tested")]
impl UsageSource for Broken {
    fn node(&self, _: &str) -> Option<NodeUsage> {
        panic!("no figures")
    }

    fn pod(&self, _: &str, _: &str, _: &str) -> Option<PodUsage> {
        panic!("no figures")
    }
}

#[tokio::test]
async fn a_request_that_panics_gets_an_error_and_the_server_continues() {
    let apiserver = TestApiServer::measuring(Rules::v1_36(), Arc::new(Broken));
    apiserver.post("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await.ok();
    let (code, reason, message) = apiserver.get(&format!("{METRICS}/nodes/n1")).await.rejected();
    assert_eq!((code, reason.as_str()), (500, "InternalError"));
    assert!(
        message.contains("This request caused apiserver to panic. Look in the logs for details."),
        "{message}"
    );
    apiserver.get("/api/v1/nodes/n1").await.ok();
}
