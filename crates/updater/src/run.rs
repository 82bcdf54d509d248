//! The loop of the updater in a cluster.
//!
//! ```text
//!   watches ──▶ index ──▶ work queue ──▶ reconcile a VPA: gather ▸ triage ▸ plan ▸ perform ▸ report
//!                 ▲                                                              │
//!                 └──────────── own writes are awaited in the store ◀────────────┘
//! ```
//!
//! A VPA is reconciled when it, one of its pods, one of their nodes, or a limit range or quota of its namespace changes, when
//! something is due that was waited for, and every interval in case a change was missed. Pods are changed concurrently;
//! budgets hold because a plan is made for all pods of a VPA at once, and not again before its writes are observed.

mod events;
mod growth;
mod perform;
mod prepare;
mod shared_targets;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join, join_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{LimitRange, Node, NodeStatus, ObjectReference, Pod, ResourceQuota};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::controller::Reconciler;
use plumb_controller_runtime::events::{EventRecorder, RecorderConfig};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{
    Change, Clock, Controller, Informer, ObjectRef, Requeue, Store, Watchable, WorkQueue,
};
use plumb_resize::rules::Rules;
use plumb_resize::status::Stage;
use plumb_supervise::Supervisor;
use plumb_vpa::informers::Informers;
use plumb_vpa::target::{ControllerRef, TargetError, Targets};
use plumb_vpa::vpas::overlap;
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::time::Instant;

use self::prepare::Prepared;
use self::shared_targets::SharedTargets;
use crate::actuate::{Evictor, InPlaceActuator, RecreatingActuator, Resizer};
use crate::admission_status::AdmissionStatus;
use crate::decide::{Plan, Policy, Subject, Triage};
use crate::index::{Gathered, Index, Key};
use crate::metrics::{Gauges, Step, UpdaterMetrics};
use crate::mode::{Actuation, Modes};
use crate::options::Options;
use crate::pace::{LastEvictions, Pause};
use crate::rate_limit::RateLimiter;
use crate::report::Summary;
use crate::unboost::{self, Unbooster};

/// The component that emits events, and the name of the task.
pub const NAME: &str = "vpa-updater";
/// How many safety passes there are between two times that owners of pods are resolved again.
const RESOLVE_EVERY: u32 = 10;
/// How long a write may take to be observed in the store before the VPA is reconciled again all the same.
const OBSERVED_WITHIN: Duration = Duration::from_secs(10);

/// Configuration of an updater.
#[derive(Clone)]
pub struct Config {
    /// The client.
    pub client: Client,
    /// VPAs and pods. The caller runs the informers, after [`Updater::new`].
    pub informers: Informers,
    /// The targets of VPAs.
    pub targets: Targets,
    /// How it works.
    pub options: Options,
    /// By which rules pods count in quotas.
    pub rules: Rules,
    /// The time.
    pub clock: Clock,
    /// Restarts the tasks.
    pub supervisor: Supervisor,
    /// Counts reconciles, events and watches.
    pub metrics: Metrics,
    /// The metrics of the updater.
    pub updater_metrics: UpdaterMetrics,
}

/// An updater.
pub struct Updater {
    inner: Arc<Inner>,
}

/// The shared state of reconciles.
struct Inner {
    config: Config,
    index: Mutex<Index>,
    queue: Arc<WorkQueue<Key>>,
    nodes: Informer<Node>,
    limit_ranges: Informer<LimitRange>,
    quotas: Informer<ResourceQuota>,
    /// For VPAs of the mode `InPlace`: it holds no evictor.
    in_place: InPlaceActuator,
    /// For VPAs of the modes that may evict.
    recreating: RecreatingActuator,
    admission: AdmissionStatus,
    recorder: EventRecorder,
    unbooster: Unbooster,
    /// Whether the API server has `pods/resize`.
    resize_served: AtomicBool,
    history: Mutex<BTreeMap<ObjectRef, History>>,
    shared_targets: SharedTargets,
}

/// What the updater did for a VPA and reported about it. It is kept until the VPA is deleted.
#[derive(Default)]
struct History {
    /// When its status was written.
    status_written: Option<Instant>,
    /// The last evictions of its pods.
    evictions: Option<LastEvictions>,
    /// Whether it was reported that these evictions did not help.
    is_pause_reported: bool,
    /// The message of the last event about another VPA that controls its pods.
    overlap: Option<String>,
}

impl Updater {
    /// An updater that does not run yet. It adds handlers to the informers. Has to be called inside a Tokio runtime.
    pub fn new(config: Config) -> Self {
        let limiter = || RateLimiter::new(config.options.rate_limit, config.clock.clone());
        let resizer = Resizer::new(config.client.clone(), limiter());
        let in_place = InPlaceActuator { resizer };
        let evictor = Evictor::new(config.client.clone(), limiter());
        let recorder = EventRecorder::start(RecorderConfig {
            metrics: config.metrics.clone(),
            ..RecorderConfig::new(config.client.clone(), NAME, &config.supervisor)
        });
        let (lease, clock) = (config.options.admission_lease.clone(), config.clock.clone());
        let counted = config.updater_metrics.clone();
        let limit_ranges = Informer::default().with_metrics(&config.metrics);
        let node_selectors = config.options.node_selectors;
        let transform = if node_selectors { allocatable_and_labels } else { allocatable_only };
        let nodes = Informer::default().with_transform(transform).with_metrics(&config.metrics);
        let unbooster = Unbooster::new(unboost::Config {
            client: config.client.clone(),
            informers: config.informers.clone(),
            targets: config.targets.clone(),
            limit_ranges: limit_ranges.clone(),
            nodes: nodes.clone(),
            node_selectors,
            recorder: recorder.clone(),
            clock: config.clock.clone(),
            supervisor: config.supervisor.clone(),
            metrics: config.metrics.clone(),
            updater_metrics: config.updater_metrics.clone(),
            settings: unboost::Settings {
                deadline: config.options.startup_boost_deadline,
                startup_boost: config.options.startup_boost,
                on_restart: config.options.startup_boost_on_restart,
                max_allowed: config.options.max_allowed_cpu_boost,
            },
        });
        let inner = Arc::new(Inner {
            index: Mutex::new(Index::new(config.options.startup_boost, node_selectors)),
            queue: Arc::new(WorkQueue::new(config.clock.clone())),
            nodes,
            limit_ranges,
            quotas: Informer::default().with_metrics(&config.metrics),
            recreating: RecreatingActuator { in_place: in_place.clone(), evictor },
            in_place,
            admission: AdmissionStatus::new(config.client.clone(), lease, clock, counted),
            recorder,
            unbooster,
            resize_served: AtomicBool::new(true),
            history: Mutex::default(),
            shared_targets: SharedTargets::default(),
            config,
        });
        inner.watch();
        Self { inner }
    }

    /// Runs for good, or until the future is dropped; then it may be run again.
    pub fn run(&self) -> BoxFuture<'static, ()> {
        let inner = self.inner.clone();
        let unboost = inner.unbooster.run();
        let update = async move {
            inner.config.informers.vpas.wait_for_sync().await;
            // Pods are watched once there is a VPA.
            inner.config.informers.pods.wait_for_sync().await;
            let informers = inner.run_informers();
            let work = async {
                inner.discover_until_known().await;
                inner.enqueue_all(true);
                let reconciler = VpaReconciler(inner.clone());
                let recorder = inner.recorder.clone();
                let controller = Controller::new(NAME, reconciler, &inner.config.supervisor)
                    .with_panic_events(move || recorder.clone())
                    .with_queue(inner.queue.clone())
                    .with_workers(inner.config.options.concurrent_updates)
                    .with_metrics(&inner.config.metrics)
                    .awaits(inner.nodes.store().clone())
                    .awaits(inner.limit_ranges.store().clone())
                    .awaits(inner.quotas.store().clone());
                tokio::join!(controller.run(), inner.clone().passes());
            };
            tokio::join!(informers, work);
        };
        join(unboost, update).map(drop).boxed()
    }

    /// Has all VPAs reconciled, as every interval does.
    pub fn enqueue_all(&self) {
        self.inner.enqueue_all(false);
    }

    /// How many VPAs and pods the updater knows.
    pub fn size(&self) -> (usize, usize) {
        self.inner.index.lock().size()
    }

    /// Whether the queue is empty.
    pub fn is_idle(&self) -> bool {
        self.inner.queue.depth() == 0
    }
}

/// A node's name and its allocatable resources.
fn allocatable_only(node: Node) -> Node {
    let mut node = allocatable_and_labels(node);
    node.metadata.labels = None;
    node
}

/// The same with the labels of the node.
fn allocatable_and_labels(mut node: Node) -> Node {
    node.metadata.annotations = None;
    node.spec = None;
    if let Some(status) = node.status.take() {
        let allocatable = status.allocatable;
        node.status = Some(NodeStatus { allocatable, ..NodeStatus::default() });
    }
    node
}

impl Inner {
    /// Feeds the index and the queue.
    fn watch(self: &Arc<Self>) {
        self.on_change(&self.config.informers.vpas, |inner, key, change| {
            let acts = |vpa: &Arc<VerticalPodAutoscaler>| {
                let recommendation = recommendation_of(vpa).cloned();
                (vpa.spec.clone(), vpa.metadata.annotations.clone(), recommendation, kills_counted_until(vpa))
            };
            let is_own =
                change.before.zip(change.after).is_some_and(|(before, after)| acts(before) == acts(after));
            let keys = inner.index.lock().apply_vpa(key, change.after.cloned());
            if change.after.is_none() {
                inner.config.updater_metrics.remove_vpa(key);
                inner.history.lock().remove(key);
            }
            // Another condition is no reason to act; it may be that ours is missing, which the next pass finds.
            if is_own { Vec::new() } else { keys }
        });
        // Pods of namespaces that are not updated count on their nodes, too.
        self.on_any_change(&self.config.informers.pods, |inner, key, change| {
            let now = inner.config.clock.now();
            inner.index.lock().apply_pod(key, change.after.cloned(), now)
        });
        self.on_change(&self.nodes, |inner, key, change| {
            inner.index.lock().apply_node(&key.name, change.after.map(|node| &**node))
        });
        self.on_change(&self.limit_ranges, |inner, key, _| {
            let ranges = inner.limit_ranges.in_namespace(&key.namespace);
            inner.index.lock().set_limit_ranges(&key.namespace, ranges.iter().map(|range| &**range))
        });
        self.on_change(&self.quotas, |inner, key, change| {
            let status = |quota: Option<&Arc<ResourceQuota>>| quota.and_then(|quota| quota.status.clone());
            if status(change.before) == status(change.after) {
                return Vec::new();
            }
            inner.index.lock().quota_changed(&key.namespace)
        });
    }

    /// Handles the changes of objects of the namespaces that are updated, and of no namespace.
    fn on_change<K: Watchable>(
        self: &Arc<Self>,
        store: &Arc<Store<K>>,
        keys: impl Fn(&Self, &ObjectRef, &Change<'_, K>) -> Vec<Key> + Send + Sync + 'static,
    ) {
        self.on_any_change(store, move |inner, key, change| {
            let is_updated =
                key.namespace.is_empty() || inner.config.informers.namespaces().contains(&key.namespace);
            if is_updated { keys(inner, key, change) } else { Vec::new() }
        });
    }

    fn on_any_change<K: Watchable>(
        self: &Arc<Self>,
        store: &Arc<Store<K>>,
        keys: impl Fn(&Self, &ObjectRef, &Change<'_, K>) -> Vec<Key> + Send + Sync + 'static,
    ) {
        // The stores are part of this, so that they would keep each other alive.
        let inner = Arc::downgrade(self);
        store.add_handler(move |change| {
            let (Some(inner), Some(object)) = (inner.upgrade(), change.latest()) else { return };
            let key = ObjectRef::of(&**object);
            for key in keys(&inner, &key, change) {
                inner.queue.add(key);
            }
        });
    }

    fn run_informers(&self) -> impl Future<Output = ()> + Send + use<> {
        let nodes = self.keep("nodes", &self.nodes, Api::all(self.config.client.clone()));
        let ranges = self.keep("limitranges", &self.limit_ranges, self.api());
        let quotas = self.keep("resourcequotas", &self.quotas, self.api());
        join_all([nodes, ranges, quotas]).map(drop)
    }

    fn keep<K: Watchable>(&self, name: &str, informer: &Informer<K>, api: Api<K>) -> BoxFuture<'static, ()> {
        let informer = informer.clone();
        let running = self.config.supervisor.keep(&format!("{NAME}-informer/{name}"), move || {
            let (informer, api) = (informer.clone(), api.clone());
            async move { informer.run(api).await }
        });
        running.boxed()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self.config.informers.namespaces().only() {
            Some(only) => Api::namespaced(self.config.client.clone(), only),
            None => Api::all(self.config.client.clone()),
        }
    }

    /// Queues all VPAs, and if wanted all owners of pods.
    fn enqueue_all(&self, owners: bool) {
        let mut index = self.index.lock();
        if owners {
            index.collect_garbage();
        }
        let owners = if owners { index.owners() } else { Vec::new() };
        let vpas = index.vpas();
        drop(index);
        for key in owners.into_iter().chain(vpas) {
            self.queue.add(key);
        }
    }

    /// Requeues everything every interval, in case a change was missed.
    async fn passes(self: Arc<Self>) {
        let mut passes: u32 = 0;
        loop {
            tokio::time::sleep(self.config.options.interval).await;
            passes = passes.wrapping_add(1);
            let resolves = passes.is_multiple_of(RESOLVE_EVERY);
            if resolves && let Err(error) = self.discover().await {
                tracing::debug!(%error, "cannot read which resources the API server serves");
            }
            self.enqueue_all(resolves);
        }
    }

    async fn discover(&self) -> kube::Result<()> {
        let listed = self.config.client.list_core_api_resources("v1").await?;
        let is_served = listed.resources.iter().any(|resource| resource.name == "pods/resize");
        let was_served = self.resize_served.swap(is_served, Ordering::Relaxed);
        if was_served != is_served {
            tracing::info!(is_served, "whether the API server serves pods/resize");
            self.enqueue_all(false);
        }
        Ok(())
    }

    async fn discover_until_known(&self) {
        let mut failures = 0;
        while let Err(error) = self.discover().await {
            tracing::warn!(%error, "cannot read which resources the API server serves, will retry");
            tokio::time::sleep(super::refusal::backoff(failures)).await;
            failures += 1;
        }
    }
}

/// The recommendation of a VPA.
fn recommendation_of(vpa: &VerticalPodAutoscaler) -> Option<&plumb_vpa_api::RecommendedPodResources> {
    vpa.status.as_ref().and_then(|status| status.recommendation.as_ref())
}

/// The latest OOM kill that the recommendation of a VPA includes, if its recommender reports that.
fn kills_counted_until(vpa: &VerticalPodAutoscaler) -> Option<Timestamp> {
    vpa.status.as_ref()?.kills_counted_until()
}

/// Whether a VPA recommends a target for any container.
fn has_recommendation(vpa: &VerticalPodAutoscaler) -> bool {
    let containers = recommendation_of(vpa).map(|recommended| &recommended.container_recommendations);
    containers.into_iter().flatten().any(|container| !container.target.is_empty())
}

/// Reconciles VPAs, and finds the topmost controllers of owners.
struct VpaReconciler(Arc<Inner>);

impl Reconciler for VpaReconciler {
    type Key = Key;
    type Error = TargetError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, TargetError> {
        match key {
            Key::Owner(owner) => self.0.resolve(owner).await,
            Key::Vpa(vpa) => self.0.reconcile(vpa).await,
        }
    }

    fn regarding(&self, key: &Key) -> Option<ObjectReference> {
        match key {
            Key::Owner(_) => None,
            Key::Vpa(vpa) => self.0.index.lock().vpa(vpa).map(|vpa| events::of_vpa(vpa)),
        }
    }

    async fn recover(&self) {
        // The writes of an interrupted reconcile may not be in the store yet.
        if let Err(error) = self.0.config.informers.pods.catch_up(self.0.api::<Pod>()).await {
            tracing::warn!(%error, "cannot catch up with pods");
        }
    }
}

impl Inner {
    async fn resolve(&self, owner: &ControllerRef) -> Result<Requeue, TargetError> {
        let topmost = match self.config.targets.topmost(owner).await {
            Ok(topmost) => topmost,
            Err(error) if error.is_transient() => return Err(error),
            // It is gone, or owned in a circle.
            Err(_) => None,
        };
        let keys = self.index.lock().set_topmost(owner, topmost);
        for key in keys {
            self.queue.add(key);
        }
        Ok(Requeue::AwaitChange)
    }

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, TargetError> {
        let began = self.config.clock.monotonic();
        let Some(vpa) = self.index.lock().vpa(key).cloned() else { return Ok(Requeue::AwaitChange) };
        self.resolve_target(key, &vpa).await;
        let shared = self.index.lock().shared_target(&vpa).map(|target| self.shared_targets.of(&target));
        // Before the VPA is gathered: the budget that other VPAs of the workload have spent counts.
        let held = match &shared {
            None => None,
            Some(lock) => Some(lock.lock().await),
        };
        let Some(prepared) = self.prepare(key).await else { return Ok(Requeue::AwaitChange) };
        let Prepared { gathered, triage, plan, next, pause, triaged_at } = prepared;
        self.config.updater_metrics.step(Step::FilterPods, triaged_at.saturating_duration_since(began));
        self.observe_applied(&gathered.subjects, triaged_at);
        let held = held.filter(|_| plan.spends_budget());
        let acted = self.config.clock.monotonic();
        self.set_gauges(key, &gathered, &triage, &plan);
        let is_refused = self.perform(key, &gathered, &plan).await;
        // After resizes, which conflict with a newer version of their pod.
        self.carry_growth_bounds(&gathered).await;
        if plan.evicts() {
            self.set_evicted(key, &gathered, pause);
        } else if let Some(pause) = pause {
            self.report_pause(key, &gathered.vpa, pause);
        }
        drop(held);
        self.config.updater_metrics.step(Step::EvictPods, self.since(acted));
        if is_refused {
            // The pods wait for something now that the plan does not have, and the condition has to report it.
            self.config.updater_metrics.step(Step::Total, self.since(began));
            return Ok(Requeue::Now);
        }
        let summary = Summary::new(&triage, &plan);
        let overlap = gathered.stronger.as_ref().map(|stronger| overlap(stronger, &gathered.vpa));
        self.emit_overlap(key, &gathered.vpa, overlap.as_deref());
        let condition = summary.condition(&plan, has_recommendation(&gathered.vpa), overlap.as_deref());
        let written = self.write_condition(key, condition.as_ref()).await;
        self.config.updater_metrics.step(Step::Total, self.since(began));
        Ok(self.requeue(next, written))
    }

    fn requeue(&self, next: Option<Timestamp>, again_in: Option<Duration>) -> Requeue {
        let until = next.map(|next| {
            let wait = next.duration_since(self.config.clock.now());
            // A time that has passed while pods were changed is due now; a millisecond is what timers resolve.
            Duration::try_from(wait).unwrap_or_default().max(Duration::from_millis(1))
        });
        match (until, again_in) {
            (Some(a), Some(b)) => Requeue::After(a.min(b)),
            (Some(wait), None) | (None, Some(wait)) => Requeue::After(wait),
            (None, None) => Requeue::AwaitChange,
        }
    }

    fn since(&self, began: Instant) -> Duration {
        self.config.clock.monotonic().saturating_duration_since(began)
    }

    async fn resolve_target(&self, key: &ObjectRef, vpa: &VerticalPodAutoscaler) {
        self.read_target(key, vpa).await;
        let Some(labels) = self.index.lock().unselected(key) else { return };
        let target = ControllerRef::of_target(&key.namespace, &vpa.spec.target_ref);
        if self.config.targets.selects(&target, &labels).await.is_ok_and(|selects| selects) {
            self.read_target(key, vpa).await;
        }
    }

    async fn read_target(&self, key: &ObjectRef, vpa: &VerticalPodAutoscaler) {
        match self.config.targets.of_vpa(&key.namespace, &vpa.spec.target_ref).await {
            Ok(target) => self.index.lock().set_selector(key, Some(target.selector)),
            // The last known state is used.
            Err(error) if error.is_transient() => tracing::debug!(vpa = %key, %error, "cannot read a target"),
            Err(_) => self.index.lock().set_selector(key, None),
        }
    }

    fn policy(&self, vpa: &VerticalPodAutoscaler) -> Policy {
        let modes =
            Modes { resize_served: self.resize_served.load(Ordering::Relaxed), ..self.config.options.modes };
        Policy::of(vpa, &modes, self.config.options.per_vpa_config)
    }

    /// Measures the resizes that were applied since, until a time.
    fn observe_applied(&self, subjects: &[Subject], until: Instant) {
        let mut index = self.index.lock();
        for subject in subjects.iter().filter(|subject| subject.pod.stage == Stage::Applied) {
            let Some(memory) = index.memory(&subject.pod.object, &subject.pod.uid) else { continue };
            if let Some((_, sent)) =
                memory.sent.take_if(|(generation, _)| *generation <= subject.pod.generation)
            {
                self.config.updater_metrics.resized(until.saturating_duration_since(sent));
            }
        }
    }

    /// Remembers that pods were evicted. While there are pods that came up without the recommendation, these count.
    fn set_evicted(&self, key: &ObjectRef, gathered: &Gathered, pause: Option<Pause>) {
        let last = LastEvictions {
            arrivals: pause.map_or(gathered.arrivals, |pause| pause.arrivals),
            at: self.config.clock.now(),
            recommendation: recommendation_of(&gathered.vpa).cloned(),
        };
        let mut history = self.history.lock();
        let own = history.entry(key.clone()).or_default();
        own.evictions = Some(last);
        own.is_pause_reported = false;
    }

    /// Says once after evictions that new pods come up without the recommendation.
    fn report_pause(&self, key: &ObjectRef, vpa: &VerticalPodAutoscaler, pause: Pause) {
        let is_reported = {
            let mut history = self.history.lock();
            std::mem::replace(&mut history.entry(key.clone()).or_default().is_pause_reported, true)
        };
        if is_reported || pause.are_admitted {
            return;
        }
        tracing::warn!(
            vpa = %key,
            "the API server creates pods without the admission webhook: evictions wait for the updater interval; check that \
             the API server reaches the service or URL in the MutatingWebhookConfiguration"
        );
        self.emit_not_admitted(vpa, self.config.options.interval);
    }

    fn set_gauges(&self, key: &ObjectRef, gathered: &Gathered, triage: &Triage, plan: &Plan) {
        let due = triage.due.len();
        let resizes = |mode: &Actuation| matches!(mode, Actuation::InPlace | Actuation::InPlaceOrRecreate);
        let is_in_place = resizes(&self.policy(&gathered.vpa).actuation);
        self.config.updater_metrics.set_vpa(
            key,
            Gauges {
                mode: gathered.vpa.spec.update_mode().as_str().to_owned(),
                controlled: triage.due.len() + triage.others.len(),
                evictable: if matches!(plan, Plan::Recreating(_)) { due } else { 0 },
                in_place_updatable: if is_in_place { due } else { 0 },
                waiting: Summary::new(triage, plan).waiting,
            },
        );
    }
}
