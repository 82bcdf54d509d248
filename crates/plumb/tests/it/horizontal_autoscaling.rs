//! `HorizontalPodAutoscalers` of a whole cluster: replicas follow what the node measures.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use plumb_client::Api as Typed;
use plumb_testkit::{object, until, until_all};
use serde_json::json;

use super::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_the_load_of_virtual_containers() {
    let folder = tempfile::tempdir().unwrap();
    let period = ["--metric-resolution", "1s", "--horizontal-pod-autoscaler-sync-period", "1s"];
    let flags = [&["--components", "all", "--runtime", "virtual"][..], &period].concat();
    let cluster = Cluster::start_with(&folder.path().join("data"), &flags);
    let client = cluster.client().await;
    let container = json!({
        "name": "load", "image": "plumb/load", "args": ["--cpu", "100m"],
        "resources": { "requests": { "cpu": "100m" } },
    });
    let labels = json!({ "app": "web" });
    let deployment: Deployment = object(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let target = json!({ "type": "Utilization", "averageUtilization": 50 });
    let autoscaler: HorizontalPodAutoscaler = object(json!({
        "metadata": { "name": "web" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 2,
            "maxReplicas": 4,
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
        },
    }));
    let autoscalers: Typed<HorizontalPodAutoscaler> = Typed::default_namespaced(client.clone());
    autoscalers.create(&PostParams::default(), &autoscaler).await.unwrap();
    // All of what they request is used, of which half is wanted.
    let is_full = |autoscaler: &HorizontalPodAutoscaler| {
        let status = autoscaler.status.clone().unwrap_or_default();
        let conditions = status.conditions.iter().flatten();
        let has = |reason: &str| conditions.clone().any(|one| one.reason.as_deref() == Some(reason));
        status.desired_replicas == 4 && status.last_scale_time.is_some() && has("ValidMetricFound")
    };
    until(&autoscalers, "web", is_full).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    until_all(&pods, |pods| pods.len() == 4).await;
    cluster.stop();
}
