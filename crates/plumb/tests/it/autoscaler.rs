//! The autoscaler that `plumb up` runs: from what a load uses to the recommendation.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use plumb_testkit::{object, until, until_all};
use plumb_vpa_api::{RecommendedContainerResources, VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
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

/// A VPA that another recommender is chosen for, so that the test recommends.
fn in_place_vpa() -> VerticalPodAutoscaler {
    let mut vpa = vpa();
    vpa.spec.update_policy = Some(object(json!({ "updateMode": "InPlace" })));
    vpa.spec.recommenders = vec![object(json!({ "name": "the-test" }))];
    vpa
}

fn requests(pod: &Pod) -> Option<(String, String)> {
    let resources = pod.spec.as_ref()?.containers.first()?.resources.as_ref()?;
    let requests = resources.requests.as_ref()?;
    Some((requests.get("cpu")?.0.clone(), requests.get("memory")?.0.clone()))
}

fn actual_cpu(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(status.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.clone())
}

/// The states of pods that `plumb status vpa/web` shows, and why.
fn states(cluster: &Cluster) -> Vec<(String, String)> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plumb"));
    let command = command.args(["status", "vpa/web", "-o", "json", "--kubeconfig"]).arg(cluster.kubeconfig());
    let shown: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let pods = shown["pods"].as_array().unwrap().iter();
    pods.map(|pod| (text(&pod["state"]), text(&pod["why"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recommendation_is_applied_in_place_as_the_user_of_the_updater() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
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
    vpas.create(&PostParams::default(), &in_place_vpa()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    until_all(&pods, |pods| pods.len() == 2 && pods.values().all(|pod| actual_cpu(pod).is_some())).await;
    let before: Vec<_> = pods.list(&ListParams::default()).await.unwrap().into_iter().collect();

    let recommend = async |cpu: &str| {
        let recommended = json!([{
            "containerName": "load", "target": { "cpu": cpu, "memory": "600Mi" },
            "lowerBound": { "cpu": cpu, "memory": "600Mi" }, "upperBound": { "cpu": cpu, "memory": "600Mi" },
        }]);
        let patch = json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
        vpas.patch_status("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    recommend("250m").await;
    let wanted = Some(("250m".to_owned(), "600Mi".to_owned()));
    let applied = |pod: &Pod| requests(pod) == wanted && actual_cpu(pod).as_deref() == Some("250m");
    let after = until_all(&pods, |pods| pods.values().all(applied)).await;
    for pod in &before {
        let name = pod.metadata.name.as_deref().unwrap();
        assert_eq!(after[name].metadata.uid, pod.metadata.uid, "the same pod");
    }
    let updated = until(&vpas, "web", |vpa| {
        let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
        let mut own = conditions.filter(|condition| condition.type_.as_str() == "PodsUpdated");
        own.any(|condition| condition.status.as_str() == "True")
    });
    updated.await;
    plumb_testkit::event(&client, "web", "InPlaceResizedPod", 1).await;
    assert_eq!(states(&cluster), vec![("Updated".to_owned(), String::new()); 2]);

    // Both fit the node, one at a time.
    recommend("5").await;
    let waits = until(&vpas, "web", |vpa| {
        let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
        let mut own = conditions.filter(|condition| condition.type_.as_str() == "PodsUpdated");
        own.any(|condition| {
            condition
                .message
                .as_ref()
                .is_some_and(|text| text.contains("updated: 1, waiting: 1 (ResizeDeferred: 1)"))
        })
    });
    waits.await;
    let mut shown = states(&cluster);
    shown.sort();
    assert_eq!(shown[0].0, "Updated");
    assert_eq!(shown[1].0, "Waiting");
    assert!(shown[1].1.starts_with("ResizeDeferred: the node deferred the resize"), "{shown:?}");
    recommend("250m").await;
    until_all(&pods, |pods| pods.values().all(applied)).await;

    // More than any node has: nothing is evicted, and the VPA says so.
    recommend("100").await;
    let infeasible = until(&vpas, "web", |vpa| {
        let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
        let mut own = conditions.filter(|condition| condition.type_.as_str() == "PodsUpdated");
        own.any(|condition| condition.message.as_ref().is_some_and(|text| text.contains("infeasible: 2")))
    });
    infeasible.await;
    assert!(states(&cluster).iter().all(|(state, why)| state == "Infeasible" && !why.is_empty()));
    let last = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(last.items.len(), 2);
    assert!(last.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()));
}
