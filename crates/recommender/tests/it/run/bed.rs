//! A cluster with a recommender whose runs the test calls for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use http::Uri;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, ObjectRef, Write};
use plumb_recommender::input::live_usage::{LiveUsage, LiveUsageError, Measurement, Measurements};
use plumb_recommender::input::prometheus::Prometheus;
use plumb_recommender::metrics::RecommenderMetrics;
use plumb_recommender::shards::Ownership;
use plumb_recommender::{Config, Options, Recommender, Run, Sample, SharedState, Time};
use plumb_resize::resource::Resource;
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, object};
use plumb_vpa::informers::Informers;
use plumb_vpa::install::install;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa_api::{
    ConditionType, RecommendedContainerResources, VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What containers use, as the test sets it: namespace, pod, container, millicores, bytes.
#[derive(Clone, Default)]
pub(super) struct Usage(Arc<Mutex<Vec<Used>>>);

type Used = (String, String, String, i64, i64);

struct Now(Vec<Used>, Time);

impl LiveUsage for Usage {
    fn name(&self) -> &'static str {
        "test"
    }

    fn read(&self, now: Timestamp) -> BoxFuture<'static, Result<Box<dyn Measurements>, LiveUsageError>> {
        let used = Now(self.0.lock().unwrap().clone(), Time::try_from(now).unwrap());
        async move { Ok(Box::new(used) as Box<dyn Measurements>) }.boxed()
    }
}

impl Measurements for Now {
    fn visit(&self, visit: &mut dyn FnMut(Measurement<'_>)) -> Result<(), LiveUsageError> {
        for (namespace, pod, container, milli, bytes) in &self.0 {
            for (resource, usage) in [(Resource::Cpu, *milli), (Resource::Memory, *bytes)] {
                let sample = Ok(Sample { at: self.1, resource, usage });
                visit(Measurement { namespace, pod, container, sample });
            }
        }
        Ok(())
    }
}

/// A time that the test sets, from 2026-01-01T00:00:00Z on.
#[derive(Clone)]
pub(super) struct TestTime {
    start: Instant,
    ahead: Arc<Mutex<Duration>>,
}

impl TestTime {
    pub(super) fn advance(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }

    pub(super) fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + SignedDuration::try_from(*self.ahead.lock().unwrap()).unwrap()
    }

    fn clock(&self) -> Clock {
        let (wall, monotonic) = (self.clone(), self.clone());
        Clock::with_wall(move || wall.now())
            .with_monotonic(move || monotonic.start + *monotonic.ahead.lock().unwrap())
    }
}

/// What a test may set up otherwise.
pub(super) struct Setup {
    pub(super) options: Options,
    /// Is called with each request of the recommender.
    pub(super) intercept: Arc<dyn Fn(&mut Uri) + Send + Sync>,
    /// Which VPAs it is responsible for.
    pub(super) ownership: Ownership,
    /// The time, if it is another than the bed's.
    pub(super) clock: Option<Clock>,
    pub(super) history: Option<Prometheus>,
    /// Where usage comes from, if not from the bed.
    pub(super) usage: Option<UsageOf>,
}

/// Makes a source of usage.
type UsageOf = Box<dyn FnOnce(&Informers, &Targets) -> Arc<dyn LiveUsage>>;

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: Options::default(),
            intercept: Arc::new(|_| {}),
            ownership: Ownership::everything(),
            clock: None,
            history: None,
            usage: None,
        }
    }
}

pub(super) struct Bed {
    pub(super) cluster: TestCluster,
    pub(super) client: Client,
    pub(super) time: TestTime,
    pub(super) usage: Usage,
}

/// A recommender that runs, until it is dropped.
pub(super) struct Running {
    pub(super) run: Run,
    pub(super) state: SharedState,
    informers: Informers,
    client: Client,
    _tasks: JoinSet<()>,
}

impl Bed {
    pub(super) async fn new() -> Self {
        let cluster = TestCluster::start();
        let client = cluster.admin();
        install(&client).await.unwrap();
        let time = TestTime { start: Instant::now(), ahead: Arc::default() };
        Self { cluster, client, time, usage: Usage::default() }
    }

    /// A bed with a Deployment `web`, a running pod of it, and a VPA.
    pub(super) async fn with_web() -> Self {
        let bed = Self::new().await;
        bed.deployment("web").await;
        bed.pod("web-1", "web").await;
        bed.vpa("web", json!({})).await;
        bed
    }

    pub(super) async fn recommender(&self) -> Running {
        self.recommender_with(Setup::default()).await
    }

    /// Starts a recommender, once there is a VPA.
    pub(super) async fn recommender_with(&self, setup: Setup) -> Running {
        let (recommender, informers, running) = self.prepare(setup);
        let state = recommender.state();
        let run = recommender.start().await.unwrap();
        Running { run, state, informers, client: self.client.clone(), _tasks: running }
    }

    /// A recommender that does not run yet, with informers that do.
    pub(super) fn prepare(&self, setup: Setup) -> (Recommender, Informers, JoinSet<()>) {
        let Setup { options, intercept, ownership, clock, history, usage } = setup;
        let clock = clock.unwrap_or_else(|| self.time.clock());
        let client = self.cluster.intercepted("admin", ["system:masters"], move |uri| intercept(uri));
        let informers = Informers::new(options.namespaces.clone(), &Metrics::default());
        let supervisor = Supervisor::default();
        let targets = TargetConfig { clock: clock.clone(), ..TargetConfig::default() };
        let targets = Targets::new(client.clone(), targets);
        let usage = match usage {
            Some(usage) => usage(&informers, &targets),
            None => Arc::new(self.usage.clone()),
        };
        let recommender = Recommender::new(Config {
            client: client.clone(),
            options,
            informers: informers.clone(),
            targets,
            usage,
            history,
            clock,
            supervisor: supervisor.clone(),
            ownership,
            metrics: RecommenderMetrics::default(),
        });
        let mut running = JoinSet::new();
        running.spawn(informers.run(&client, &supervisor));
        (recommender, informers, running)
    }

    pub(super) fn vpas(&self) -> Api<VerticalPodAutoscaler> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) fn checkpoints(&self) -> Api<VerticalPodAutoscalerCheckpoint> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) async fn namespace(&self, name: &str) {
        let namespace: Namespace = object(json!({ "metadata": { "name": name } }));
        Api::<Namespace>::all(self.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    pub(super) async fn deployment(&self, name: &str) {
        self.deployment_in("default", name).await;
    }

    pub(super) async fn deployment_in(&self, namespace: &str, name: &str) {
        let deployment: Deployment = object(json!({
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "app", "image": "plumb/load" }] },
                },
            },
        }));
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &deployment).await.unwrap();
    }

    /// Creates a running pod with a container `app`, which uses 100m and 100 MB.
    pub(super) async fn pod(&self, name: &str, app: &str) {
        self.pod_in("default", name, app).await;
    }

    pub(super) async fn pod_in(&self, namespace: &str, name: &str, app: &str) {
        let resources = json!({ "requests": { "cpu": "100m", "memory": "400Mi" } });
        let spec =
            json!({ "containers": [{ "name": "app", "image": "plumb/load", "resources": resources }] });
        self.pod_with(namespace, name, app, spec, "Running").await;
        self.uses_in(namespace, name, "app", 100, 100_000_000);
    }

    pub(super) async fn pod_with(&self, namespace: &str, name: &str, app: &str, spec: Value, phase: &str) {
        let pod: Pod = object(json!({
            "metadata": { "name": name, "labels": { "app": app, "pod-template-hash": "1" } }, "spec": spec,
        }));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &pod).await.unwrap();
        self.pod_status(namespace, name, json!({ "phase": phase })).await;
    }

    pub(super) async fn pod_status(&self, namespace: &str, name: &str, status: Value) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates a VPA for the Deployment of the same name.
    pub(super) async fn vpa(&self, name: &str, spec: Value) -> VerticalPodAutoscaler {
        self.vpa_in("default", name, spec).await
    }

    pub(super) async fn vpa_in(&self, namespace: &str, name: &str, mut spec: Value) -> VerticalPodAutoscaler {
        if spec.get("targetRef").is_none() {
            spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
        }
        let vpa: VerticalPodAutoscaler = object(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": name }, "spec": spec,
        }));
        let api: Api<VerticalPodAutoscaler> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &vpa).await.unwrap()
    }

    pub(super) async fn edit(&self, name: &str, patch: Value) -> VerticalPodAutoscaler {
        self.vpas().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(super) fn uses(&self, pod: &str, container: &str, milli: i64, bytes: i64) {
        self.uses_in("default", pod, container, milli, bytes);
    }

    pub(super) fn uses_in(&self, namespace: &str, pod: &str, container: &str, milli: i64, bytes: i64) {
        let mut usage = self.usage.0.lock().unwrap();
        usage.retain(|(of, name, named, ..)| of != namespace || name != pod || named != container);
        usage.push((namespace.to_owned(), pod.to_owned(), container.to_owned(), milli, bytes));
    }

    /// Nothing is measured any more.
    pub(super) fn uses_nothing(&self) {
        self.usage.0.lock().unwrap().clear();
    }

    pub(super) async fn get(&self, name: &str) -> VerticalPodAutoscaler {
        self.vpas().get(name).await.unwrap()
    }

    /// The targets by container, as `cpu/memory`.
    pub(super) async fn targets(&self, name: &str) -> BTreeMap<String, String> {
        targets(&self.get(name).await)
    }

    /// The names of all checkpoints of the namespace.
    pub(super) async fn checkpoint_names(&self) -> Vec<String> {
        let list = self.checkpoints().list(&ListParams::default()).await.unwrap();
        list.items.iter().map(kube::ResourceExt::name_any).collect()
    }
}

impl Running {
    /// Runs once, after a minute, with everything that has changed.
    pub(super) async fn minute(&mut self, bed: &Bed) {
        bed.time.advance(Duration::from_mins(1));
        self.once().await;
    }

    /// Runs once with everything that has changed.
    pub(super) async fn once(&mut self) {
        self.informers.vpas.catch_up(self.api()).await.unwrap();
        self.informers.pods.catch_up(plumb_client::Api::<Pod>::all(self.client.clone())).await.unwrap();
        self.run.once().await;
        // The recommender observes its own writes, as it does within an interval.
        self.informers.vpas.catch_up(self.api()).await.unwrap();
    }

    pub(super) async fn delete_pod(&self, bed: &Bed, name: &str) {
        let uid = bed.pods().get(name).await.unwrap().metadata.uid.unwrap();
        bed.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
        self.informers
            .pods
            .wait_for_write(&Write::deleted(ObjectRef::namespaced("default", name), uid))
            .await;
    }

    pub(super) async fn delete_vpa(&self, bed: &Bed, name: &str) {
        let uid = bed.get(name).await.metadata.uid.unwrap();
        bed.vpas().delete(name, &DeleteParams::default()).await.unwrap();
        self.informers
            .vpas
            .wait_for_write(&Write::deleted(ObjectRef::namespaced("default", name), uid))
            .await;
    }

    fn api(&self) -> plumb_client::Api<VerticalPodAutoscaler> {
        plumb_client::Api::all(self.client.clone())
    }
}

pub(super) fn recommendations(vpa: &VerticalPodAutoscaler) -> &[RecommendedContainerResources] {
    let recommendation = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    recommendation.map_or(&[], |recommendation| &recommendation.container_recommendations)
}

pub(super) fn targets(vpa: &VerticalPodAutoscaler) -> BTreeMap<String, String> {
    let text = |of: &RecommendedContainerResources| {
        let amount = |resource| of.target.get(resource).map_or("-", |quantity| &*quantity.0).to_owned();
        (of.container_name.clone(), format!("{}/{}", amount("cpu"), amount("memory")))
    };
    recommendations(vpa).iter().map(text).collect()
}

/// The conditions as `Type=Status`, in the order of the object.
pub(super) fn conditions(vpa: &VerticalPodAutoscaler) -> Vec<String> {
    let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    conditions.map(|of| format!("{}={}", of.type_.as_str(), of.status.as_str())).collect()
}

pub(super) fn message(vpa: &VerticalPodAutoscaler, type_: &ConditionType) -> String {
    let condition = vpa.status.as_ref().and_then(|status| status.condition(type_));
    condition.and_then(|condition| condition.message.clone()).unwrap_or_default()
}
