//! `plumb install` on a real Kubernetes: its pods run, recommend from metrics-server's values, resize, boost and roll out,
//! and `plumb uninstall` gives back.
//!
//! ```text
//!   plumb install | kubectl apply -f -  ──▶ pods of the image localhost/plumb ──▶ kubernetes.default, 10.214.n.1:443
//!   kube-apiserver ──▶ endpoints of the Services plumb-webhook, plumb-rollout-webhook
//! ```

mod replaced;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use plumb_rollout::workloads::{IN_PLACE_ANNOTATION, RECORD_ANNOTATION};
use plumb_testbed::{BUSYBOX, Cluster, Config, ProgramImage};
use plumb_testkit::object;
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

/// From the installation on: until everything that users wait for has happened. It takes less than two minutes on a machine
/// that has no other work; the test prints how long.
const DEADLINE: Duration = Duration::from_mins(10);
const NAMESPACE: &str = "plumb-system";

/// The image that the manifests name, made of the binary under test, or of another that `PLUMB_BINARY` names: figures are
/// those of a release build.
fn image() -> ProgramImage {
    let name = format!("localhost/plumb:{}", env!("CARGO_PKG_VERSION"));
    let program = std::env::var_os("PLUMB_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_plumb").into());
    ProgramImage { name, program: PathBuf::from(program), args: Vec::new() }
}

fn plumb(cluster: &Cluster, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let output = command.args(args).env("KUBECONFIG", cluster.kubeconfig_path()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// `kubectl apply -f -`.
fn kubectl_apply(cluster: &Cluster, manifests: &str) {
    let mut command = Command::new(cluster.kubectl());
    command.args(["apply", "-f", "-"]).env("KUBECONFIG", cluster.kubeconfig_path());
    let mut kubectl = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    kubectl.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
    assert!(kubectl.wait().unwrap().success());
}

/// What is waited for, since the installation.
struct Watch {
    client: Client,
    since: Instant,
    within: Duration,
}

impl Watch {
    /// Polls until something holds; where it does not in time, the pods of the installation say why.
    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        while !holds().await {
            let in_time = self.since.elapsed() <= self.within;
            assert!(in_time, "not within {:?}: {what}\n{}", self.within, self.explain().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{:>5.1} s: {what}", self.since.elapsed().as_secs_f64());
    }

    /// What pods log, and what VPAs report.
    async fn explain(&self) -> String {
        let mut parts = Vec::new();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            let log = LogParams { tail_lines: Some(20), ..LogParams::default() };
            let log = pods.logs(&pod.name_any(), &log).await.unwrap_or_else(|error| error.to_string());
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            parts.push(format!("{}: {statuses:?}\n{log}", pod.name_any()));
        }
        let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(self.client.clone());
        for vpa in vpas.list(&ListParams::default()).await.unwrap() {
            parts.push(format!("vpa {}: {}", vpa.name_any(), json!(vpa.status)));
        }
        parts.join("\n")
    }
}

fn workload(name: &str, replicas: u32, annotations: Value) -> Deployment {
    let labels = json!({ "app": name });
    object(json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": BUSYBOX, "command": ["/bin/sleep", "100000"],
                    "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "1", "memory": "1Gi" } },
                }],
            } },
        },
    }))
}

fn vpa(name: &str, mut spec: Value) -> VerticalPodAutoscaler {
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
    object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name }, "spec": spec,
    }))
}

async fn pods(client: &Client, app: &str) -> Vec<Pod> {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items;
    pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
}

fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(Pod::uid).collect()
}

fn requested(pod: &Pod, resource: &str) -> String {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref();
    resources
        .and_then(|all| all.requests.as_ref()?.get(resource))
        .map(|amount| amount.0.clone())
        .unwrap_or_default()
}

/// What the kubelet reports as actual.
fn actual(pod: &Pod, resource: &str) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let resources = statuses.first()?.resources.as_ref()?;
    Some(resources.requests.as_ref()?.get(resource)?.0.clone())
}

fn restarts(pods: &[Pod]) -> i32 {
    let statuses = pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    statuses.flatten().map(|status| status.restart_count).sum()
}

fn cpu_edit(cpu: &str) -> Patch<Value> {
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
    Patch::Strategic(json!({ "spec": { "template": { "spec": { "containers": [container] } } } }))
}

fn policies(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("plumb.dev", "v1alpha1", "RolloutPolicy"));
    Api::default_namespaced_with(client.clone(), &kind)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn an_installation_recommends_resizes_boosts_and_rolls_out() {
    let mut config = Config::from_environment().unwrap();
    (config.metrics, config.images) = (true, vec![image()]);
    let cluster = Cluster::start(config).await.unwrap();
    let client = cluster.client().await.unwrap();
    let watch = Watch { client: client.clone(), since: Instant::now(), within: DEADLINE };
    let args = ["install", "--replicas=1", "--feature-gates=InPlaceWorkloadVerticalScaling=true"];
    kubectl_apply(&cluster, &plumb(&cluster, &args));

    // What is there before the controllers is found by them.
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    deployments.create(&create, &workload("web", 2, json!({}))).await.unwrap();
    deployments
        .create(&create, &workload("rolled", 2, json!({ IN_PLACE_ANNOTATION: "true" })))
        .await
        .unwrap();
    let in_place = vpa("web", json!({ "updatePolicy": { "updateMode": "InPlace" } }));
    // The API server serves a kind a moment after its definition was applied.
    watch.until("a VPA is created", async || vpas.create(&create, &in_place).await.is_ok()).await;

    let installed: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    watch
        .until("four components are available", async || {
            let all = installed.list(&ListParams::default()).await.unwrap().items;
            let available = |one: &&Deployment| {
                one.status.as_ref().and_then(|status| status.available_replicas) == Some(1)
            };
            all.iter().filter(available).count() == 4
        })
        .await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for name in ["vpa-webhook-config", "plumb-rollout-webhook"] {
        let is_registered =
            |found: MutatingWebhookConfiguration| found.webhooks.is_some_and(|all| !all.is_empty());
        watch.until(name, async || webhooks.get_opt(name).await.unwrap().is_some_and(is_registered)).await;
    }

    boosts(&watch, &deployments, &vpas).await;
    let (web, rolled) = (uids(&pods(&client, "web").await), uids(&pods(&client, "rolled").await));
    assert_eq!((web.len(), rolled.len()), (2, 2));
    rolls_out(&watch, &deployments).await;

    // Last, because it takes metrics-server's first values and the recommender's next round.
    let is_recommended = |vpa: &VerticalPodAutoscaler| {
        vpa.status.as_ref().is_some_and(|status| status.recommendation.is_some())
    };
    watch.until("a recommendation", async || is_recommended(&vpas.get("web").await.unwrap())).await;
    watch
        .until("the pods of the VPA are resized in place", async || {
            let pods = pods(&client, "web").await;
            let is_resized = |pod: &Pod| {
                let memory = requested(pod, "memory");
                memory != "16Mi" && actual(pod, "memory").as_deref() == Some(&memory)
            };
            pods.len() == 2 && pods.iter().all(is_resized)
        })
        .await;
    for (app, before) in [("web", &web), ("rolled", &rolled)] {
        let now = pods(&client, app).await;
        assert_eq!((&uids(&now), restarts(&now)), (before, 0), "{app}");
    }
    gives_back(&cluster, &client).await;
    assert_eq!(uids(&pods(&client, "web").await), web);
    cluster.stop().await.unwrap();
}

/// A pod that is created gets more cpu through the webhook's Service, and the updater takes it back.
async fn boosts(watch: &Watch, deployments: &Api<Deployment>, vpas: &Api<VerticalPodAutoscaler>) {
    let boost = json!({
        "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 3, "durationSeconds": 5 } },
    });
    vpas.create(&PostParams::default(), &vpa("boosted", boost)).await.unwrap();
    // The webhook knows of the VPA by a watch, and the API server of the configuration: the first pods may be too early.
    let name = "boosted";
    deployments.create(&PostParams::default(), &workload(name, 1, json!({}))).await.unwrap();
    let client = &watch.client;
    watch
        .until("a pod is created with a boost", async || {
            let found = pods(client, name).await;
            let Some(pod) = found.first() else { return false };
            if requested(pod, "cpu") == "30m" {
                return true;
            }
            let api: Api<Pod> = Api::default_namespaced(client.clone());
            let _ = api.delete(&pod.name_any(), &kube::api::DeleteParams::default()).await;
            false
        })
        .await;
    let before = uids(&pods(client, name).await);
    watch
        .until("its boost is ended", async || {
            let found = pods(client, name).await;
            found
                .iter()
                .all(|pod| requested(pod, "cpu") == "10m" && actual(pod, "cpu").as_deref() == Some("10m"))
        })
        .await;
    assert_eq!(uids(&pods(client, name).await), before);
}

/// An edit of the template's resources reaches the pods that run.
async fn rolls_out(watch: &Watch, deployments: &Api<Deployment>) {
    let held = deployments.patch("rolled", &PatchParams::default(), &cpu_edit("20m")).await.unwrap();
    assert!(held.annotations().contains_key(RECORD_ANNOTATION), "it is held in the same write");
    watch
        .until("a Deployment is rolled out in place", async || {
            let pods = pods(&watch.client, "rolled").await;
            let is_done =
                |pod: &Pod| requested(pod, "cpu") == "20m" && actual(pod, "cpu").as_deref() == Some("20m");
            let released = deployments.get("rolled").await.unwrap().spec.unwrap().paused != Some(true);
            released && pods.len() == 2 && pods.iter().all(is_done)
        })
        .await;
}

/// A rollout that is under way is released, and nothing of the installation is left but definitions and VPAs.
async fn gives_back(cluster: &Cluster, client: &Client) {
    let watch = Watch { client: client.clone(), since: Instant::now(), within: DEADLINE };
    let policy: DynamicObject = object(json!({
        "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": "rolled" },
        "spec": { "targetRef": { "kind": "Deployment", "name": "rolled" }, "paused": true },
    }));
    policies(client).create(&PostParams::default(), &policy).await.unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.patch("rolled", &PatchParams::default(), &cpu_edit("30m")).await.unwrap();
    let is_paused = async || deployments.get("rolled").await.unwrap().spec.unwrap().paused == Some(true);
    watch.until("a rollout holds the Deployment", is_paused).await;

    let said = plumb(cluster, &["uninstall", "--force"]);
    println!("{said}");
    assert!(said.contains("deployment.apps/rolled of namespace default released"), "{said}");
    assert!(!is_paused().await);
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let left: Vec<String> =
        webhooks.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, Vec::<String>::new());
    watch
        .until("the Deployment recreates what was not resized", async || {
            let pods = pods(client, "rolled").await;
            pods.len() == 2 && pods.iter().all(|pod| requested(pod, "cpu") == "30m")
        })
        .await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    watch
        .until("the namespace is gone", async || namespaces.get_opt(NAMESPACE).await.unwrap().is_none())
        .await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let vpas: BTreeMap<String, _> = vpas
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|vpa| (vpa.name_any(), vpa))
        .collect();
    assert!(vpas["web"].status.as_ref().unwrap().recommendation.is_some(), "VPAs stay as they are");
}
