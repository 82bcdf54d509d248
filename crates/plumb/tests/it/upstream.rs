//! Plumb's recommender beside that of the Vertical Pod Autoscaler 1.8.1, on one real API server and with the same metrics:
//! the same recommendations, and each goes on from the other's checkpoints.
//!
//! ```text
//!   scripted metrics.k8s.io ──▶ kube-apiserver ──▶ upstream's recommender ──▶ VPA `one`, its checkpoints
//!   (a tick ends when both           ▲        ──▶ plumb run recommender  ──▶ VPA `two`, its checkpoints
//!    have read it)                   └── then they swap
//! ```

mod metrics_api;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_testbed::{Cache, Config, Parts};
use plumb_testkit::TIMEOUT;
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use serde_json::{Value, json};

use metrics_api::MetricsApi;

/// How many ticks there are before the recommenders are compared: a day and a half of history.
const TICKS: u32 = 108;
/// The pods, and what each of their containers uses in a tick: millicores, bytes.
const PODS: [&str; 2] = ["web-1", "web-2"];
const CONTAINERS: [&str; 2] = ["app", "log"];

/// A recommender that runs until it is dropped.
struct Recommender(Child);

impl Recommender {
    fn upstream(kubeconfig: &Path, name: &str) -> Self {
        let program = Cache::of_user().unwrap().autoscaler_program("vpa-recommender").unwrap();
        Self::start(Command::new(program).args(["--v=2", "--address=127.0.0.1:0"]), kubeconfig, name)
    }

    fn plumb(kubeconfig: &Path, name: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.args(["run", "recommender", "--v=2", "--address=127.0.0.1:0"]);
        Self::start(&mut command, kubeconfig, name)
    }

    fn start(command: &mut Command, kubeconfig: &Path, name: &str) -> Self {
        command.arg("--kubeconfig").arg(kubeconfig).arg(format!("--recommender-name={name}"));
        command.args(["--recommender-interval=1s", "--kube-api-qps=500", "--kube-api-burst=500"]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Recommender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn create_objects(client: &Client) {
    let labels = json!({ "app": "web" });
    let containers: Vec<Value> = CONTAINERS
        .iter()
        .map(|name| json!({ "name": name, "image": "web", "resources": { "requests": { "memory": "600Mi" } } }))
        .collect();
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
        },
    }))
    .unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for name in PODS {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels }, "spec": { "containers": containers },
        }))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        set_status(&pods, name, 0, json!({})).await;
    }
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), "default");
    for (name, recommender) in [("one", "default"), ("two", "plumb")] {
        let vpa = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "updatePolicy": { "updateMode": "Off" },
                "recommenders": [{ "name": recommender }],
                "resourcePolicy": { "containerPolicies": [
                    { "containerName": "log", "minAllowed": { "cpu": "40m" }, "maxAllowed": { "memory": "200Mi" } },
                ] },
            },
        }))
        .unwrap();
        vpas.create(&PostParams::default(), &vpa).await.unwrap();
    }
}

/// Makes a pod run, with so many restarts of its container `app`.
async fn set_status(pods: &Api<Pod>, name: &str, restarts: u32, last_state: Value) {
    let status = |container: &str| {
        let is_app = container == "app";
        json!({
            "name": container, "image": "web", "imageID": "web", "ready": true,
            "restartCount": if is_app { restarts } else { 0 },
            "state": { "running": {} }, "lastState": if is_app { last_state.clone() } else { json!({}) },
        })
    };
    let statuses: Vec<Value> = CONTAINERS.iter().map(|name| status(name)).collect();
    let patch = json!({ "status": { "phase": "Running", "containerStatuses": statuses } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// What both recommenders have written for their VPAs: recommendations and checkpoints.
async fn written(client: &Client) -> [Value; 2] {
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), "default");
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::namespaced(client.clone(), "default");
    let mut found = Vec::new();
    for vpa in ["one", "two"] {
        let status = vpas.get(vpa).await.unwrap().status.unwrap_or_default();
        let mut value = json!({ "recommendation": status.recommendation });
        for container in CONTAINERS {
            let checkpoint = checkpoints.get_opt(&format!("{vpa}-{container}")).await.unwrap();
            let mut status = checkpoint.and_then(|checkpoint| checkpoint.status).unwrap_or_default();
            status.last_update_time = None;
            // Sums of the same weights in another order differ in the last bit.
            for histogram in [&mut status.cpu_histogram, &mut status.memory_histogram] {
                histogram.total_weight = (histogram.total_weight * 1e12).round() / 1e12;
            }
            value[container] = json!(status);
        }
        found.push(value);
    }
    found.try_into().unwrap()
}

/// Waits until both have written the same, after the tick that both have read.
async fn same(client: &Client, what: &str) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = written(client).await;
    while Instant::now() < deadline {
        if last[0] == last[1] && !last[0]["recommendation"].is_null() {
            println!("{what}: {}", last[0]["recommendation"]);
            return last[0].clone();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        last = written(client).await;
    }
    let [upstream, plumb] = last;
    panic!("{what}: upstream and plumb differ:\n{upstream:#}\n{plumb:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs that `testbed obtain --autoscaler` gets; .ci/kubernetes runs it"]
async fn recommendations_and_checkpoints_are_those_of_upstream_s_recommender() {
    let mut config = Config::of(Parts::ApiServer);
    config.apiserver_flags = vec!["--disable-admission-plugins=ServiceAccount".to_owned()];
    let cluster = plumb_testbed::Cluster::start(config).await.unwrap();
    let client = cluster.client().await.unwrap();
    plumb_vpa::install::install(&client).await.unwrap();
    create_objects(&client).await;
    let metrics = MetricsApi::start(PODS.map(str::to_owned).to_vec(), &CONTAINERS).await;
    metrics.register(&client).await;

    let kubeconfig = cluster.kubeconfig_path();
    // What one has read and the other has not must not be counted.
    metrics.advance();
    let upstream = Recommender::upstream(kubeconfig, "default");
    let plumb = Recommender::plumb(kubeconfig, "plumb");
    metrics.read_again(1).await;
    same(&client, "after one tick").await;
    metrics.pass(TICKS / 2).await;
    same(&client, "after a morning").await;

    // An OOM kill that both observe between the same two ticks.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let killed = json!({ "terminated": {
        "exitCode": 137, "reason": "OOMKilled",
        "startedAt": metrics.now().to_string(), "finishedAt": metrics.now().to_string(),
    } });
    let before = written(&client).await[0].clone();
    set_status(&pods, PODS[0], 1, killed).await;
    metrics.read_again(3).await;
    let after = same(&client, "after an OOM kill").await;
    assert_ne!(before["recommendation"], after["recommendation"], "the OOM kill raises memory");
    metrics.pass(TICKS / 2).await;
    same(&client, "after a day and a half").await;

    // Each goes on from what the other wrote. Plumb counts kills that pods show from before its start, and upstream does
    // not: the pod shows none any more.
    drop((upstream, plumb));
    set_status(&pods, PODS[0], 1, json!({})).await;
    metrics.advance();
    let upstream = Recommender::upstream(kubeconfig, "plumb");
    let plumb = Recommender::plumb(kubeconfig, "default");
    metrics.read_again(1).await;
    metrics.pass(2).await;
    let swapped = same(&client, "after they swapped").await;
    let samples = swapped["app"]["totalSamplesCount"].as_i64().unwrap();
    assert_eq!(samples, i64::from(TICKS + 1 + 3) * 2, "no sample is lost or counted twice");
    drop((upstream, plumb));
    cluster.stop().await.unwrap();
}
