//! Ends CPU start-up boosts: at Ready plus `durationSeconds`, by the event, through `/resize`. Never evicts.
//!
//! ```text
//!   pod with a boost ──▶ not due: again when it is ──▶ due: resize ──▶ applied: annotations are removed
//!                                                                  ──▶ refused, Infeasible, Deferred: recorded, back to its own CPU
//!   container that restarts, where a VPA wants it ──▶ annotations ──▶ resize
//! ```
//!
//! A pod has its annotations until the resize is applied, and is not updated or evicted meanwhile: failures are
//! retried. The annotations of the pod have its original resources, so that a restart of the updater, or the end of
//! the VPA or of its boost, does not matter. The gate `CPUStartupBoost` does not matter either: boosted pods are
//! unboosted.

mod failure;
mod observed;
mod report;
mod restart;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LimitRange, Node, Pod, PodSpec};
use kube::Client;
use kube::api::{ApiResource, DynamicObject, ListParams};
use plumb_client::Api;
use plumb_controller_runtime::events::EventRecorder;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::pods::is_active;
use plumb_controller_runtime::{
    Backoff, Clock, Controller, Exponential, Informer, ObjectRef, Reconciler, Requeue, WorkQueue,
    controller_of,
};
use plumb_resize::Quantity;
use plumb_resize::status::{Stage, read};
use plumb_supervise::Supervisor;
use plumb_vpa::boost::annotation::{Damaged, boosted_containers, is_boosted};
use plumb_vpa::boost::restart::restarting;
use plumb_vpa::boost::{BoostContext, Due, Unboost, due};
use plumb_vpa::informers::Informers;
use plumb_vpa::recommendation::LimitRanges;
use plumb_vpa::target::{TargetError, Targets};
use plumb_vpa::vpas::{Nodes, Vpas};
use plumb_vpa_api::VerticalPodAutoscaler;

use self::observed::{ObservedBoosts, Resized};
use crate::metrics::UpdaterMetrics;
use crate::refusal::Refusal;

/// The name of the task.
const NAME: &str = "vpa-updater/unboost";
/// How many pods are unboosted at a time.
const WORKERS: usize = 64;
/// How often a pod is read that is not watched, because no VPA exists.
const POLL: Duration = Duration::from_secs(5);
/// How long to wait after pods could not be listed.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(200), Duration::from_secs(30));

/// Ends boosts. Clones share it.
#[derive(Clone)]
pub(super) struct Unbooster(Arc<Inner>);

struct Inner {
    client: Client,
    informers: Informers,
    vpas: Vpas,
    limit_ranges: Informer<LimitRange>,
    nodes: Informer<Node>,
    queue: Arc<WorkQueue<ObjectRef>>,
    recorder: EventRecorder,
    clock: Clock,
    supervisor: Supervisor,
    metrics: Metrics,
    updater_metrics: UpdaterMetrics,
    settings: Settings,
    observed: Arc<ObservedBoosts>,
}

/// How boosts are ended, and begun again.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// For how long a pod that is not ready stays boosted.
    pub(super) deadline: Option<Duration>,
    /// Whether pods may be boosted at all (gate `CPUStartupBoost`).
    pub(super) startup_boost: bool,
    /// Whether containers that restart are boosted by default.
    pub(super) on_restart: bool,
    /// The most CPU that a container gets by a boost.
    pub(super) max_allowed: Option<Quantity>,
}

/// Configuration of an [`Unbooster`].
pub(super) struct Config {
    pub(super) client: Client,
    pub(super) informers: Informers,
    pub(super) targets: Targets,
    pub(super) limit_ranges: Informer<LimitRange>,
    /// All nodes.
    pub(super) nodes: Informer<Node>,
    /// Whether VPAs may select nodes.
    pub(super) node_selectors: bool,
    pub(super) recorder: EventRecorder,
    pub(super) clock: Clock,
    pub(super) supervisor: Supervisor,
    pub(super) metrics: Metrics,
    pub(super) updater_metrics: UpdaterMetrics,
    pub(super) settings: Settings,
}

/// Why a pod is still boosted.
#[derive(Debug, thiserror::Error)]
enum UnboostError {
    #[error("its controller is not known: {0}")]
    Controller(#[source] TargetError),
    #[error("{operation}: {source}")]
    Request {
        operation: &'static str,
        #[source]
        source: kube::Error,
    },
    #[error("its resources cannot be read: {0}")]
    Unreadable(#[from] plumb_resize::list::BadQuantity),
    #[error("nothing says what container {container} had before: {damaged}")]
    Unresolved {
        container: String,
        #[source]
        damaged: Damaged,
    },
    #[error("its QoS class would change")]
    QosClass,
}

impl UnboostError {
    /// The API server's refusal of the values of a request, if another request may be accepted.
    fn refusal(&self) -> Option<Refusal> {
        let Self::Request { source, .. } = self else { return None };
        match Refusal::of(source) {
            refusal @ (Refusal::NodeCapacity(_)
            | Refusal::Invalid(_)
            | Refusal::Quota(_)
            | Refusal::LimitRange(_)
            | Refusal::Forbidden(_)) => Some(refusal),
            Refusal::Conflict(_)
            | Refusal::TooManyRequests { .. }
            | Refusal::Unavailable(_)
            | Refusal::Gone(_) => None,
        }
    }

    /// The word for it in metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::Controller(_) => "ControllerUnknown",
            Self::Request { .. } => "RequestFailed",
            Self::Unreadable(_) => "PodUnreadable",
            Self::Unresolved { .. } => "OriginalUnknown",
            Self::QosClass => "QosClass",
        }
    }
}

impl Unbooster {
    /// Adds handlers to the informers.
    pub(super) fn new(config: Config) -> Self {
        let Config { client, informers, targets, limit_ranges, nodes, recorder, clock, .. } = config;
        let Config { supervisor, metrics, updater_metrics, settings, .. } = config;
        // Whether a VPA may boost does not matter for pods that are boosted.
        let selected =
            config.node_selectors.then(|| Nodes { client: client.clone(), informer: nodes.clone() });
        let vpas = Vpas::new(informers.vpas.store(), targets, true, selected);
        let queue = Arc::new(WorkQueue::new(clock.clone()));
        let observed = Arc::new(ObservedBoosts::new(clock.now(), updater_metrics.clone()));
        let inner = Inner {
            client,
            vpas,
            limit_ranges,
            nodes,
            queue: queue.clone(),
            recorder,
            clock: clock.clone(),
            supervisor,
            metrics,
            updater_metrics,
            settings,
            observed: observed.clone(),
            informers: informers.clone(),
        };
        informers.pods.add_handler(move |change| {
            let Some(key) = change.latest().map(|pod| ObjectRef::of(&**pod)) else { return };
            match change.after {
                Some(pod) if is_boosted(pod) => {
                    observed.note(&key, pod, clock.now());
                    queue.add(key);
                }
                Some(pod) => {
                    observed.forget(&key);
                    if !restarting(pod).is_empty() {
                        queue.add(key);
                    }
                }
                None => observed.forget(&key),
            }
        });
        let inner = Arc::new(inner);
        // A VPA that changes may end boosts earlier, later or otherwise.
        let weak = Arc::downgrade(&inner);
        informers.vpas.add_handler(move |change| {
            let spec = |vpa: Option<&Arc<VerticalPodAutoscaler>>| {
                vpa.map(|vpa| (vpa.spec.clone(), vpa.metadata.annotations.clone()))
            };
            let Some(inner) = weak.upgrade().filter(|_| spec(change.before) != spec(change.after)) else {
                return;
            };
            let namespace =
                change.latest().and_then(|vpa| vpa.metadata.namespace.clone()).unwrap_or_default();
            for pod in inner.informers.pods.in_namespace(&namespace).iter().filter(|pod| is_boosted(pod)) {
                inner.queue.add(ObjectRef::of(&**pod));
            }
        });
        Self(inner)
    }

    /// Runs for good.
    pub(super) fn run(&self) -> BoxFuture<'static, ()> {
        let inner = self.0.clone();
        async move {
            inner.informers.vpas.wait_for_sync().await;
            let controller = Controller::new(NAME, self::Pods(inner.clone()), &inner.supervisor)
                .with_queue(inner.queue.clone())
                .with_workers(WORKERS)
                .with_metrics(&inner.metrics);
            tokio::join!(inner.find_orphans(), controller.run());
        }
        .boxed()
    }
}

struct Pods(Arc<Inner>);

impl Reconciler for Pods {
    type Key = ObjectRef;
    type Error = UnboostError;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, UnboostError> {
        let inner = &*self.0;
        let Some(pod) = inner.pod(key).await? else {
            return Ok(Requeue::AwaitChange);
        };
        let vpa = inner.vpa(&pod).await;
        let vpa_of = |vpa: &Result<Option<Arc<VerticalPodAutoscaler>>, UnboostError>| {
            vpa.as_ref().ok().and_then(Clone::clone)
        };
        let known = vpa_of(&vpa);
        let outcome = match vpa {
            Ok(vpa) => inner.reconcile(&pod, vpa.as_deref()).await,
            Err(error) => Err(error),
        };
        outcome.inspect_err(|error| inner.report_failure(&pod, known.as_deref(), error))
    }
}

impl Inner {
    /// Boosted pods in a cluster without VPAs, where pods are not watched: one list finds them.
    async fn find_orphans(&self) {
        let mut backoff = Backoff::new(DELAYS);
        // Once there is a VPA, pods are watched.
        while self.informers.vpas.is_empty() {
            match self.list_boosted().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "pods whose boost was never ended cannot be listed yet");
                    backoff.wait().await;
                }
            }
        }
    }

    async fn list_boosted(&self) -> kube::Result<()> {
        let pods: Api<Pod> = match self.informers.namespaces().only() {
            Some(only) => Api::namespaced(self.client.clone(), only),
            None => Api::all(self.client.clone()),
        };
        let mut page = ListParams::default().limit(500);
        loop {
            let list = pods.list(&page).await?;
            for pod in list.items.iter().filter(|pod| is_boosted(pod)) {
                self.queue.add(ObjectRef::of(pod));
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    fn is_watching(&self) -> bool {
        !self.informers.vpas.is_empty() || !self.informers.pods.is_empty()
    }

    async fn pod(&self, key: &ObjectRef) -> Result<Option<Arc<Pod>>, UnboostError> {
        if !self.informers.namespaces().contains(&key.namespace) {
            return Ok(None);
        }
        if self.is_watching() {
            return Ok(self.informers.pods.get(key));
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let read = pods.get_opt(&key.name).await;
        read.map(|pod| pod.map(Arc::new))
            .map_err(|source| UnboostError::Request { operation: "reading the pod", source })
    }

    /// The VPA that controls a pod; none if it is gone.
    async fn vpa(&self, pod: &Pod) -> Result<Option<Arc<VerticalPodAutoscaler>>, UnboostError> {
        if let Some(vpa) = self.known_vpa(pod).await? {
            return Ok(Some(vpa));
        }
        // The pod may be known before the VPA that has boosted it, which another process has read.
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(self.client.clone(), namespace);
        match self.informers.vpas.catch_up(vpas).await {
            Ok(()) => self.known_vpa(pod).await,
            // Without the definition there are no VPAs.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(source) => Err(UnboostError::Request { operation: "reading VPAs", source }),
        }
    }

    async fn known_vpa(&self, pod: &Pod) -> Result<Option<Arc<VerticalPodAutoscaler>>, UnboostError> {
        match self.vpas.of_pod(pod).await {
            Ok(controlling) => Ok(controlling.map(|controlling| controlling.vpa)),
            Err(error) if error.is_transient() => Err(UnboostError::Controller(error)),
            // The controller is gone, and the VPA with it.
            Err(_) => Ok(None),
        }
    }

    async fn reconcile(
        &self,
        pod: &Pod,
        vpa: Option<&VerticalPodAutoscaler>,
    ) -> Result<Requeue, UnboostError> {
        if !is_active(pod) {
            return Ok(Requeue::AwaitChange);
        }
        if let Some(vpa) = vpa {
            self.boost_restarted(pod, vpa).await?;
        }
        if !is_boosted(pod) {
            return Ok(Requeue::AwaitChange);
        }
        self.report_boost(pod, vpa);
        let now = self.clock.now();
        let spec = vpa.map(|vpa| &vpa.spec);
        let delay = self.observed.delay(pod);
        let dues: Vec<(String, Due)> = boosted_containers(pod)
            .into_iter()
            .map(|container| {
                let due = due(pod, &container, spec, self.settings.deadline).delayed(delay);
                (container, due)
            })
            .collect();
        let is_due: BTreeSet<&str> =
            dues.iter().filter(|(_, due)| due.is_due(now)).map(|(container, _)| container.as_str()).collect();
        let next = dues.iter().filter_map(|(_, due)| due.at().filter(|at| *at > now)).min();
        if is_due.is_empty() {
            return Ok(self.again(next, now));
        }
        let context = self.context(pod);
        let plan = |vpa: Option<&VerticalPodAutoscaler>, template: Option<&PodSpec>| {
            Unboost::new(pod, vpa, template, &context, |container| is_due.contains(container))
        };
        let mut own = plan(None, None);
        let template = if own.unresolved.is_empty() { None } else { self.template(pod).await };
        if template.is_some() {
            own = plan(None, template.as_ref());
        }
        let recommended = plan(vpa, template.as_ref());
        let stage = read(pod)?.stage;
        let known = self.is_known_to_fail(pod, &recommended) && own.is_possible(pod);
        let prefers_own = known || prefers_own(pod, &stage, &recommended, &own);
        let mut unboost = if prefers_own { &own } else { &recommended };
        let falls_back = own.is_possible(pod) && !own.gives_the_same(&recommended);
        let is_pending = matches!(stage, Stage::Infeasible { .. } | Stage::Deferred { .. });
        let mut recorded = None;
        if is_pending && prefers_own && falls_back && !own.is_in_spec() {
            let is_infeasible = matches!(stage, Stage::Infeasible { .. });
            let in_spec = own.containers.iter().map(|container| (container.name.as_str(), container.from));
            let record = self.failed(pod, vpa, &own, in_spec, is_infeasible);
            recorded = self.record_failure(pod, record).await;
            if recorded.is_none() {
                return Ok(self.again(next, now));
            }
        }
        let mut applied = self.apply(recorded.as_ref().unwrap_or(pod), unboost, &stage).await;
        // Once the unboost is in the spec, a refusal is about the removal of the annotations.
        if let Err(error) = &applied
            && let Some(refusal) = error.refusal()
            && !unboost.is_in_spec()
            && falls_back
            && !own.gives_the_same(unboost)
        {
            tracing::info!(pod = %ObjectRef::of(pod), %error, "the recommendation was refused, the container gets back to its own CPU");
            let is_infeasible = matches!(refusal, Refusal::NodeCapacity(_));
            let sent = recommended.containers.iter().map(|container| (container.name.as_str(), container.to));
            let record = self.failed(pod, vpa, &own, sent, is_infeasible);
            let Some(recorded) = self.record_failure(pod, record).await else {
                return Ok(self.again(next, now));
            };
            unboost = &own;
            applied = self.apply(&recorded, unboost, &stage).await;
        }
        let since_due = || {
            let due = dues.iter().filter_map(|(_, due)| due.at()).filter(|at| *at <= now).min();
            let since = due.map(|due| self.clock.now().duration_since(due));
            since.and_then(|since| Duration::try_from(since).ok()).unwrap_or_default()
        };
        match applied? {
            Progress::Resized => {
                let from =
                    unboost.containers.iter().map(|container| (container.name.clone(), container.from));
                self.observed.resized(pod, Resized { from: from.collect(), delay: since_due() });
            }
            Progress::Ended => {
                let resized = self.observed.take_resized(pod);
                self.report_unboost(pod, vpa, unboost, resized.as_ref());
                let delay = resized.map_or_else(since_due, |resized| resized.delay);
                self.updater_metrics.unboosted(ended_by(&dues, now), delay);
            }
            Progress::Waits => {}
        }
        Ok(self.again(next, now))
    }

    /// Resizes the pod, or removes its annotations once the node has applied that.
    async fn apply(&self, pod: &Pod, unboost: &Unboost, stage: &Stage) -> Result<Progress, UnboostError> {
        if let Some(unresolved) = unboost.unresolved.first() {
            let container = unresolved.container.clone();
            return Err(UnboostError::Unresolved { container, damaged: unresolved.damaged.clone() });
        }
        if !unboost.keeps_qos_class(pod) {
            return Err(UnboostError::QosClass);
        }
        if !unboost.is_in_spec() {
            let is_accepted = self.resize(pod, unboost).await?;
            return Ok(if is_accepted { Progress::Resized } else { Progress::Waits });
        }
        let is_ended = *stage == Stage::Applied && self.finish(pod, unboost).await?;
        Ok(if is_ended { Progress::Ended } else { Progress::Waits })
    }

    /// When the pod is handled again.
    fn again(&self, next: Option<Timestamp>, now: Timestamp) -> Requeue {
        let wait = next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        match wait {
            _ if !self.is_watching() => Requeue::After(wait.unwrap_or(POLL).min(POLL)),
            Some(wait) => Requeue::After(wait),
            None => Requeue::AwaitChange,
        }
    }

    fn context(&self, pod: &Pod) -> BoostContext {
        let ranges = self.limit_ranges.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
        BoostContext {
            ranges: LimitRanges::merge(ranges.iter().map(|range| &**range)),
            ..BoostContext::default()
        }
    }

    /// The pod template of the pod's controller. None if it cannot be read: the updater may have no permission to read
    /// custom resources.
    async fn template(&self, pod: &Pod) -> Option<PodSpec> {
        let owner = controller_of(&pod.metadata)?;
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            plural: format!("{}s", owner.kind.to_lowercase()),
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let owners: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = owners.get_opt(&owner.name).await.unwrap_or_else(|error| {
            tracing::debug!(pod = %ObjectRef::of(pod), %error, "cannot read the controller of a pod");
            None
        })?;
        plumb_client::decode_template(found.data["spec"]["template"].clone()).ok()?.spec
    }
}

/// How far the end of a boost has come.
enum Progress {
    /// The API server has accepted the resize that ends it.
    Resized,
    /// The node has applied that, and the annotations are removed.
    Ended,
    /// The node has not applied it yet, or the pod has changed and comes again.
    Waits,
}

/// Whether containers get back to their own CPU rather than to the recommendation, because that does not fit the node now
/// or would change the QoS class. Once they have it, a recommendation that is higher is left to the updater of the VPA:
/// else the pod would be resized to and fro for as long as the node has no capacity.
fn prefers_own(pod: &Pod, stage: &Stage, recommended: &Unboost, own: &Unboost) -> bool {
    matches!(stage, Stage::Infeasible { .. } | Stage::Deferred { .. })
        || !recommended.keeps_qos_class(pod)
        || (own.is_possible(pod) && own.is_in_spec() && recommended.raises_requests())
}

/// The reasons for the end of the boosts of a pod that are due, for metrics.
fn ended_by(dues: &[(String, Due)], now: Timestamp) -> &'static str {
    let is_ready = dues.iter().any(|(_, due)| due.is_due(now) && matches!(due, Due::Ready(_)));
    if is_ready { "Ready" } else { "Deadline" }
}
