//! `plumb run updater`, `plumb run admission` and `plumb run all`.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use plumb_testkit::{eventually, object, until};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::super::cluster::Cluster;
use super::{FLAGS, LONG_LEASES, Running};

/// A Deployment of one pod, and a VPA that resizes it in place.
async fn create_web(client: &Client) {
    let deployment: Deployment = object(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{
                    "name": "load", "image": "plumb/load", "args": ["--cpu", "200m", "--memory", "64Mi"],
                    "resources": { "requests": { "cpu": "10m" } },
                }] },
            },
        },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "InPlace" },
            "resourcePolicy": { "containerPolicies": [{
                "containerName": "*", "maxAllowed": { "cpu": "150m" }, "controlledResources": ["cpu"],
            }] },
        },
    }));
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
}

async fn only_pod(client: &Client) -> Option<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut pods = pods.list(&ListParams::default()).await.unwrap().items;
    if pods.len() == 1 { pods.pop() } else { None }
}

fn requested(pod: &Pod) -> Value {
    serde_json::to_value(&pod.spec.as_ref().unwrap().containers[0].resources).unwrap()["requests"]["cpu"]
        .clone()
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Checks that all components work for the pod of `web`, of which the webhook is the process with this end of its identity.
async fn check_autoscaled(client: &Client, own: &str) {
    // Recommender and updater: the pod that runs is resized.
    let mut first = None;
    eventually(async || {
        let pod = only_pod(client).await;
        first = first.clone().or_else(|| pod.as_ref().and_then(Pod::uid));
        pod.is_some_and(|pod| requested(&pod) != "10m" && pod.uid() == first)
    })
    .await;
    // The webhook: a new pod gets it at once.
    let status: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    until(&status, "vpa-admission-controller", |lease: &Lease| holder(lease).ends_with(own)).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    // It knows of the recommendation by a watch: the first pod that replaces another may be too early.
    let mut deleted = None;
    eventually(async || {
        let Some(pod) = only_pod(client).await else { return false };
        if pod.annotations().contains_key("vpaUpdates") {
            return requested(&pod) != "10m" && pod.uid() != first;
        }
        if pod.uid() != deleted {
            let now = DeleteParams::default().grace_period(0);
            pods.delete(&pod.name_any(), &now).await.unwrap();
            deleted = pod.uid();
        }
        false
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_autoscaler_runs_in_one_process_with_a_lease_for_each_component() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let flags = [
        "--install-crds",
        "--recommender-interval=1s",
        "--register-by-url",
        "--webhook-address=127.0.0.1",
        "--port=0",
    ];
    let flags = [&flags[..], &LONG_LEASES[..]].concat();
    let all = Running::start(&cluster, "all", &flags);
    eventually(async || all.get("/readyz") == (200, "OK".to_owned())).await;
    create_web(&client).await;

    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let own = format!("_{}", all.process.id());
    for name in ["vpa-recommender-lease", "vpa-updater"] {
        until(&leases, name, |lease: &Lease| holder(lease).ends_with(&own)).await;
    }
    check_autoscaled(&client, &own).await;

    let expected = [
        "leader_election_master_status{name=\"vpa-recommender-lease\"} 1",
        "leader_election_master_status{name=\"vpa-updater\"} 1",
        "vpa_updater_in_place_updated_pods_total",
        "vpa_recommender_recommendation_latency_seconds",
        "vpa_admission_controller_admission_pods_total{applied=\"true\"}",
        "plumb_tasks{state=\"running\"}",
    ];
    all.until_metrics(&expected).await;
    assert_eq!(all.get("/healthz"), (200, "OK".to_owned()));
    assert_eq!(all.get("/debug/vpa").1, "/debug/vpa/default/web\n");
    let (status, said) = all.stop();
    assert!(status.success(), "{said}");
    for name in ["vpa-recommender-lease", "vpa-updater"] {
        until(&leases, name, |lease: &Lease| holder(lease).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_one_process_that_are_not_elected_watch_vpas_and_pods_once() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let flags = [
        "--install-crds",
        "--recommender-interval=1s",
        "--register-by-url",
        "--webhook-address=127.0.0.1",
        "--port=0",
    ];
    let all = Running::start(&cluster, "all", &flags);
    eventually(async || all.get("/readyz") == (200, "OK".to_owned())).await;
    create_web(&client).await;
    check_autoscaled(&client, &format!("_{}", all.process.id())).await;
    let (_, metrics) = all.get("/metrics");
    for resource in ["pods", "verticalpodautoscalers"] {
        let listed_once = format!("reflector_list_duration_seconds_count{{name=\"{resource}\"}} 1\n");
        assert!(metrics.contains(&listed_once), "{listed_once} is not in\n{metrics}");
    }
    let (status, said) = all.stop();
    assert!(status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_updaters_one_leads_and_the_other_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let flags = [&["--install-crds", "--v=4"], &LONG_LEASES[..]].concat();
    let first = Running::start(&cluster, "updater", &flags);
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let own = format!("_{}", first.process.id());
    until(&leases, "vpa-updater", |lease: &Lease| holder(lease).ends_with(&own)).await;
    let second = Running::start(&cluster, "updater", &flags);
    assert_eq!(second.get("/readyz"), (200, "OK".to_owned()), "one that stands by is ready");

    create_web(&client).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let recommend = async |cpu: &str| {
        let recommendations = json!([{ "containerName": "load", "target": { "cpu": cpu }, "lowerBound": { "cpu": cpu },
                                       "upperBound": { "cpu": cpu } }]);
        let status =
            json!({ "status": { "recommendation": { "containerRecommendations": recommendations } } });
        vpas.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        eventually(async || only_pod(&client).await.is_some_and(|pod| requested(&pod) == cpu)).await;
        only_pod(&client).await.unwrap().uid()
    };
    let resized = recommend("20m").await;
    let (status, said) = first.stop();
    assert!(status.success() && said.contains("--v"), "{said}");
    assert_eq!(recommend("30m").await, resized, "the second updater resizes the same pod");
    assert!(second.get("/metrics").1.contains("leader_election_master_status{name=\"vpa-updater\"} 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_the_webhook_share_one_authority_and_one_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let flags = [
        "--install-crds",
        "--port=0",
        "--webhook-namespace=default",
        "--webhook-service=hook",
        "--webhook-labels=app:vpa",
        "--status-lease-update-interval=1s",
    ];
    let first = Running::start(&cluster, "admission", &flags);
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let registered =
        until(&configurations, "vpa-webhook-config", |_: &MutatingWebhookConfiguration| true).await;
    let webhook = &registered.webhooks.as_ref().unwrap()[0];
    let service = webhook.client_config.service.as_ref().unwrap();
    assert_eq!(
        (service.namespace.as_str(), service.name.as_str(), service.port),
        ("default", "hook", Some(443))
    );
    assert_eq!(registered.labels()["app"], "vpa");

    let second = Running::start(&cluster, "admission", &flags);
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    for process in [&first, &second] {
        eventually(async || process.get("/readyz").0 == 200).await;
        // Each renews the status once the configuration is what it wants.
        let own = format!("_{}", process.process.id());
        until(&leases, "vpa-admission-controller", |lease: &Lease| holder(lease).ends_with(&own)).await;
    }
    let after = configurations.get("vpa-webhook-config").await.unwrap();
    assert_eq!(after.resource_version(), registered.resource_version(), "the second has written nothing");
    // Nothing reaches the webhook here: pods are created all the same.
    create_web(&client).await;
    eventually(async || only_pod(&client).await.is_some()).await;
    assert!(first.stop().0.success() && second.stop().0.success());
}
