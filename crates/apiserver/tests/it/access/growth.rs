//! Which resizes a node may request for its own pods.

use http::Method;
use serde_json::{Value, json};

use super::{As, Cluster, admin, node, pod_on};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ANNOTATION: &str = "plumb.dev/memory-pressure-growth";
const THROTTLING: &str = "plumb.dev/throttling-growth";

/// Pods of 64 MiB: `web` on the first node may grow to 128 MiB, and so may `other` on the second; `plain` has not opted in.
async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    for name in ["n1", "n2"] {
        let body = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
        cluster.post(&node(name), "/api/v1/nodes", &body).await.ok();
    }
    for (name, on, annotation) in [
        ("web", "n1", Some("main=128Mi")),
        ("plain", "n1", None),
        ("odd", "n1", Some("much")),
        ("other", "n2", Some("128Mi")),
    ] {
        let mut pod = pod_on(on, name);
        if let Some(annotation) = annotation {
            pod["metadata"]["annotations"] = json!({ ANNOTATION: annotation });
        }
        cluster.make(PODS, &pod).await;
    }
    cluster
}

/// Requests other resources of a pod's container; returns the code, and the message of a refusal.
async fn resize(cluster: &Cluster, who: &As, pod: &str, change: impl FnOnce(&mut Value)) -> (u16, String) {
    let path = format!("{PODS}/{pod}");
    let mut containers = cluster.get(&admin(), &path).await.ok()["spec"]["containers"].clone();
    change(&mut containers[0]);
    let body = json!({ "spec": { "containers": containers } });
    let answer = cluster.request(who, Method::PATCH, &format!("{path}/resize"), &body).await;
    (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

fn memory(request: &str, limit: &str) -> impl FnOnce(&mut Value) {
    let (request, limit) = (json!(request), json!(limit));
    move |container| {
        container["resources"]["requests"]["memory"] = request;
        container["resources"]["limits"]["memory"] = limit;
    }
}

#[tokio::test]
async fn a_node_raises_the_memory_of_its_own_pods_that_have_opted_in_within_their_bounds_and_nothing_else() {
    let cluster = cluster().await;
    let one = node("n1");
    let refused = |result: (u16, String), expected: &str| {
        assert_eq!(result.0, 403, "{expected}: {}", result.1);
        assert!(result.1.contains(expected), "{expected}: {}", result.1);
    };
    let unrelated = "no relationship found between node 'n1' and this object";
    for pod in ["plain", "other"] {
        refused(resize(&cluster, &one, pod, memory("65Mi", "65Mi")).await, unrelated);
    }
    refused(resize(&cluster, &one, "odd", memory("65Mi", "65Mi")).await, "invalid amount of memory \"much\"");
    let above = "the memory limit 129Mi of container \"main\" is above its maximum 128Mi";
    refused(resize(&cluster, &one, "web", memory("129Mi", "129Mi")).await, above);
    let upward = "the memory limit of container \"main\" may only be raised";
    refused(resize(&cluster, &one, "web", memory("63Mi", "63Mi")).await, upward);
    let only = "container \"main\" has no maximum up to which its cpu may grow";
    let cpu = |container: &mut Value| {
        memory("65Mi", "65Mi")(container);
        container["resources"]["requests"]["cpu"] = json!("200m");
        container["resources"]["limits"]["cpu"] = json!("200m");
    };
    refused(resize(&cluster, &one, "web", cpu).await, only);
    assert_eq!(resize(&cluster, &one, "web", memory("128Mi", "128Mi")).await, (200, String::new()));
    let web = cluster.get(&admin(), &format!("{PODS}/web")).await.ok();
    let resources = json!({ "cpu": "100m", "memory": "128Mi" });
    assert_eq!(web["spec"]["containers"][0]["resources"]["limits"], resources);
    assert_eq!(web["spec"]["containers"][0]["resources"]["requests"], resources);
    // The user is bound by none of this.
    assert_eq!(resize(&cluster, &admin(), "web", memory("256Mi", "256Mi")).await.0, 200);
}

fn cpu(request: &str, limit: &str) -> impl FnOnce(&mut Value) {
    let (request, limit) = (json!(request), json!(limit));
    move |container| {
        container["resources"]["requests"]["cpu"] = request;
        container["resources"]["limits"]["cpu"] = limit;
    }
}

#[tokio::test]
async fn a_node_raises_the_cpu_of_a_pod_that_has_opted_in_to_growth_when_throttled_and_not_its_memory() {
    let cluster = cluster().await;
    let mut pod = pod_on("n1", "throttled");
    pod["metadata"]["annotations"] = json!({ THROTTLING: "main=2" });
    cluster.make(PODS, &pod).await;
    for (change, code, expected) in [
        (("2100m", "2100m"), 403, "the cpu limit 2100m of container \"main\" is above its maximum 2"),
        (("50m", "50m"), 403, "the cpu limit of container \"main\" may only be raised"),
        (("2", "2"), 200, ""),
    ] {
        let found = resize(&cluster, &node("n1"), "throttled", cpu(change.0, change.1)).await;
        assert_eq!(found.0, code, "{}", found.1);
        assert!(found.1.contains(expected), "{}", found.1);
    }
    let (code, message) = resize(&cluster, &node("n1"), "throttled", memory("65Mi", "65Mi")).await;
    assert_eq!(code, 403);
    let expected = "container \"main\" has no maximum up to which its memory may grow";
    assert!(message.contains(expected), "{message}");
    // Another node.
    assert_eq!(resize(&cluster, &node("n2"), "throttled", cpu("2", "3")).await.0, 403);
}

#[tokio::test]
async fn a_pod_that_runs_already_can_be_opted_in_and_out() {
    let cluster = cluster().await;
    for (annotation, amount, code) in [(json!("128Mi"), "65Mi", 200), (Value::Null, "66Mi", 403)] {
        let body = json!({ "metadata": { "annotations": { ANNOTATION: annotation } } });
        cluster.patch(&admin(), &format!("{PODS}/plain"), &body).await.ok();
        let (found, message) = resize(&cluster, &node("n1"), "plain", memory(amount, amount)).await;
        assert_eq!(found, code, "{message}");
    }
}

#[tokio::test]
async fn a_node_cannot_opt_its_pods_in_nor_widen_their_bounds() {
    let cluster = cluster().await;
    for (pod, name, value) in [
        ("plain", ANNOTATION, json!("1Gi")),
        ("web", ANNOTATION, json!("1Gi")),
        ("web", ANNOTATION, Value::Null),
        ("web", THROTTLING, json!("2")),
        ("web", "plumb.dev/growth-bounds-from-vpa", json!("memory")),
    ] {
        let body = json!({ "metadata": { "annotations": { name: value } } });
        let path = format!("{PODS}/{pod}/status");
        let (code, message) = cluster.request(&node("n1"), Method::PATCH, &path, &body).await.rejected();
        assert_eq!(code, 403);
        let expected = format!("node \"n1\" cannot update the annotation {name}");
        assert!(message.contains(&expected), "{message}");
    }
    let body = json!({ "metadata": { "annotations": { "else": "1" } } });
    cluster.request(&node("n1"), Method::PATCH, &format!("{PODS}/web/status"), &body).await.ok();
}

#[tokio::test]
async fn quotas_count_what_a_node_requests() {
    let cluster = cluster().await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "limits.memory": "300Mi" } } });
    cluster.make("/api/v1/namespaces/default/resourcequotas", &quota).await;
    let hard =
        json!({ "status": { "hard": { "limits.memory": "300Mi" }, "used": { "limits.memory": "256Mi" } } });
    let path = "/api/v1/namespaces/default/resourcequotas/q/status";
    cluster.request(&admin(), Method::PATCH, path, &hard).await.ok();
    let (code, message) = resize(&cluster, &node("n1"), "web", memory("128Mi", "128Mi")).await;
    assert_eq!(code, 403, "{message}");
    assert!(message.contains("exceeded quota: q"), "{message}");
    assert_eq!(resize(&cluster, &node("n1"), "web", memory("96Mi", "96Mi")).await.0, 200);
}
