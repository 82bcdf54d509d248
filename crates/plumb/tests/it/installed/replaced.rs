//! The Vertical Pod Autoscaler 1.8.1, installed from its own manifests: replaced, and given back. Our recommendations continue
//! from its checkpoints, and its own from ours; what both use is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use plumb_resize::Quantity;
use plumb_testbed::{AUTOSCALER_VERSION, Cache, Cluster, Config, ProgramImage};
use plumb_vpa_api::{
    VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointStatus,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use super::{
    NAMESPACE, Watch, actual, image, kubectl_apply, plumb, pods, requested, restarts, uids, vpa, workload,
};

const UPSTREAM: &str = "kube-system";
const PROGRAMS: [&str; 3] = ["vpa-recommender", "vpa-updater", "vpa-admission-controller"];
/// How long anything may take on a machine that has other work, too.
const WITHIN: Duration = Duration::from_mins(5);
/// How often usage is measured: by metrics-server, every 15 seconds.
const MEASUREMENTS: usize = 5;
/// How many further VPAs there are while usage is measured; `PLUMB_TEST_VPAS` has another number.
const LOAD: usize = 300;
/// What a recommender runs with here, so that a test sees several rounds.
const INTERVAL: &str = "--recommender-interval=5s";

fn upstream_images(cache: &Cache) -> Vec<ProgramImage> {
    let image = |program: &str| ProgramImage {
        name: format!("registry.k8s.io/autoscaling/{program}:{AUTOSCALER_VERSION}"),
        program: cache.autoscaler_program(program).unwrap(),
        args: Vec::new(),
    };
    PROGRAMS.map(image).to_vec()
}

/// The certificates of its webhook. Its users make them with a script of upstream's.
fn certificates() -> Secret {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let names = vec![format!("vpa-webhook.{UPSTREAM}.svc")];
    let server_key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(names).unwrap().signed_by(&server_key, &issuer).unwrap().pem();
    let files = [
        ("caCert.pem", certificate),
        ("serverCert.pem", server),
        ("serverKey.pem", server_key.serialize_pem()),
    ];
    let mut secret = Secret::default();
    secret.metadata.name = Some("vpa-tls-certs".to_owned());
    secret.data = Some(files.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).into());
    secret
}

/// Installs upstream from the manifests that it ships; only the interval differs.
async fn install_upstream(cluster: &Cluster, client: &Client, manifests: &Path) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), UPSTREAM);
    secrets.create(&PostParams::default(), &certificates()).await.unwrap();
    for file in [
        "vpa-v1-crd-gen.yaml",
        "vpa-rbac.yaml",
        "admission-controller-service.yaml",
        "admission-controller-deployment.yaml",
        "updater-deployment.yaml",
        "recommender-deployment.yaml",
    ] {
        kubectl_apply(cluster, &std::fs::read_to_string(manifests.join(file)).unwrap());
    }
    let container = json!({ "name": "recommender", "args": [INTERVAL] });
    let args = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), UPSTREAM);
    deployments.patch("vpa-recommender", &PatchParams::default(), &Patch::Strategic(args)).await.unwrap();
}

/// The checkpoint of the workload's container.
async fn checkpoint(client: &Client) -> VerticalPodAutoscalerCheckpointStatus {
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(client.clone());
    let found = checkpoints.get_opt("web-main").await.unwrap();
    found.and_then(|checkpoint| checkpoint.status).unwrap_or_default()
}

/// Waits until the checkpoint has more samples than another program has left, and it is the same history: a program that began
/// its own would start with none.
async fn continues(watch: &Watch, program: &str, from: &VerticalPodAutoscalerCheckpointStatus) {
    let count = from.total_samples_count;
    let what = format!("{program} continues from {count} samples");
    watch.until(&what, async || checkpoint(&watch.client).await.total_samples_count > count).await;
    let now = checkpoint(&watch.client).await;
    assert_eq!(now.first_sample_start, from.first_sample_start, "{program} began a history of its own");
}

/// The Service that the webhook configuration names: namespace and name.
async fn webhook(client: &Client) -> Option<(String, String)> {
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = webhooks.get_opt("vpa-webhook-config").await.unwrap()?;
    let service = found.webhooks?.first()?.client_config.service.clone()?;
    Some((service.namespace, service.name))
}

/// How many pods of a namespace run whose name begins so.
async fn running(client: &Client, namespace: &str, prefix: &str) -> usize {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let is_ready = |pod: &&Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        pod.name_any().starts_with(prefix) && statuses.is_some_and(|all| all.iter().all(|one| one.ready))
    };
    pods.iter().filter(is_ready).count()
}

/// What a program uses, by metrics-server.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    cpu_micro: i64,
    memory_kib: i64,
}

/// Usage of the pods of a namespace whose names begin so: by pod, when it was measured and what.
async fn measured(client: &Client, namespace: &str, prefix: &str) -> BTreeMap<String, (String, Usage)> {
    let request = http::Request::get(format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"));
    let list: Value = client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let amount = |pod: &Value, resource: &str| -> Quantity {
        pod["containers"][0]["usage"][resource].as_str().unwrap_or("0").parse().unwrap()
    };
    let pods = list["items"].as_array().unwrap().iter();
    pods.filter_map(|pod| {
        let name = pod["metadata"]["name"].as_str().filter(|name| name.starts_with(prefix))?;
        let usage = Usage {
            cpu_micro: amount(pod, "cpu").checked_mul(1000).unwrap().saturating_milli(),
            memory_kib: amount(pod, "memory").saturating_units() / 1024,
        };
        Some((name.to_owned(), (pod["timestamp"].as_str()?.to_owned(), usage)))
    })
    .collect()
}

/// The usage of so many programs together: the mean of their cpu and the most of their memory over some measurements.
async fn usage(watch: &Watch, namespace: &str, prefix: &str, programs: usize) -> Usage {
    let mut seen: BTreeMap<String, BTreeMap<String, Usage>> = BTreeMap::new();
    let is_measured = |of: &BTreeMap<String, Usage>| of.len() >= MEASUREMENTS;
    let what = format!("{MEASUREMENTS} measurements of the pods {prefix}* of namespace {namespace}");
    watch
        .until(&what, async || {
            for (pod, (at, usage)) in measured(&watch.client, namespace, prefix).await {
                seen.entry(pod).or_default().insert(at, usage);
            }
            seen.values().filter(|of| is_measured(of)).count() == programs
        })
        .await;
    let mut sum = Usage::default();
    for (pod, of) in seen.iter().filter(|(_, of)| is_measured(of)) {
        // The first is of a program that starts.
        let later: Vec<&Usage> = of.values().skip(1).collect();
        let cpu_micro =
            later.iter().map(|usage| usage.cpu_micro).sum::<i64>() / i64::try_from(later.len()).unwrap();
        let memory_kib = later.iter().map(|usage| usage.memory_kib).max().unwrap();
        println!("{pod}: cpu {cpu_micro} microcores, memory {memory_kib} KiB");
        sum.cpu_micro += cpu_micro;
        sum.memory_kib += memory_kib;
    }
    sum
}

/// `plumb uninstall`, which has to be refused; what it says.
fn refused_uninstall(cluster: &Cluster) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let output = command.arg("uninstall").env("KUBECONFIG", cluster.kubeconfig_path()).output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

async fn is_upstreams(client: &Client) -> bool {
    webhook(client).await == Some((UPSTREAM.to_owned(), "vpa-webhook".to_owned()))
}

/// Workloads with a VPA each, whose pods fit no node: what a larger cluster has the programs hold and compare.
async fn create_load(watch: &Watch, load: usize) {
    let client = &watch.client;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let create = |number: usize| {
        let (deployments, vpas) = (deployments.clone(), vpas.clone());
        async move {
            let name = format!("load-{number}");
            let mut deployment = workload(&name, 1, json!({}));
            let pod = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).unwrap();
            pod.node_selector = Some([("plumb.dev/load".to_owned(), "none".to_owned())].into());
            deployments.create(&PostParams::default(), &deployment).await.unwrap();
            let off = vpa(&name, json!({ "updatePolicy": { "updateMode": "Off" } }));
            vpas.create(&PostParams::default(), &off).await.unwrap();
        }
    };
    stream::iter(0..load).for_each_concurrent(16, create).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let are_created = async || pods.list_metadata(&ListParams::default()).await.unwrap().items.len() >= load;
    watch.until(&format!("{load} workloads with a VPA each"), are_created).await;
}

/// Waits until upstream recommends for the workload `web`.
async fn until_upstream_recommends(watch: &Watch) {
    let client = &watch.client;
    watch.until("upstream's webhook is registered", async || is_upstreams(client).await).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let initial = vpa("web", json!({ "updatePolicy": { "updateMode": "Initial" } }));
    vpas.create(&PostParams::default(), &initial).await.unwrap();
    let has_history = async || checkpoint(client).await.total_samples_count > 0;
    watch.until("upstream has a history", has_history).await;
    watch.until("upstream's three run", async || running(client, UPSTREAM, "vpa-").await == 3).await;
}

/// Installs components of ours, one replica each; `recommender` is the one of them that recommends.
fn install(cluster: &Cluster, components: &str, recommender: &str) {
    let components = format!("--components={components}");
    let interval = format!("--arg={recommender}={INTERVAL}");
    println!(
        "{}",
        plumb(cluster, &["install", "--apply", "--replace-vpa", "--replicas=1", &components, &interval])
    );
}

/// Has one process do the work of the three, and waits until it continues from their checkpoint.
async fn run_in_one_process(cluster: &Cluster, watch: &Watch) {
    let client = &watch.client;
    let left = checkpoint(client).await;
    install(cluster, "autoscaler", "autoscaler");
    let is_one = async || {
        let ours = running(client, NAMESPACE, "plumb-").await;
        ours == 1 && running(client, NAMESPACE, "plumb-autoscaler").await == 1
    };
    watch.until("one process of ours runs", is_one).await;
    continues(watch, "plumb in one process", &left).await;
}

/// Replaces upstream, and waits until Plumb does its work: from its checkpoint on, and in a mode that it refuses.
async fn replace(cluster: &Cluster, watch: &Watch) {
    let client = &watch.client;
    let left = checkpoint(client).await;
    install(cluster, "recommender,updater,admission", "recommender");
    let is_gone = async || running(client, UPSTREAM, "vpa-").await == 0;
    watch.until("upstream's pods are gone", is_gone).await;
    continues(watch, "plumb", &left).await;
    let ours = Some((NAMESPACE.to_owned(), "plumb-webhook".to_owned()));
    watch.until("the webhook is ours", async || webhook(client).await == ours).await;
    watch.until("our three run", async || running(client, NAMESPACE, "plumb-").await == 3).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let in_place = vpa("scaled", json!({ "updatePolicy": { "updateMode": "InPlace" } }));
    vpas.create(&PostParams::default(), &in_place).await.unwrap();
    let is_resized = |pod: &Pod| {
        let memory = requested(pod, "memory");
        memory != "16Mi" && actual(pod, "memory").as_deref() == Some(&memory)
    };
    watch
        .until("pods are resized in place", async || {
            let pods = pods(client, "scaled").await;
            pods.len() == 2 && pods.iter().all(is_resized)
        })
        .await;
}

/// Uninstalls, which takes `--force`, and waits until upstream does its work again.
async fn give_back(cluster: &Cluster, watch: &Watch) {
    let client = &watch.client;
    let refusal = refused_uninstall(cluster);
    println!("{refusal}");
    assert!(refusal.contains("default/scaled") && !refusal.contains("default/web"), "{refusal}");
    assert_eq!(running(client, NAMESPACE, "plumb-").await, 1, "nothing was removed");
    let left = checkpoint(client).await;
    println!("{}", plumb(cluster, &["uninstall", "--force"]));
    watch.until("ours are gone", async || running(client, NAMESPACE, "plumb-").await == 0).await;
    continues(watch, "upstream again", &left).await;
    watch.until("the webhook is upstream's", async || is_upstreams(client).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and the programs that `testbed obtain --autoscaler` gets (docs/kubernetes.md)"]
async fn upstream_is_replaced_and_given_back_and_its_history_continues() {
    let cache = Cache::of_user().unwrap();
    let mut config = Config::default();
    config.metrics = true;
    config.images = upstream_images(&cache);
    config.images.push(image());
    let cluster = Cluster::start(config).await.unwrap();
    let client = cluster.client().await.unwrap();
    let watch = || Watch { client: client.clone(), since: Instant::now(), within: WITHIN };
    install_upstream(&cluster, &client, &cache.autoscaler_manifests()).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    for name in ["web", "scaled"] {
        deployments.create(&PostParams::default(), &workload(name, 2, json!({}))).await.unwrap();
    }
    until_upstream_recommends(&watch()).await;
    let load = std::env::var("PLUMB_TEST_VPAS").map_or(LOAD, |number| number.parse().unwrap());
    create_load(&watch(), load).await;
    let upstream = usage(&watch(), UPSTREAM, "vpa-", PROGRAMS.len()).await;
    let before = [pods(&client, "web").await, pods(&client, "scaled").await];
    let before = before.each_ref().map(|pods| uids(pods));
    assert_eq!(before.each_ref().map(BTreeSet::len), [2, 2]);

    replace(&cluster, &watch()).await;
    let ours = usage(&watch(), NAMESPACE, "plumb-", PROGRAMS.len()).await;
    run_in_one_process(&cluster, &watch()).await;
    let in_one = usage(&watch(), NAMESPACE, "plumb-autoscaler", 1).await;
    give_back(&cluster, &watch()).await;
    let after = [pods(&client, "web").await, pods(&client, "scaled").await];
    assert_eq!(after.each_ref().map(|pods| uids(pods)), before, "no pod was evicted");
    assert_eq!(after.iter().map(|pods| restarts(pods)).sum::<i32>(), 0);
    cluster.stop().await.unwrap();

    println!("{load} VPAs; upstream's three: {upstream:?}; ours: {ours:?}; ours in one process: {in_one:?}");
}
