//! How fast the updater acts, against an API server in this process and virtual nodes: from a changed recommendation to the patch
//! of the pod, many resizes at once, and the end of many boosts that are due at once.
//!
//! `cargo bench -p plumb-updater --bench actuation`; `PLUMB_BENCH_PODS` makes it smaller.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a service")]

#[path = "common/cluster.rs"]
mod cluster;
#[path = "common/figure.rs"]
mod figure;

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Informer, ObjectRef};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Stage, read};
use plumb_runtime::{Virtual, VirtualConfig};
use plumb_store::Store;
use plumb_supervise::Supervisor;
use plumb_testkit::{TestNode, object};
use plumb_updater::rate_limit::RateLimit;
use plumb_updater::{Config, Options, Updater, UpdaterMetrics};
use plumb_vpa::informers::Informers;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::{TargetConfig, Targets};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use cluster::{Bed, p50_and_p99, size};
use figure::figure;

const NODES: usize = 10;
const PODS_EACH: usize = 10;
/// A measurement that takes longer has come to a stop.
const DEADLINE: Duration = Duration::from_mins(2);
/// How often the latency of one pod is measured.
const ROUNDS: usize = 50;

/// The pods as a client sees them that watches.
struct Watched {
    pods: Informer<Pod>,
    changed: Arc<Notify>,
}

impl Watched {
    fn start(bed: &Bed, running: &mut JoinSet<()>) -> Self {
        let pods: Informer<Pod> = Informer::default();
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        pods.add_handler(move |_| notify.notify_one());
        let api = bed.pods();
        running.spawn(pods.supervised(api, &Supervisor::default()));
        Self { pods, changed }
    }

    /// Waits until something holds of all pods that have a name with this start, and there are so many.
    async fn until(&self, start: &str, count: usize, holds: impl Fn(&Pod) -> bool) {
        let waited = tokio::time::timeout(DEADLINE, self.wait(start, count, holds)).await;
        waited.unwrap_or_else(|_| panic!("not all of {count} pods {start}* got there in {DEADLINE:?}"));
    }

    async fn wait(&self, start: &str, count: usize, holds: impl Fn(&Pod) -> bool) {
        let mut left: Option<HashSet<ObjectRef>> = None;
        loop {
            if let Some(left) = &mut left {
                // Only those that were not so are looked at again.
                left.retain(|key| self.pods.get(key).is_none_or(|pod| !holds(&pod)));
                if left.is_empty() {
                    return;
                }
            } else {
                let all = self.pods.in_namespace("default");
                let of: Vec<_> = all.into_iter().filter(|pod| pod.name_any().starts_with(start)).collect();
                if of.len() >= count {
                    left = Some(of.iter().map(|pod| ObjectRef::of(&**pod)).collect());
                    continue;
                }
            }
            self.changed.notified().await;
        }
    }
}

fn cpu(pod: &Pod) -> String {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get("cpu")).map_or(String::new(), |cpu| cpu.0.clone())
}

fn is_running(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

fn is_applied(pod: &Pod) -> bool {
    read(pod).is_ok_and(|reading| reading.stage == Stage::Applied)
}

fn updater(bed: &Bed, running: &mut JoinSet<()>) {
    let supervisor = Supervisor::default();
    let informers = Informers::new(Namespaces::All, &Metrics::default());
    let updater = Updater::new(Config {
        client: bed.client.clone(),
        informers: informers.clone(),
        targets: Targets::new(bed.client.clone(), TargetConfig::default()),
        options: Options { admission_lease: None, rate_limit: RateLimit::default(), ..Options::default() },
        rules: Rules::v1_36(),
        clock: Clock::default(),
        supervisor: supervisor.clone(),
        metrics: Metrics::default(),
        updater_metrics: UpdaterMetrics::default(),
    });
    running.spawn(informers.run(&bed.client, &supervisor));
    running.spawn(updater.run());
}

/// Creates pods of a workload on all nodes, several at a time.
async fn create(bed: &Bed, workload: &str, count: usize, cpu: &str, annotations: &Value) {
    let uid = bed.workload(workload, count).await;
    let api = bed.pods();
    let pods = (0..count).map(|number| {
        let mut pod = Bed::pod(workload, &uid, &format!("{workload}-{number}"), cpu);
        pod["spec"]["nodeName"] = json!(format!("node-{}", number % NODES));
        pod["metadata"]["annotations"] = annotations.clone();
        let api = api.clone();
        async move { api.create(&PostParams::default(), &object(pod)).await.map(drop) }
    });
    let created: Vec<_> = stream::iter(pods).buffer_unordered(32).collect().await;
    for created in created {
        created.unwrap();
    }
}

/// Virtual nodes with plenty of everything, `node-0` and so on. They run as long as they are held.
async fn start_nodes(bed: &Bed, count: usize) -> Vec<TestNode> {
    let journal = Store::in_memory(&plumb_store::Options::default());
    let mut nodes = Vec::new();
    for index in 0..count {
        let network = Ipv4Addr::new(10, u8::try_from(index).unwrap(), 0, 0);
        let now = k8s_openapi::jiff::Timestamp::now();
        let runtime = Virtual::new(VirtualConfig { now, pod_network: network });
        let mut node = TestNode::new(format!("node-{index}"), Arc::new(runtime), journal.clone());
        let user = format!("system:node:{}", node.name());
        let client = bed.cluster.client_as(&user, ["system:nodes"]);
        let mut config = node.config(client, Rules::v1_36());
        config.setup.max_pods = 100_000;
        for (resource, amount) in [("cpu", "10k"), ("memory", "10Ti")] {
            config.setup.capacity.insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        node.start_agent(config).await;
        nodes.push(node);
    }
    nodes
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let count = size("PLUMB_BENCH_PODS", 1_000);
    let bed = Bed::start().await;
    let _nodes = start_nodes(&bed, NODES).await;
    let mut running = JoinSet::new();
    let watched = Watched::start(&bed, &mut running);
    updater(&bed, &mut running);
    latency(&bed, &watched).await;
    resizes(&bed, &watched, count).await;
    unboosts(&bed, &watched, count).await;
}

/// From a changed recommendation to the patch of the pod, one at a time.
async fn latency(bed: &Bed, watched: &Watched) {
    bed.vpa("one", json!({ "updatePolicy": { "updateMode": "InPlace" } })).await;
    create(bed, "one", 1, "100m", &json!({})).await;
    watched.until("one-", 1, is_running).await;
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let wanted = format!("{}m", 200 + round);
        let began = Instant::now();
        bed.recommend("one", &wanted).await;
        watched.until("one-", 1, |pod| cpu(pod) == wanted).await;
        took.push(began.elapsed());
        watched.until("one-", 1, is_applied).await;
    }
    let (p50, p99) = p50_and_p99(took);
    figure("patch", "from a changed recommendation to the patch of the pod (p50)", p50);
    figure("patch-p99", "the same (p99)", p99);
}

/// Many VPAs with ten pods each, whose recommendations change at once.
async fn resizes(bed: &Bed, watched: &Watched, count: usize) {
    let vpas = count.div_ceil(PODS_EACH);
    for number in 0..vpas {
        let name = format!("many-{number}");
        bed.vpa(&name, json!({ "updatePolicy": { "updateMode": "InPlace" } })).await;
        create(bed, &name, PODS_EACH, "100m", &json!({})).await;
    }
    let count = vpas * PODS_EACH;
    watched.until("many-", count, is_running).await;
    let began = Instant::now();
    let names: Vec<String> = (0..vpas).map(|number| format!("many-{number}")).collect();
    stream::iter(&names).for_each_concurrent(32, |name| bed.recommend(name, "250m")).await;
    watched.until("many-", count, |pod| cpu(pod) == "250m").await;
    let patched = began.elapsed();
    watched.until("many-", count, is_applied).await;
    figure(
        "resizes",
        &format!("{count} resizes, whose recommendations change at once, are patched"),
        patched,
    );
    figure("resizes-applied", "and applied by virtual nodes", began.elapsed());
}

/// Many boosted pods whose boosts are due at once.
async fn unboosts(bed: &Bed, watched: &Watched, count: usize) {
    let boost =
        |seconds: u32| json!({ "cpu": { "type": "Factor", "factor": 3, "durationSeconds": seconds } });
    bed.vpa("boosted", json!({ "updatePolicy": { "updateMode": "Off" }, "startupBoost": boost(86_400) }))
        .await;
    let original = r#"{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{}}"#;
    create(bed, "boosted", count, "300m", &json!({ "vpaCpuStartupBoost/app": original })).await;
    watched.until("boosted-", count, is_running).await;
    // All have been ready for longer than this.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let patch = json!({ "spec": { "startupBoost": boost(0) } });
    bed.vpas().patch("boosted", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    watched.until("boosted-", count, |pod| cpu(pod) == "100m").await;
    let patched = began.elapsed();
    let is_marked = |pod: &Pod| {
        let annotations: Option<&BTreeMap<String, String>> = pod.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key("vpaCpuStartupBoost/app"))
    };
    watched.until("boosted-", count, |pod| !is_marked(pod)).await;
    figure("boosts", &format!("{count} boosts that are due at once are taken back"), patched);
    figure("boosts-ended", "and their annotations removed", began.elapsed());
    one_boost(bed, watched).await;
}

/// How late the boost of one pod ends.
async fn one_boost(bed: &Bed, watched: &Watched) {
    bed.vpa(
        "single",
        json!({ "updatePolicy": { "updateMode": "Off" },
            "startupBoost": { "cpu": { "type": "Factor", "factor": 3, "durationSeconds": 2 } } }),
    )
    .await;
    let original = r#"{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{}}"#;
    create(bed, "single", 1, "300m", &json!({ "vpaCpuStartupBoost/app": original })).await;
    watched.until("single-", 1, is_running).await;
    let ready = Instant::now();
    watched.until("single-", 1, |pod| cpu(pod) == "100m").await;
    let late = ready.elapsed().saturating_sub(Duration::from_secs(2));
    figure("boost", "one boost is taken back after it is due", late);
}
