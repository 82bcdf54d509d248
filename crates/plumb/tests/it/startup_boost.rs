//! The CPU start-up boost in a cluster that `plumb up` runs.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_autoscaler::api::VerticalPodAutoscaler;
use plumb_harness::{object, until, until_all};
use serde_json::{Value, json};

use super::cluster::Cluster;

const FLAGS: [&str; 8] =
    ["--components", "all", "--runtime", "virtual", "--node-cpu", "8", "--max-allowed-cpu-boost", "3"];

async fn create(client: &Client, name: &str, spec: &Value, template: &Value) {
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let mut spec = spec.clone();
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name }, "spec": spec,
    }));
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
    let labels = json!({ "app": name });
    let deployment: Deployment = object(json!({
        "metadata": { "name": name },
        "spec": { "replicas": 2, "selector": { "matchLabels": labels },
                  "template": { "metadata": { "labels": labels }, "spec": { "containers": template } } },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a String> {
    pod.metadata.annotations.as_ref()?.get(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_deployment_start_with_more_cpu_and_get_back_once_they_are_ready() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&configurations, "vpa-webhook-config", |_: &MutatingWebhookConfiguration| true).await;
    let boost = json!({ "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 20, "durationSeconds": 3600 } } });
    let template = json!([{ "name": "load", "image": "plumb/load", "args": ["--cpu", "10m"],
        "resources": { "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } } }]);
    create(&client, "web", &boost, &template).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = until_all(&pods, |all| all.len() == 2).await;
    for pod in pods.values() {
        let requests = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
        assert_eq!(requests["cpu"].0, "2");
        let original = r#"{"requests":{"cpu":"100m"},"limits":{"cpu":"200m"}}"#;
        assert_eq!(annotation(pod, "vpaCpuStartupBoost/load").map(String::as_str), Some(original));
    }
    let edited = json!({ "spec": { "startupBoost": { "cpu": { "type": "Factor", "factor": 20, "durationSeconds": 0 } } } });
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&edited)).await.unwrap();
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let after =
        until_all(&all, |all| all.values().all(|pod| annotation(pod, "vpaCpuStartupBoost/load").is_none()))
            .await;
    for (name, pod) in &after {
        let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
        assert_eq!(resources.requests.unwrap()["cpu"].0, "100m");
        assert_eq!(resources.limits.unwrap()["cpu"].0, "200m");
        assert!(pods.contains_key(name), "the same pods");
    }
    let refused = json!({ "startupBoost": { "cpu": { "type": "Quantity", "quantity": "100u" } } });
    let mut vpa = object::<VerticalPodAutoscaler>(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "bad" },
        "spec": { "targetRef": { "kind": "Deployment", "name": "web" } },
    }));
    vpa.spec.startup_boost = serde_json::from_value(refused["startupBoost"].clone()).unwrap();
    let error = vpas.create(&PostParams::default(), &vpa).await.unwrap_err().to_string();
    assert!(error.contains("must be a whole number of milli CPUs"), "{error}");
}
