//! The autoscaler that `plumb up` runs: from what a load uses to the recommendation.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use plumb_autoscaler::api::{
    RecommendedContainerResources, VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint,
};
use plumb_harness::{object, until};
use serde_json::json;

use super::cluster::Cluster;

/// All components, with virtual containers and everything measured every second.
const FLAGS: [&str; 10] = [
    "--components",
    "all",
    "--runtime",
    "virtual",
    "--node-cpu",
    "8",
    "--recommender-interval",
    "1s",
    "--metric-resolution",
    "1s",
];

fn deployment() -> Deployment {
    object(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{
                    "name": "load", "image": "plumb/load", "args": ["--cpu", "200m", "--memory", "400Mi"],
                    "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } },
                }] },
            },
        },
    }))
}

fn vpa() -> VerticalPodAutoscaler {
    object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "Off" },
        },
    }))
}

fn recommended(vpa: &VerticalPodAutoscaler) -> Option<&RecommendedContainerResources> {
    vpa.status.as_ref()?.recommendation.as_ref()?.container_recommendations.first()
}

/// Whether the target is what a load of 200m and 400Mi gives: the ends of the histograms' buckets, and 15 percent.
fn is_as_computed(vpa: &VerticalPodAutoscaler) -> bool {
    recommended(vpa).is_some_and(|of| {
        of.container_name == "load" && of.target["cpu"].0 == "247m" && of.target["memory"].0 == "511772986"
    })
}

fn upper_cpu(vpa: &VerticalPodAutoscaler) -> i64 {
    let text = &recommended(vpa).unwrap().upper_bound["cpu"].0;
    text.parse::<plumb_resize::Quantity>().unwrap().saturating_milli()
}

fn samples(checkpoint: &VerticalPodAutoscalerCheckpoint) -> i64 {
    checkpoint.status.as_ref().map_or(0, |status| status.total_samples_count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_gets_the_recommendation_that_the_arithmetic_gives_and_keeps_it_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &FLAGS);
    let client = cluster.client().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let is_established = |crd: &CustomResourceDefinition| {
        let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|of| of.type_ == "Established" && of.status == "True"))
    };
    until(&definitions, "verticalpodautoscalers.autoscaling.k8s.io", is_established).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment()).await.unwrap();
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &vpa()).await.unwrap();
    until(&vpas, "web", is_as_computed).await;
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(client.clone());
    let checkpoint = until(&checkpoints, "web-load", |checkpoint| samples(checkpoint) >= 6).await;
    let before = vpas.get("web").await.unwrap();

    cluster.kill();
    let cluster = Cluster::start_with(&data, &FLAGS);
    let client = cluster.client().await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(client);
    // It goes on counting where it was: without its history it would begin with 1.
    let count = samples(&checkpoint);
    until(&checkpoints, "web-load", |checkpoint| samples(checkpoint) > count).await;
    let after = until(&vpas, "web", |vpa| {
        is_as_computed(vpa) && vpa.metadata.resource_version != before.metadata.resource_version
    })
    .await;
    assert!(upper_cpu(&after) <= upper_cpu(&before), "{} > {}", upper_cpu(&after), upper_cpu(&before));
}
