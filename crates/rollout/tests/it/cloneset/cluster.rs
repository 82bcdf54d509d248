//! A cluster with the CloneSet controller, and with nodes that write statuses as a node agent would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use plumb_client::{Api, Codec};
use plumb_controller_runtime::{Reflector, WatchConfig, Watchable};
use plumb_resize::rules::Rules;
use plumb_rollout::api::cloneset::{CloneSet, CloneSetStatus};
use plumb_rollout::api::crds;
use plumb_rollout::cloneset::keys;
use plumb_rollout::install::install_cloneset;
use plumb_rollout::{Config, Rollout};
use plumb_testkit::{ManualClock, Options, TestCluster, object, until, until_all};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// What a node answers to the resources in a pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Apply,
    Defer,
    Infeasible,
    /// It applies them, and a pod with 200m is not ready.
    Unready,
    /// It applies them, and containers that it restarts are not ready.
    Crash,
    /// None: the node does not report anything new.
    Silence,
}

type Answers = Arc<Mutex<BTreeMap<String, Answer>>>;

/// How the cluster is set up.
pub(super) struct Setup {
    pub(super) vertical: bool,
    /// Called with the path of each request that the controller writes with.
    pub(super) intercept: Arc<dyn Fn(&mut http::Uri) + Send + Sync>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { vertical: true, intercept: Arc::new(|_| {}) }
    }
}

/// A cluster with the controller.
pub(super) struct Cluster {
    pub(super) admin: Client,
    pub(super) clock: ManualClock,
    api_server: TestCluster,
    answers: Answers,
    setup: Setup,
    running: JoinSet<()>,
    _nodes: JoinSet<()>,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub(super) async fn with(setup: Setup) -> Self {
        let mut cluster = Self::without_controller(setup).await;
        cluster.start_controller();
        cluster
    }

    /// The same, before the controller starts.
    pub(super) async fn without_controller(setup: Setup) -> Self {
        let cluster = TestCluster::with(Options { rules: Rules::v1_36(), ..Options::default() });
        let admin = cluster.admin();
        install_cloneset(&admin).await.unwrap();
        let definitions = Api::all(admin.clone());
        for crd in crds::all() {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        for name in ["n0", "n1", "n2"] {
            let allocatable = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
            let node: Node = object(json!({
                "metadata": { "name": name, "labels": { "kubernetes.io/os": "linux" } },
                "status": { "allocatable": allocatable, "capacity": allocatable },
            }));
            Api::all(admin.clone()).create(&PostParams::default(), &node).await.unwrap();
        }
        let answers = Answers::default();
        let clock = ManualClock::default();
        let mut nodes = JoinSet::new();
        let agents = ["n0", "n1", "n2"].map(|name| {
            (name.to_owned(), cluster.client_as(&format!("system:node:{name}"), ["system:nodes"]))
        });
        nodes.spawn(run_nodes(admin.clone(), agents.into(), answers.clone(), clock.clone()));
        Self { admin, clock, api_server: cluster, answers, setup, running: JoinSet::new(), _nodes: nodes }
    }

    pub(super) fn start_controller(&mut self) {
        let intercept = self.setup.intercept.clone();
        let write = self.api_server.intercepted("admin", ["system:masters"], move |uri| intercept(uri));
        let config = Config {
            write,
            clock: self.clock.clock(),
            ..Config::new(self.admin.clone(), Rules::v1_36(), self.setup.vertical)
        };
        self.running.spawn(Rollout::new(config).run());
    }

    /// Kills the controller wherever it is.
    pub(super) async fn stop_controller(&mut self) {
        self.running.shutdown().await;
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.admin.clone())
    }

    pub(super) fn sets(&self) -> Api<CloneSet> {
        Api::default_namespaced(self.admin.clone())
    }

    /// What a node answers about a pod from now on; "*" is all others.
    pub(super) async fn answer(&self, pod: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(pod.to_owned(), answer);
        // An event makes the nodes look again.
        let now = Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { "test/looked-at": now } } });
        for pod in self.all_pods().await {
            let _ = self.pods().patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        }
    }

    pub(super) async fn all_pods(&self) -> Vec<Pod> {
        self.pods().list(&kube::api::ListParams::default()).await.unwrap().items
    }

    pub(super) async fn create(&self, spec: Value) -> CloneSet {
        let set: CloneSet = object(json!({ "metadata": { "name": "web" }, "spec": spec }));
        self.sets().create(&PostParams::default(), &set).await.unwrap()
    }

    /// Creates a set and waits until all its pods are available.
    pub(super) async fn settled(&self, replicas: i32, spec: Value) -> BTreeMap<String, Pod> {
        self.create(spec).await;
        self.until_settled(replicas).await;
        self.until_pods(|pods| {
            pods.len() == usize::try_from(replicas).unwrap() && pods.values().all(is_normal)
        })
        .await
    }

    pub(super) async fn merge(&self, patch: Value) -> CloneSet {
        self.sets().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(super) async fn merge_pod(&self, name: &str, patch: Value) {
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn until_set(&self, wanted: impl Fn(&CloneSetStatus) -> bool) -> CloneSet {
        until(self.sets(), "web", |set: &CloneSet| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation && wanted(&status)
        })
        .await
    }

    /// Waits until all pods are updated and available.
    pub(super) async fn until_settled(&self, replicas: i32) -> CloneSet {
        self.until_set(|status| {
            status.current_revision == status.update_revision
                && [status.replicas, status.updated_replicas, status.updated_available_replicas]
                    == [replicas; 3]
        })
        .await
    }

    pub(super) async fn until_pods(
        &self,
        wanted: impl Fn(&BTreeMap<String, Pod>) -> bool,
    ) -> BTreeMap<String, Pod> {
        until_all(self.pods(), wanted).await
    }

    pub(super) async fn create_object<K: Watchable + Codec + serde::de::DeserializeOwned>(
        &self,
        api: Api<K>,
        json: Value,
    ) {
        api.create(&PostParams::default(), &object(json)).await.unwrap();
    }
}

/// A set of pods with one container.
pub(super) fn spec(replicas: i32, image: &str, cpu: &str, strategy: Value) -> Value {
    json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": "web" } },
        "template": template(image, cpu),
        "updateStrategy": strategy,
    })
}

pub(super) fn template(image: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{
            "name": "c", "image": image,
            "resources": { "requests": { "cpu": cpu, "memory": "64Mi" } },
        }] },
    })
}

/// The patch that changes the container of the template. Lists are replaced.
pub(super) fn change(image: &str, cpu: &str) -> Value {
    json!({ "spec": { "template": template(image, cpu) } })
}

pub(super) fn in_place() -> Value {
    json!({ "type": "InPlaceIfPossible", "maxUnavailable": 1 })
}

pub(super) fn label<'a>(pod: &'a Pod, key: &str) -> &'a str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

pub(super) fn is_normal(pod: &Pod) -> bool {
    label(pod, keys::STATE) == "Normal"
}

pub(super) fn cpu(pod: &Pod) -> String {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone()
}

pub(super) fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

pub(super) fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count
}

pub(super) fn uids(pods: &BTreeMap<String, Pod>) -> BTreeSet<String> {
    pods.values().map(|pod| pod.metadata.uid.clone().unwrap()).collect()
}

/// Binds pods and writes their statuses.
async fn run_nodes(client: Client, agents: BTreeMap<String, Client>, answers: Answers, clock: ManualClock) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut events = std::pin::pin!(Reflector::new(pods.clone(), WatchConfig::default()).into_stream());
    let mut bound = 0;
    while let Some(event) = events.next().await {
        for pod in event.into_objects() {
            if pod.metadata.deletion_timestamp.is_some() {
                let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
                continue;
            }
            if pod.spec.as_ref().unwrap().node_name.is_none() {
                let target = json!({ "apiVersion": "v1", "kind": "Node", "name": format!("n{}", bound % 3) });
                let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod.name_any() }, "target": target });
                let made: kube::Result<Value> = pods
                    .create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding)
                    .await;
                // A pod that is bound already, of which an older event was queued, takes no node.
                bound += usize::from(made.is_ok());
                report(made);
                continue;
            }
            let answer = {
                let answers = answers.lock().unwrap();
                answers.get(&pod.name_any()).or(answers.get("*")).copied().unwrap_or(Answer::Apply)
            };
            if answer == Answer::Silence {
                continue;
            }
            let status = status(&pod, answer, Timestamp::now() + clock.ahead());
            if status == serde_json::to_value(&pod.status).unwrap() {
                continue;
            }
            let patch =
                json!({ "metadata": { "resourceVersion": pod.metadata.resource_version }, "status": status });
            // If another writer was faster, its write is an event.
            let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap_or_default();
            let agent: Api<Pod> = Api::default_namespaced(agents[&node].clone());
            report(agent.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await);
        }
    }
}

/// Prints errors other than conflicts: the events that follow make right what they left.
fn report<T>(written: kube::Result<T>) {
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => eprintln!("a node cannot write: {error}"),
        Ok(_) => {}
    }
}

/// The status that a node writes.
fn status(pod: &Pod, answer: Answer, now: Timestamp) -> Value {
    let spec = pod.spec.as_ref().unwrap();
    let mut status = serde_json::to_value(pod.status.clone().unwrap_or_default()).unwrap();
    let old: Vec<Value> = status["containerStatuses"].as_array().cloned().unwrap_or_default();
    let now = Timestamp::from_second(now.as_second()).unwrap().to_string();
    let mut applied = true;
    let mut all_ready = true;
    let containers = spec.containers.iter().map(|container| {
        let before = old.iter().find(|status| status["name"] == json!(container.name));
        let image = container.image.clone().unwrap_or_default();
        let resources = serde_json::to_value(container.resources.clone().unwrap_or_default()).unwrap();
        let mut status = before.cloned().unwrap_or_else(|| {
            json!({
                "name": container.name, "image": image, "imageID": format!("id-{image}"), "containerID": "fake://1",
                "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": now } },
                "allocatedResources": resources["requests"], "resources": resources,
            })
        });
        let resized = status["resources"] != resources;
        let policies = container.resize_policy.iter().flatten();
        let restarts = policies.into_iter().any(|policy| policy.restart_policy == "RestartContainer");
        let mut restart = status["image"] != json!(image);
        if resized && matches!(answer, Answer::Apply | Answer::Unready | Answer::Crash) {
            status["resources"] = resources.clone();
            status["allocatedResources"] = resources["requests"].clone();
            restart |= restarts;
        } else {
            applied &= !resized;
        }
        if restart {
            status["image"] = json!(image);
            status["imageID"] = json!(format!("id-{image}"));
            status["restartCount"] = json!(status["restartCount"].as_i64().unwrap_or(0) + 1);
            status["state"] = json!({ "running": { "startedAt": now } });
        }
        let has_crashed = answer == Answer::Crash && (restart || status["ready"] == false);
        status["ready"] = json!(!has_crashed);
        all_ready &= !has_crashed;
        status
    });
    status["containerStatuses"] = containers.collect();
    status["phase"] = json!("Running");
    let generation = pod.metadata.generation;
    status["observedGeneration"] = json!(generation);
    let mut conditions: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "PodResizePending");
    let reason = match answer {
        Answer::Defer => Some("Deferred"),
        Answer::Infeasible => Some("Infeasible"),
        Answer::Apply | Answer::Unready | Answer::Crash | Answer::Silence => None,
    };
    if let Some(reason) = reason.filter(|_| !applied) {
        conditions.push(json!({ "type": "PodResizePending", "status": "True", "reason": reason,
            "message": "Node didn't have enough resource", "observedGeneration": generation, "lastTransitionTime": now }));
    }
    let gates = spec.readiness_gates.iter().flatten().all(|gate| {
        conditions.iter().any(|one| one["type"] == json!(gate.condition_type) && one["status"] == "True")
    });
    let runs = all_ready && (answer != Answer::Unready || cpu(pod) != "200m");
    for (type_, is) in
        [("PodScheduled", true), ("Initialized", true), ("ContainersReady", runs), ("Ready", gates && runs)]
    {
        let is = if is { "True" } else { "False" };
        match conditions.iter_mut().find(|condition| condition["type"] == type_) {
            Some(condition) if condition["status"] == is => {}
            Some(condition) => *condition = json!({ "type": type_, "status": is, "lastTransitionTime": now }),
            None => conditions.push(json!({ "type": type_, "status": is, "lastTransitionTime": now })),
        }
    }
    status["conditions"] = json!(conditions);
    status
}
