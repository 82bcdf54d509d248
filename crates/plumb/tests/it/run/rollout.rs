//! `plumb run rollout`.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use plumb_testkit::{eventually, object, until};
use serde_json::json;

use super::super::cluster::Cluster;
use super::{FLAGS, LONG_LEASES, Running};

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_runs_elsewhere_resizes_the_pods_of_a_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(
        &folder.path().join("data"),
        &[&FLAGS[..], &["--resize-dialect", "v1.36"]].concat(),
    );
    let client = cluster.client().await;
    let flags = [
        "--install-crds",
        "--feature-gates=InPlaceWorkloadVerticalScaling=true",
        "--register-by-url",
        "--webhook-address=127.0.0.1",
        "--port=0",
    ];
    let flags = [&flags[..], &LONG_LEASES[..]].concat();
    let rollout = Running::start(&cluster, "rollout", &flags);
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    until(&leases, "plumb-rollout-lease", |lease: &Lease| lease.spec.is_some()).await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&webhooks, "plumb-rollout-webhook", |_: &MutatingWebhookConfiguration| true).await;
    eventually(async || rollout.get("/readyz") == (200, "OK".to_owned())).await;

    let deployment: Deployment = object(json!({
        "metadata": { "name": "web", "annotations": { "rollout.plumb.dev/in-place": "true" } },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{
                    "name": "main", "image": "plumb/load",
                    "resources": { "requests": { "cpu": "100m", "memory": "16Mi" } },
                }] },
            },
        },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let with_cpu = async |wanted: &str| {
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        let cpu = |pod: &Pod| {
            let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
            Some(status.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0 == wanted)
        };
        let all = pods.len() == 2 && pods.iter().all(|pod| cpu(pod) == Some(true));
        let mut uids: Vec<String> = pods.iter().filter_map(Pod::uid).collect();
        uids.sort_unstable();
        all.then_some(uids)
    };
    eventually(async || with_cpu("100m").await.is_some()).await;
    let before = with_cpu("100m").await;
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": "150m" } } });
    let edit = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(edit)).await.unwrap();
    eventually(async || with_cpu("150m").await.is_some()).await;
    assert_eq!(with_cpu("150m").await, before);
    assert!(
        rollout.get("/metrics").1.contains("leader_election_master_status{name=\"plumb-rollout-lease\"} 1")
    );
    assert!(rollout.stop().0.success());
}
