//! An API server with the native workload controllers, our own, and nodes that do what a test says.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use plumb_client::{Api, Codec};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Reflector, WatchConfig, Watchable};
use plumb_controllers::{GROUPS, WATCHER, user_of};
use plumb_resize::rules::Rules;
use plumb_rollout::engine::RolloutStatus;
use plumb_rollout::workloads::{self, AdmissionContext, STATUS_ANNOTATION, WorkloadKind};
use plumb_rollout::{Config, Rollout};
use plumb_supervise::Supervisor;
use plumb_testkit::{ManualClock, TestCluster, object};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// What a node does about the resizes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Infeasible,
    Deferred,
}

/// The answers of nodes, by the cpu that a pod of this name (or of any name) requests.
pub(super) type Answers = Arc<Mutex<BTreeMap<(String, String), Answer>>>;

type Intercept = dyn Fn(&mut http::Uri) -> io::Result<()> + Send + Sync;

/// A cluster.
pub(super) struct Cluster {
    pub(super) client: Client,
    test: TestCluster,
    pub(super) answers: Answers,
    pub(super) clock: ManualClock,
    /// Called before each request that our controllers write with.
    pub(super) intercept: Arc<Intercept>,
    running: JoinSet<()>,
    rollout: Option<JoinSet<()>>,
}

pub(super) trait Namespaced:
    Watchable
    + Codec
    + Serialize
    + DeserializeOwned
    + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
{
}
impl<K> Namespaced for K where
    K: Watchable
        + Codec
        + Serialize
        + DeserializeOwned
        + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
{
}

impl Cluster {
    /// A cluster of so many nodes.
    pub(super) async fn start(nodes: usize) -> Self {
        let test = TestCluster::start();
        let client = test.admin();
        let watcher = test.client(WATCHER);
        let supervisor = Supervisor::default();
        let mut running = JoinSet::new();
        let writer = |name: &str| test.client_as(&user_of(name), GROUPS);
        let manager =
            plumb_controllers::workloads(Clock::default(), supervisor.clone(), Metrics::default(), writer);
        running.spawn(manager.run(watcher));
        let all: Api<Node> = Api::all(client.clone());
        let allocatable = json!({ "cpu": "64", "memory": "64Gi", "pods": "1000" });
        for number in 0..nodes {
            let node = object(json!({
                "metadata": { "name": format!("node-{number}") },
                "status": { "allocatable": allocatable, "capacity": allocatable,
                    "conditions": [{ "type": "Ready", "status": "True" }] },
            }));
            all.create(&PostParams::default(), &node).await.unwrap();
            // The API server taints new nodes, and no controller of nodes runs here.
            let ready = Patch::Merge(json!({ "spec": { "taints": null } }));
            all.patch(&format!("node-{number}"), &PatchParams::default(), &ready).await.unwrap();
        }
        plumb_rollout::install::install(&client).await.unwrap();
        let answers = Answers::default();
        let agents =
            (0..nodes).map(|number| test.client_as(&format!("system:node:node-{number}"), ["system:nodes"]));
        let agents = agents.map(Api::default_namespaced).collect();
        running.spawn(be_nodes(client.clone(), agents, answers.clone()));
        let (clock, intercept) = (ManualClock::default(), Arc::new(|_: &mut http::Uri| Ok(())));
        Self { client, test, answers, clock, intercept, running, rollout: None }
    }

    /// Starts our controller, with the gate on or off. One that ran before is stopped.
    pub(super) fn roll_out(&mut self, enabled: bool) {
        let mut running = JoinSet::new();
        running.spawn(Rollout::new(self.config(enabled)).run());
        self.rollout = Some(running);
    }

    /// What our controllers run with, as the user that they are in a cluster.
    pub(super) fn config(&self, enabled: bool) -> Config {
        let (intercept, user) = (self.intercept.clone(), user_of(plumb_roles::ROLLOUT.account));
        Config {
            write: self.test.intercepted(&user, GROUPS, move |uri: &mut http::Uri| intercept(uri)),
            clock: self.clock.clock(),
            ..Config::new(self.test.client_as(&user, GROUPS), Rules::v1_36(), enabled)
        }
    }

    /// A client of an API server that does not serve `pods/resize`. Its user may do anything: a request of a user without
    /// rights is forbidden, whatever the server serves.
    pub(super) fn without_resize(&self) -> Client {
        self.test.intercepted("admin", ["system:masters"], |uri: &mut http::Uri| {
            if uri.path().ends_with("/resize") {
                *uri = uri.to_string().replace("/resize", "/unserved").parse().unwrap();
            }
            Ok::<_, io::Error>(())
        })
    }

    /// A client that our controllers watch with, and the paths of its requests.
    pub(super) fn noting(&self) -> (Client, Arc<Mutex<Vec<String>>>) {
        let (paths, user) = (Arc::<Mutex<Vec<String>>>::default(), user_of(plumb_roles::ROLLOUT.account));
        let noted = paths.clone();
        let client = self.test.intercepted(&user, GROUPS, move |uri: &mut http::Uri| {
            noted.lock().unwrap().push(uri.path().to_owned());
            Ok(())
        });
        (client, paths)
    }

    /// Stops our controller, in the middle of whatever it does.
    pub(super) fn crash(&mut self) {
        self.rollout = None;
    }

    pub(super) fn api<K: Namespaced>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) async fn create<K: Namespaced>(&self, json: Value) -> K {
        self.api().create(&PostParams::default(), &object(json)).await.unwrap()
    }

    /// Changes a workload as a user does whose writes pass our webhook.
    pub(super) async fn edit<K: Namespaced>(&self, name: &str, patch: Value) -> K {
        let kind = WorkloadKind::of_resource(&K::group(&()), &K::plural(&())).unwrap();
        edit(&self.api::<K>(), kind, name, patch).await
    }

    pub(super) async fn merge<K: Namespaced>(&self, name: &str, patch: Value) -> K {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(super) async fn until<K: Namespaced>(&self, name: &str, wanted: impl Fn(&K) -> bool) -> K {
        plumb_testkit::until(&self.api::<K>(), name, wanted).await
    }

    /// Waits until all objects of a kind are as they should be.
    pub(super) async fn until_all<K: Namespaced>(
        &self,
        wanted: impl Fn(&BTreeMap<String, K>) -> bool,
    ) -> BTreeMap<String, K> {
        plumb_testkit::until_all(&self.api::<K>(), wanted).await
    }

    pub(super) async fn pods(&self) -> BTreeMap<String, Pod> {
        let list = self.api::<Pod>().list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|pod| (pod.metadata.name.clone().unwrap(), pod)).collect()
    }

    /// Changes a pod in a way that means nothing, so that nodes and controllers look at it.
    pub(super) async fn touch(&self, pod: &str) {
        let now = Timestamp::now().to_string();
        self.merge::<Pod>(pod, json!({ "metadata": { "annotations": { "test/touched": now } } })).await;
    }

    /// Resizes the container of a pod, as another client does.
    pub(super) async fn resize(&self, pod: &str, resources: Value) {
        let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": resources }] } });
        let patch = Patch::Strategic(patch);
        self.api::<Pod>().patch_resize(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes the status of a pod, as its node does.
    pub(super) async fn write_status(&self, pod: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.api::<Pod>().patch_status(pod, &params, &patch).await.unwrap();
    }

    /// A node answers a resize of a pod to so much cpu.
    pub(super) fn answer(&self, pod: &str, cpu: &str, answer: Answer) {
        self.answers.lock().unwrap().insert((pod.to_owned(), cpu.to_owned()), answer);
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }
}

/// Changes a workload as a user does whose writes pass our webhook.
pub(super) async fn edit<K>(api: &Api<K>, kind: WorkloadKind, name: &str, patch: Value) -> K
where
    K: Codec + Resource + Serialize + DeserializeOwned,
{
    let rules = Rules::v1_36();
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    loop {
        let old = api.get(name).await.unwrap();
        let mut versioned = patch.clone();
        versioned["metadata"]["resourceVersion"] = json!(old.meta().resource_version);
        // A webhook is sent what the API server has merged and defaulted.
        let new = match api.patch(name, &dry_run, &Patch::Merge(versioned)).await {
            Ok(new) => serde_json::to_value(new).unwrap(),
            Err(kube::Error::Api(status)) if status.is_conflict() => continue,
            Err(error) => panic!("{error}"),
        };
        let old = serde_json::to_value(old).unwrap();
        let context = AdmissionContext { enabled: true, policy: None, rules: &rules, now: Timestamp::now() };
        let admitted = workloads::admit(kind, &old, &new, &context);
        let object: K = object(admitted.object.unwrap_or(new));
        match api.replace(name, &PostParams::default(), &object).await {
            Ok(stored) => return stored,
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The cpu that the first container of a pod requests.
pub(super) fn cpu(pod: &Pod) -> String {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
    resources.requests.as_ref().unwrap()["cpu"].0.clone()
}

/// The cpu that a pod has actually.
pub(super) fn actual_cpu(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(status.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.clone())
}

/// Whether the node of a pod has said that a resize is deferred or infeasible.
pub(super) fn is_resize_pending(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "PodResizePending")
}

/// What is reported about a rollout.
pub(super) fn status(workload: &impl Resource) -> Option<RolloutStatus> {
    let text = workload.meta().annotations.as_ref()?.get(STATUS_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

/// Whether a Deployment is rolled out, as `kubectl rollout status` has it.
pub(super) fn rolled_out(deployment: &Deployment) -> bool {
    let (status, spec) = (deployment.status.clone().unwrap_or_default(), deployment.spec.as_ref().unwrap());
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == spec.replicas.unwrap()
        && status.replicas == status.updated_replicas
        && status.available_replicas == status.updated_replicas
}

/// Assigns pods to nodes, runs them, and applies their resizes.
async fn be_nodes(client: Client, agents: Vec<Api<Pod>>, answers: Answers) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut events = std::pin::pin!(Reflector::new(&pods, WatchConfig::default()).into_stream());
    let mut next = 0;
    while let Some(event) = events.next().await {
        for pod in event.into_objects() {
            act(&pods, &pod, &agents, &mut next, &answers).await;
        }
    }
}

async fn act(pods: &Api<Pod>, pod: &Pod, agents: &[Api<Pod>], next: &mut usize, answers: &Answers) {
    let name = pod.metadata.name.clone().unwrap();
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(&name, &kube::api::DeleteParams::default().grace_period(0)).await;
        return;
    }
    let spec = pod.spec.as_ref().unwrap();
    let Some(node) = &spec.node_name else {
        let node = format!("node-{}", *next % agents.len());
        *next += 1;
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "kind": "Node", "name": node } });
        let _ =
            pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding).await;
        return;
    };
    let agent = &agents[node.trim_start_matches("node-").parse::<usize>().unwrap()];
    let status = pod.status.clone().unwrap_or_default();
    let answer = {
        let answers = answers.lock().unwrap();
        let of = |pod: &str, cpu: String| answers.get(&(pod.to_owned(), cpu)).copied();
        let resized = actual_cpu(pod).is_some_and(|actual| actual != cpu(pod));
        of(&name, cpu(pod)).or_else(|| of("*", cpu(pod))).filter(|_| resized)
    };
    let pending = is_resize_pending(pod);
    let observed = status.observed_generation == pod.metadata.generation;
    if observed && status.phase.as_deref() == Some("Running") && pending == answer.is_some() {
        return;
    }
    let generation = pod.metadata.generation;
    let condition = |type_: &str, reason: &str| {
        json!({ "type": type_, "status": "True", "reason": reason, "message": format!("because of {reason}"),
            "observedGeneration": generation, "lastTransitionTime": Timestamp::now().to_string() })
    };
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let runs = status.phase.is_some_and(|phase| phase == "Running");
    let patch = if let Some(answer) = answer.filter(|_| runs) {
        let reason = if answer == Answer::Infeasible { "Infeasible" } else { "Deferred" };
        json!({ "status": { "observedGeneration": generation,
            "conditions": [ready, condition("PodResizePending", reason)] } })
    } else {
        let containers = spec.containers.iter().map(|container| {
            let resources = container.resources.clone().unwrap_or_default();
            json!({ "name": container.name, "image": container.image, "imageID": "x", "ready": true,
                "restartCount": 0, "started": true, "containerID": format!("x://{name}"),
                "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
                "allocatedResources": resources.requests, "resources": resources })
        });
        let statuses: Vec<Value> = containers.collect();
        json!({ "status": { "phase": "Running", "observedGeneration": generation, "conditions": [ready],
            "containerStatuses": statuses } })
    };
    // A pod may be gone meanwhile.
    if let Err(error) = agent.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        println!("the status of {name}: {error}");
    }
}
