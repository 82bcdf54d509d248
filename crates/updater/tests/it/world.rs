//! An API server in this process with an updater, in virtual time. The test plays the node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_resize::resource::Declared;
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, object, virtual_clock};
use plumb_updater::state::PodState;
use plumb_updater::{Config, Options, Updater, UpdaterMetrics};
use plumb_vpa::informers::Informers;
use plumb_vpa::install::install;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCondition};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::make::{amounts, list};

/// Both dialects: the first has a node answer Infeasible, the second has the API server answer 403.
pub(crate) fn dialects() -> [Rules; 2] {
    [Rules::kep(), Rules::v1_36()]
}

/// What the node says about a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Applied,
    InProgress,
    Error,
    Deferred,
    Infeasible,
}

type Intercept = Arc<Mutex<Box<dyn FnMut(&mut Uri) -> std::io::Result<()> + Send>>>;

pub(crate) struct World {
    pub(crate) cluster: TestCluster,
    pub(crate) admin: Client,
    pub(crate) clock: Clock,
    pub(crate) metrics: UpdaterMetrics,
    rules: Rules,
    requests: Arc<Mutex<Vec<String>>>,
    intercept: Intercept,
    running: JoinSet<()>,
}

impl World {
    /// A cluster with a node of 4 CPUs and 8 GiB and a deployment `web`, without an updater.
    pub(crate) async fn new(rules: Rules) -> Self {
        let clock = virtual_clock("2026-03-01T09:00:30Z".parse().unwrap());
        let wall = clock.clone();
        let cluster = TestCluster::with(plumb_testkit::Options {
            rules: rules.clone(),
            clock: Arc::new(move || wall.now()),
            ..plumb_testkit::Options::default()
        });
        let admin = cluster.admin();
        install(&admin).await.unwrap();
        let world = Self {
            cluster,
            admin,
            clock,
            metrics: UpdaterMetrics::default(),
            rules,
            requests: Arc::default(),
            intercept: Arc::new(Mutex::new(Box::new(|_| Ok(())))),
            running: JoinSet::new(),
        };
        world.add_node("n", json!({ "kubernetes.io/os": "linux" })).await;
        world.workload("web", 1).await;
        world
    }

    /// The same with an updater, whose VPA `web` has this mode.
    pub(crate) async fn start(rules: Rules, mode: &str) -> Self {
        let mut world = Self::new(rules).await;
        world.vpa(mode, json!({})).await;
        world.start_updater(options());
        world
    }

    async fn create<K>(&self, json: Value) -> K
    where
        K: kube::Resource<DynamicType = ()> + plumb_client::Codec + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.admin.clone());
        api.create(&PostParams::default(), &object(json)).await.unwrap()
    }

    /// A node of 4 CPUs and 8 GiB.
    pub(crate) async fn add_node(&self, name: &str, labels: Value) {
        self.create::<Node>(json!({ "metadata": { "name": name, "labels": labels } })).await;
        self.set_allocatable_of(name, "4", "8Gi").await;
    }

    pub(crate) async fn set_allocatable(&self, cpu: &str, memory: &str) {
        self.set_allocatable_of("n", cpu, memory).await;
    }

    async fn set_allocatable_of(&self, node: &str, cpu: &str, memory: &str) {
        let status = json!({ "status": { "allocatable": { "cpu": cpu, "memory": memory, "pods": "1000" } } });
        let nodes: Api<Node> = Api::all(self.admin.clone());
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// A deployment and its replica set, both of the same name.
    pub(crate) async fn workload(&self, name: &str, replicas: i32) {
        self.workload_selecting(name, name, replicas).await;
    }

    /// The same with pods that have this label `app`.
    pub(crate) async fn workload_selecting(&self, name: &str, app: &str, replicas: i32) {
        let template = json!({
            "metadata": { "labels": { "app": app } },
            "spec": { "containers": [{ "name": "app", "image": "i" }] },
        });
        let spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": app } }, "template": template });
        let deployments: Api<Deployment> = Api::default_namespaced(self.admin.clone());
        let deployment = object(json!({ "metadata": { "name": name }, "spec": spec }));
        let deployment = deployments.create(&PostParams::default(), &deployment).await.unwrap();
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": deployment.uid(), "controller": true,
        }]);
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.admin.clone());
        let set = object(json!({ "metadata": { "name": name, "ownerReferences": owner }, "spec": spec }));
        sets.create(&PostParams::default(), &set).await.unwrap();
    }

    /// Deletes the deployment `web` with all that it owns.
    pub(crate) async fn delete_workload(&self) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for pod in self.names().await {
            self.pods().delete(&pod, &now).await.unwrap();
        }
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.admin.clone());
        sets.delete("web", &now).await.unwrap();
        let deployments: Api<Deployment> = Api::default_namespaced(self.admin.clone());
        deployments.delete("web", &now).await.unwrap();
    }

    async fn scale(&self, replicas: i32) {
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.admin.clone());
        let patch = json!({ "spec": { "replicas": replicas } });
        sets.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) fn vpas(&self) -> Api<VerticalPodAutoscaler> {
        Api::default_namespaced(self.admin.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.admin.clone())
    }

    /// Pods as their node writes them.
    pub(crate) fn node(&self) -> Api<Pod> {
        Api::default_namespaced(self.cluster.client_as("system:node:n", ["system:nodes"]))
    }

    /// Pods as the node of this one writes them.
    async fn node_of(&self, pod: &str) -> Api<Pod> {
        let pod = self.pods().get(pod).await.unwrap();
        let node = pod.spec.unwrap().node_name.unwrap();
        Api::default_namespaced(self.cluster.client_as(&format!("system:node:{node}"), ["system:nodes"]))
    }

    /// The VPA `web`, of the deployment.
    pub(crate) async fn vpa(&self, mode: &str, policy: Value) {
        let mut update = policy;
        update["updateMode"] = json!(mode);
        let vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": "web" },
            "spec": {
                "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "updatePolicy": update,
            },
        });
        self.vpas().create(&PostParams::default(), &object(vpa)).await.unwrap();
    }

    /// Recommends this for the container `app`, with bounds of a tenth around it.
    pub(crate) async fn recommend(&self, target: &str) {
        self.recommend_for("web", target).await;
    }

    pub(crate) async fn recommend_for(&self, vpa: &str, target: &str) {
        let target = amounts(target);
        let share = |percent: i64| Declared::of(|r| target[r].map(|amount| amount * percent / 100));
        let recommended = json!([{
            "containerName": "app", "target": list(target), "lowerBound": list(share(90)), "upperBound": list(share(110)),
        }]);
        let patch = json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
        self.vpas().patch_status(vpa, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// So many running pods `web-0`, `web-1`, … of the replica set `web`, which is configured for as many.
    pub(crate) async fn pods_of(&self, count: i32, requests: &str) {
        self.scale(count).await;
        for number in 0..count {
            self.pod(&format!("web-{number}"), requests).await;
        }
    }

    /// A running pod of the replica set `web`.
    pub(crate) async fn pod(&self, name: &str, requests: &str) {
        self.pod_with(name, requests, |_| {}).await;
    }

    pub(crate) async fn pod_with(&self, name: &str, requests: &str, change: impl FnOnce(&mut Value)) {
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.admin.clone());
        let uid = sets.get("web").await.unwrap().uid();
        let mut pod = json!({
            "metadata": {
                "name": name, "labels": { "app": "web" },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true,
                }],
            },
            "spec": {
                "nodeName": "n",
                "containers": [{ "name": "app", "image": "i", "resources": { "requests": list(amounts(requests)) } }],
            },
        });
        change(&mut pod);
        self.pods().create(&PostParams::default(), &object(pod)).await.unwrap();
        self.run(name).await;
    }

    /// The node runs a pod: it is ready, with the resources of its spec.
    pub(crate) async fn run(&self, name: &str) {
        let now = self.clock.now().to_string();
        let status = json!({ "status": { "phase": "Running", "startTime": now } });
        let node = self.node_of(name).await;
        node.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        self.answer(name, Answer::Applied).await;
    }

    /// The node says where the latest resize of a pod stands.
    pub(crate) async fn answer(&self, name: &str, answer: Answer) {
        let generation = self.pods().get(name).await.unwrap().metadata.generation;
        self.report(name, answer, generation).await;
    }

    /// The same, without a generation, as kubelets of Kubernetes 1.33 do.
    pub(crate) async fn answer_without_generation(&self, name: &str, answer: Answer) {
        self.report(name, answer, None).await;
    }

    async fn report(&self, name: &str, answer: Answer, generation: Option<i64>) {
        let pod = self.pods().get(name).await.unwrap();
        let now = self.clock.now().to_string();
        let spec = pod.spec.as_ref().unwrap();
        let condition = |type_: &str, reason: Option<&str>| {
            let mut condition = json!({
                "type": type_, "status": "True", "lastTransitionTime": now, "observedGeneration": generation,
            });
            if let Some(reason) = reason {
                (condition["reason"], condition["message"]) = (json!(reason), json!("says the node"));
            }
            condition
        };
        let mut conditions = vec![json!({ "type": "Ready", "status": "True", "lastTransitionTime": now })];
        conditions.extend(match answer {
            Answer::Applied => None,
            Answer::InProgress => Some(condition("PodResizeInProgress", None)),
            Answer::Error => Some(condition("PodResizeInProgress", Some("Error"))),
            Answer::Deferred => Some(condition("PodResizePending", Some("Deferred"))),
            Answer::Infeasible => Some(condition("PodResizePending", Some("Infeasible"))),
        });
        let mut status = json!({ "conditions": conditions, "observedGeneration": generation });
        if self.rules.publish_resize_status {
            status["resize"] = match answer {
                Answer::Applied => Value::Null,
                Answer::InProgress | Answer::Error => json!("InProgress"),
                Answer::Deferred => json!("Deferred"),
                Answer::Infeasible => json!("Infeasible"),
            };
        }
        if answer == Answer::Applied {
            status["containerStatuses"] = spec
                .containers
                .iter()
                .map(|container| {
                    let resources = container.resources.clone().unwrap_or_default();
                    json!({
                        "name": container.name, "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                        "started": true, "state": { "running": { "startedAt": now } },
                        "allocatedResources": resources.requests, "resources": resources,
                    })
                })
                .collect();
        }
        let patch = Patch::Merge(json!({ "status": status }));
        self.node_of(name).await.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Starts an updater, which knows only what the API has.
    pub(crate) fn start_updater(&mut self, options: Options) -> Arc<Updater> {
        let (requests, intercept) = (self.requests.clone(), self.intercept.clone());
        let client = self.cluster.intercepted("updater", ["system:masters"], move |uri: &mut Uri| {
            requests.lock().push(uri.path().to_owned());
            (intercept.lock())(uri)
        });
        let supervisor = Supervisor::default();
        let targets = Targets::new(
            client.clone(),
            TargetConfig { clock: self.clock.clone(), jitter: 0.0, ..TargetConfig::default() },
        );
        let informers = Informers::new(Namespaces::All, &Metrics::default());
        let updater = Arc::new(Updater::new(Config {
            client: client.clone(),
            informers: informers.clone(),
            targets,
            options,
            rules: self.rules.clone(),
            clock: self.clock.clone(),
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
            updater_metrics: self.metrics.clone(),
        }));
        self.running.spawn(informers.run(&client, &supervisor));
        self.running.spawn(updater.run());
        updater
    }

    /// Kills the updater wherever it is.
    pub(crate) async fn kill_updater(&mut self) {
        self.running.abort_all();
        while let Some(ended) = self.running.join_next().await {
            assert!(!ended.is_err_and(|error| error.is_panic()), "the updater panicked");
        }
    }

    /// Has an admission policy deny updates of a resource, such as `pods/resize`, for which the expression is false.
    pub(crate) async fn deny(&self, resource: &str, expression: &str, reason: &str) {
        let name = json!({ "name": "deny" });
        let policies: kube::Api<ValidatingAdmissionPolicy> = kube::Api::all(self.admin.clone());
        let policy = json!({ "metadata": name, "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource],
            }] },
            "validations": [{ "expression": expression, "reason": reason }],
        } });
        policies.create(&PostParams::default(), &object(policy)).await.unwrap();
        let bindings: kube::Api<ValidatingAdmissionPolicyBinding> = kube::Api::all(self.admin.clone());
        let spec = json!({ "policyName": "deny", "validationActions": ["Deny"] });
        let binding = object(json!({ "metadata": name, "spec": spec }));
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }

    /// Removes the admission policy again.
    pub(crate) async fn allow(&self) {
        let bindings: kube::Api<ValidatingAdmissionPolicyBinding> = kube::Api::all(self.admin.clone());
        bindings.delete("deny", &DeleteParams::default()).await.unwrap();
    }

    /// Has a function called with the URL of each request of the updater.
    pub(crate) fn intercept(&self, intercept: impl FnMut(&mut Uri) -> std::io::Result<()> + Send + 'static) {
        *self.intercept.lock() = Box::new(intercept);
    }

    /// Lets time go by: everything that can be done is done.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// How many requests of the updater ended with this, such as `/resize`.
    pub(crate) fn count(&self, end: &str) -> usize {
        self.requests.lock().iter().filter(|path| path.ends_with(end)).count()
    }

    /// All requests of the updater for a pod that may have changed it.
    pub(crate) fn writes_to(&self, pod: &str) -> Vec<String> {
        let path = format!("/pods/{pod}");
        self.requests.lock().iter().filter(|request| request.contains(&path)).cloned().collect()
    }

    pub(crate) async fn state(&self, pod: &str) -> PodState {
        PodState::of(&self.pods().get(pod).await.unwrap()).unwrap()
    }

    /// The requests in the spec of the container `app`.
    pub(crate) async fn requests(&self, pod: &str) -> Declared {
        self.state(pod).await.containers[0].desired.requests
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let live = pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        live.map(|pod| pod.name_any()).collect()
    }

    /// Messages of events about an object, by reason, with their counts.
    pub(crate) async fn events(&self, name: &str) -> BTreeMap<String, Vec<(String, i32)>> {
        let events: Api<Event> = Api::default_namespaced(self.admin.clone());
        let only = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut by_reason: BTreeMap<String, Vec<(String, i32)>> = BTreeMap::new();
        for event in events.list(&only).await.unwrap() {
            let message = event.message.unwrap_or_default();
            let reason = event.reason.unwrap_or_default();
            by_reason.entry(reason).or_default().push((message, event.count.unwrap_or(1)));
        }
        by_reason
    }

    pub(crate) async fn condition(&self, type_: &str) -> Option<VerticalPodAutoscalerCondition> {
        let vpa = self.vpas().get("web").await.unwrap();
        let conditions = vpa.status.map(|status| status.conditions).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_.as_str() == type_)
    }
}

/// Options for tests: no admission controller runs.
pub(crate) fn options() -> Options {
    Options { admission_lease: None, ..Options::default() }
}

/// A moment: enough for everything that is not waited for.
pub(crate) const MOMENT: Duration = Duration::from_secs(3);
