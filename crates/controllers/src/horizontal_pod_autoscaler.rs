//! The controller of `HorizontalPodAutoscalers`: scales workloads by their metrics, as kube-controller-manager 1.36 does.
//!
//! ```text
//!   every 15 s, and when the spec changes:
//!     scale ──▶ pods by its selector, metrics APIs ──▶ decide ──▶ PUT scale ──▶ conclude ──▶ events, PUT status
//!                                                        ▲                        │
//!                                                        └──── history ◀──────────┘
//! ```
//!
//! It scales whatever has the scale subresource: discovery says which resource serves the kind. Pods are listed when their
//! metrics are needed, as the metrics are, so that a cluster without autoscalers pays nothing for their resources.
//!
//! # What upstream does otherwise
//!
//! - Utilization is a share of the requests in the pods' specs there, and of the allocated ones here ([`requests`]).
//! - The first reconcile of an autoscaler comes after a sync period there, and at once here.
//! - Upstream does not retry a status that conflicts with another write.

pub mod calculator;
pub mod decide;
pub mod features;
mod metric;
mod metrics_api;
mod monitor;
pub mod normalize;
pub mod requests;
mod status;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{Selector, SelectorExt as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::api_error::is_conflict;
use plumb_controller_runtime::label_selector::parse_selector;
use plumb_controller_runtime::{
    Backoff, Change, Clock, Exponential, Informer, InformerFactory, ObjectRef, Reconciler, Requeue,
    RestMapper, RestMapperConfig, WorkQueue, Write,
};
use serde_json::json;
use tokio::time::Instant;

use crate::Clients;
use crate::workload::Note;
use crate::workload::recorder::Recorder;
pub use decide::Settings;
use decide::{Decision, Inputs, NoScale, Now, Rescale, Scale, State};
pub use metric::Reading;
use metrics_api::{MetricsReader, generic_message, is_generic, message, no_match};
pub use monitor::AutoscalerMetrics;
use normalize::History;

/// The name of this controller's user.
pub const NAME: &str = "horizontal-pod-autoscaler";
/// How many autoscalers are reconciled at a time, as upstream by default.
const WORKERS: usize = 5;
/// How often a write is attempted that conflicts with others.
const ATTEMPTS: u32 = 5;

/// What the controller works with besides its clients.
pub struct Config {
    /// The rules.
    pub settings: Settings,
    /// The clock.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<AutoscalerMetrics>,
}

/// Reconciles autoscalers until the future is dropped.
pub fn run(clients: Clients, factory: &InformerFactory, config: Config) -> BoxFuture<'static, ()> {
    let Config { settings, clock, metrics } = config;
    let informer = factory.informer::<HorizontalPodAutoscaler>();
    let recorder = Recorder::start(clients.write.clone(), NAME, &clients.supervisor, &clients.metrics);
    let mapper = RestMapper::new(RestMapperConfig { clock: clock.clone(), ..RestMapperConfig::default() });
    let memories: Arc<Memories> = Arc::default();
    let reconciler = Autoscalers {
        client: clients.write.clone(),
        informer: informer.clone(),
        recorder,
        mapper,
        settings,
        started: clock.monotonic(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        memories: memories.clone(),
    };
    clients
        .controller(NAME, reconciler)
        .with_clock(clock)
        .with_workers(WORKERS)
        .watches(&informer, move |change, queue| enqueue(change, queue, &memories, &metrics))
        .run()
}

fn enqueue(
    change: &Change<'_, HorizontalPodAutoscaler>,
    queue: &WorkQueue,
    memories: &Memories,
    metrics: &AutoscalerMetrics,
) {
    let uid = |object: Option<&Arc<HorizontalPodAutoscaler>>| object.and_then(|one| one.metadata.uid.clone());
    if let Some(before) = change.before
        && uid(change.before) != uid(change.after)
    {
        let key = ObjectRef::of(&**before);
        memories.lock().remove(&key);
        metrics.deleted(&key);
    }
    let Some(after) = change.after else { return };
    metrics.added(ObjectRef::of(&**after));
    // A status is written by the reconcile itself, which comes back by the clock.
    if change.before.is_none_or(|before| before.spec != after.spec) {
        queue.add(ObjectRef::of(&**after));
    }
}

/// What is remembered of autoscalers, as long as they exist.
type Memories = Mutex<HashMap<ObjectRef, Memory>>;

#[derive(Clone, Debug, Default)]
struct Memory {
    history: History,
    /// Which pods it controls, by the last scale that was read.
    selector: Option<Arc<Selector>>,
}

/// Reconciles autoscalers.
struct Autoscalers {
    client: Client,
    informer: Informer<HorizontalPodAutoscaler>,
    recorder: Recorder,
    mapper: RestMapper,
    settings: Settings,
    started: Instant,
    clock: Clock,
    metrics: Arc<AutoscalerMetrics>,
    memories: Arc<Memories>,
}

/// The scale of a target, and where it is.
struct Target {
    api: Api<DynamicObject>,
    object: DynamicObject,
    scale: Scale,
}

impl Reconciler for Autoscalers {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, key: &ObjectRef) -> kube::Result<Requeue> {
        let Some(autoscaler) = self.informer.get(key) else { return Ok(Requeue::AwaitChange) };
        let reconciled = self.sync(key, &autoscaler).await;
        // It may have been deleted meanwhile: its selector must not make those of others ambiguous.
        let is_same = |now: Arc<HorizontalPodAutoscaler>| now.metadata.uid == autoscaler.metadata.uid;
        if !self.informer.get(key).is_some_and(is_same) {
            self.memories.lock().remove(key);
        }
        reconciled
    }
}

impl Autoscalers {
    async fn sync(
        &self,
        key: &ObjectRef,
        autoscaler: &Arc<HorizontalPodAutoscaler>,
    ) -> kube::Result<Requeue> {
        let spec = &autoscaler.spec;
        let started = self.clock.monotonic();
        let target = self.target(key, spec).await;
        let scale = target.as_ref().map(|target| target.scale.clone()).map_err(Clone::clone);
        let (inputs, durations) = match &scale {
            Ok(scale) if decide::needs_metrics(autoscaler, scale, &self.settings) => {
                self.read(key, spec, scale).await?
            }
            _ => (Inputs::default(), Vec::new()),
        };
        let state = State { autoscaler: autoscaler.clone(), scale, inputs };
        let now = self.now();
        let mut history = self.memories.lock().entry(key.clone()).or_default().history.clone();
        let mut decision = decide::decide(&state, &mut history, now, &self.settings);
        if let (Some(Rescale { to, .. }), Ok(target)) = (&decision.rescale, target) {
            let rescaled = rescale(target, *to).await;
            decide::conclude(&mut decision, &state, rescaled, &mut history, now, &self.settings);
        }
        if let Some(memory) = self.memories.lock().get_mut(key) {
            memory.history = history;
        }
        self.observe(key, &decision, &durations, started);
        for note in std::mem::take(&mut decision.events) {
            self.emit(autoscaler, note);
        }
        if let Some(failure) = &decision.failure {
            tracing::debug!(autoscaler = %key, error = failure.message, "cannot autoscale");
        }
        self.update_status(key, autoscaler, decision).await?;
        Ok(Requeue::After(self.settings.sync_period))
    }

    fn now(&self) -> Now {
        let monotonic = self.clock.monotonic().saturating_duration_since(self.started);
        Now { wall: self.clock.now(), monotonic }
    }

    fn emit(&self, autoscaler: &HorizontalPodAutoscaler, note: Note) {
        use kube::Resource as _;
        self.recorder.record(autoscaler.object_ref(&()), note, self.clock.now());
    }

    fn observe(&self, key: &ObjectRef, decision: &Decision, durations: &[Duration], started: Instant) {
        for (computation, took) in decision.computations.iter().zip(durations) {
            let outcome = (computation.action, computation.error);
            self.metrics.computed(outcome, &computation.metric_type, *took);
        }
        let took = self.clock.monotonic().saturating_duration_since(started);
        let fault = decision.failure.as_ref().map(|failure| failure.fault);
        self.metrics.reconciled(decision.scaled, fault, took);
        self.metrics.desires(key, decision.status.desired_replicas);
    }

    /// Reads the scale of the target.
    async fn target(&self, key: &ObjectRef, spec: &HorizontalPodAutoscalerSpec) -> Result<Target, NoScale> {
        let CrossVersionObjectReference { api_version, kind, name } = &spec.scale_target_ref;
        let internal = |message| NoScale { message, is_spec: false };
        let api_version = api_version.as_deref().unwrap_or_default();
        let group = match api_version.split('/').collect::<Vec<_>>()[..] {
            [_] => "",
            [group, _] => group,
            _ => {
                let message = format!("unexpected GroupVersion string: {api_version}");
                return Err(NoScale { message, is_spec: true });
            }
        };
        let mapping = self.mapper.mapping(&self.client, group, kind).await;
        let mapping = mapping.map_err(|error| internal(message(&error)))?;
        let mapping = mapping.ok_or_else(|| internal(no_match(group, kind)))?;
        if !mapping.has_scale || !mapping.namespaced {
            return Err(internal("the server could not find the requested resource".to_owned()));
        }
        let resource = mapping.resource(group, kind);
        let api = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let read: kube::Result<DynamicObject> = api.get_subresource("scale", name).await;
        let object = read.map_err(|error| match &error {
            kube::Error::Api(status) if is_generic(status) => internal(generic_message(status)),
            error => internal(message(error)),
        })?;
        let number = |path: &str| {
            let number = object.data.pointer(path).and_then(serde_json::Value::as_i64);
            number.and_then(|number| i32::try_from(number).ok()).unwrap_or_default()
        };
        let selector = object.data.pointer("/status/selector").and_then(serde_json::Value::as_str);
        let scale = Scale {
            replicas: number("/spec/replicas"),
            status_replicas: number("/status/replicas"),
            selector: selector.unwrap_or_default().to_owned(),
        };
        Ok(Target { api, object, scale })
    }

    /// Lists the pods of a target and reads its metrics, and says how long each metric took.
    async fn read(
        &self,
        key: &ObjectRef,
        spec: &HorizontalPodAutoscalerSpec,
        scale: &Scale,
    ) -> kube::Result<(Inputs, Vec<Duration>)> {
        let selector = parse_selector(&scale.selector).ok().filter(|_| !scale.selector.is_empty());
        let Some(selector) = selector else { return Ok((Inputs::default(), Vec::new())) };
        self.memories.lock().entry(key.clone()).or_default().selector = Some(Arc::new(selector));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = ListParams::default().labels(&scale.selector);
        let mut pods = Vec::new();
        api.list_each(&params, &mut |pod| pods.push(reduced(pod))).await?;
        let controlled_by = self.controlled_by(&key.namespace, &pods);
        let mut inputs = Inputs { pods, controlled_by, readings: Vec::new() };
        let mut durations = Vec::new();
        if inputs.controlled_by.len() > 1 {
            return Ok((inputs, durations));
        }
        let mut reader = MetricsReader::new(&self.client, &self.mapper, &key.namespace, &scale.selector);
        for metric in spec.metrics.iter().flatten() {
            let started = self.clock.monotonic();
            inputs.readings.push(reader.read(metric).await);
            durations.push(self.clock.monotonic().saturating_duration_since(started));
        }
        Ok((inputs, durations))
    }

    /// The autoscalers whose target selects any of some pods.
    fn controlled_by(&self, namespace: &str, pods: &[Pod]) -> Vec<String> {
        // Most pods of a workload have the same labels.
        let labels: BTreeSet<_> =
            pods.iter().map(|pod| pod.metadata.labels.clone().unwrap_or_default()).collect();
        let memories = self.memories.lock();
        let in_namespace = memories.iter().filter(|(key, _)| key.namespace == namespace);
        let mut all: Vec<String> = in_namespace
            .filter(|(_, memory)| {
                let selector = memory.selector.as_ref();
                selector.is_some_and(|selector| labels.iter().any(|labels| selector.matches(labels)))
            })
            .map(|(key, _)| format!("{namespace}/{}", key.name))
            .collect();
        all.sort_unstable();
        all
    }

    /// Writes the status, if it has changed. Of concurrent changes of the autoscaler the status alone is overwritten.
    async fn update_status(
        &self,
        key: &ObjectRef,
        autoscaler: &HorizontalPodAutoscaler,
        decision: Decision,
    ) -> kube::Result<()> {
        let status = status::normalized(decision.status);
        let before = status::normalized(autoscaler.status.clone().unwrap_or_default());
        if status == before {
            return Ok(());
        }
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut object = autoscaler.clone();
        let mut backoff =
            Backoff::new(Exponential::new(Duration::from_millis(10), Duration::from_millis(200)));
        let error = loop {
            object.status = Some(status.clone());
            match api.replace_status(&key.name, &PostParams::default(), &object).await {
                Ok(written) => {
                    self.informer.wait_for_write(&Write::updated(&written.metadata)).await;
                    return Ok(());
                }
                Err(kube::Error::Api(error)) if error.is_not_found() => return Ok(()),
                Err(error) if is_conflict(&error) && backoff.failures() + 1 < ATTEMPTS => {
                    backoff.wait().await;
                    match api.get_opt(&key.name).await? {
                        Some(latest) if latest.metadata.uid == autoscaler.metadata.uid => object = latest,
                        _ => return Ok(()),
                    }
                }
                Err(error) => break error,
            }
        };
        self.emit(autoscaler, Note::warning("FailedUpdateStatus", message(&error)));
        Err(error)
    }
}

/// What matters of a pod here: a workload may have thousands.
fn reduced(pod: Pod) -> Pod {
    let containers = |all: Vec<Container>| -> Vec<Container> {
        let reduced = |Container { name, resources, restart_policy, .. }| Container {
            name,
            resources,
            restart_policy,
            ..Container::default()
        };
        all.into_iter().map(reduced).collect()
    };
    let ObjectMeta { name, labels, deletion_timestamp, .. } = pod.metadata;
    Pod {
        metadata: ObjectMeta { name, labels, deletion_timestamp, ..ObjectMeta::default() },
        spec: pod.spec.map(|spec| PodSpec {
            containers: containers(spec.containers),
            init_containers: spec.init_containers.map(containers),
            overhead: spec.overhead,
            resources: spec.resources,
            ..PodSpec::default()
        }),
        status: pod.status,
    }
}

/// Sets the replicas of a target.
async fn rescale(target: Target, replicas: i32) -> Result<(), String> {
    let Target { api, mut object, .. } = target;
    let name = object.metadata.name.clone().unwrap_or_default();
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(10), Duration::from_millis(200)));
    loop {
        object.data["spec"]["replicas"] = json!(replicas);
        match api.replace_subresource("scale", &name, &PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            Err(error) if is_conflict(&error) && backoff.failures() + 1 < ATTEMPTS => {
                backoff.wait().await;
                if let Ok(latest) = api.get_subresource("scale", &name).await {
                    object = latest;
                }
            }
            Err(error) => return Err(message(&error)),
        }
    }
}
