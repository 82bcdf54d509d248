//! Ends CPU start-up boosts: at Ready plus `durationSeconds`, by the event, through `/resize`. Never evicts.
//!
//! ```text
//!   pod with a boost ──▶ not due: again when it is ──▶ due: resize ──▶ applied: annotations are removed
//! ```
//!
//! A pod has its annotations until the resize is applied, and is not updated or evicted meanwhile: whatever fails is tried
//! again. What a boost is undone by is in the pod, so that a restart of the updater, or the end of the VPA or of its boost,
//! changes nothing about it. The gate `CPUStartupBoost` does not matter either: what is boosted is unboosted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LimitRange, Pod, PodSpec};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller::events::{EventRecorder, NewEvent};
use plumb_controller::metrics::Metrics;
use plumb_controller::{
    Clock, Controller, Informer, ObjectRef, Reconciler, Requeue, WorkQueue, controller_of,
};
use plumb_resize::Quantity;
use plumb_resize::status::{Stage, read};
use plumb_supervise::Supervisor;
use serde_json::{Value, json};

use crate::api::VerticalPodAutoscaler;
use crate::boost::annotation::{BOOSTS, boosted_containers, boosts_text, is_boosted, key, read_boosts};
use crate::boost::{BoostContext, Cpu, Due, Unboost, due};
use crate::informers::Informers;
use crate::recommendation::LimitRanges;
use crate::target::{TargetError, Targets};
use crate::vpas::Vpas;

use super::attempt::IN_PLACE_UPDATED;

/// The name of the task.
const NAME: &str = "vpa-updater/unboost";
/// How many pods are unboosted at a time.
const WORKERS: usize = 64;
/// How often a pod is read that is not watched, because no VPA exists.
const POLL: Duration = Duration::from_secs(5);

/// What ends boosts. Clones share it.
#[derive(Clone)]
pub(super) struct Unbooster(Arc<Inner>);

struct Inner {
    client: Client,
    informers: Informers,
    vpas: Vpas,
    limit_ranges: Informer<LimitRange>,
    queue: Arc<WorkQueue<ObjectRef>>,
    recorder: EventRecorder,
    clock: Clock,
    supervisor: Supervisor,
    metrics: Metrics,
    deadline: Option<Duration>,
}

/// What an [`Unbooster`] works with.
pub(super) struct Config {
    pub(super) client: Client,
    pub(super) informers: Informers,
    pub(super) targets: Targets,
    pub(super) limit_ranges: Informer<LimitRange>,
    pub(super) recorder: EventRecorder,
    pub(super) clock: Clock,
    pub(super) supervisor: Supervisor,
    pub(super) metrics: Metrics,
    /// For how long a pod that is not ready stays boosted.
    pub(super) deadline: Option<Duration>,
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
    #[error("nothing says what container {container} had before: {reason}")]
    Unresolved { container: String, reason: String },
    #[error("its QoS class would change")]
    QosClass,
}

impl Unbooster {
    /// Adds handlers to the informers.
    pub(super) fn new(config: Config) -> Self {
        let Config {
            client,
            informers,
            targets,
            limit_ranges,
            recorder,
            clock,
            supervisor,
            metrics,
            deadline,
        } = config;
        // Whether a VPA may boost does not matter for pods that are boosted.
        let vpas = Vpas::new(informers.vpas.store(), targets, true);
        let queue = Arc::new(WorkQueue::new(clock.clone()));
        let inner = Inner {
            client,
            vpas,
            limit_ranges,
            queue: queue.clone(),
            recorder,
            clock,
            supervisor,
            metrics,
            deadline,
            informers: informers.clone(),
        };
        informers.pods.add_handler(move |change| {
            if let Some(pod) = change.after.filter(|pod| is_boosted(pod)) {
                queue.add(ObjectRef::of(&**pod));
            }
        });
        let inner = Arc::new(inner);
        // A VPA that changes may end boosts earlier, later or otherwise.
        let weak = Arc::downgrade(&inner);
        informers.vpas.add_handler(move |change| {
            let spec = |vpa: Option<&Arc<VerticalPodAutoscaler>>| vpa.map(|vpa| vpa.spec.clone());
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
            inner.find_orphans().await;
            let controller = Controller::new(NAME, self::Pods(inner.clone()), &inner.supervisor)
                .with_queue(inner.queue.clone())
                .with_workers(WORKERS)
                .with_metrics(&inner.metrics);
            controller.run().await;
        }
        .boxed()
    }
}

struct Pods(Arc<Inner>);

impl Reconciler for Pods {
    type Key = ObjectRef;
    type Error = String;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, String> {
        let inner = &*self.0;
        let Some(pod) = inner.pod(key).await.map_err(|error| error.to_string())? else {
            return Ok(Requeue::AwaitChange);
        };
        let outcome = inner.reconcile(&pod).await;
        outcome.map_err(|error| {
            let message = format!("The CPU start-up boost cannot be ended yet: {error}");
            inner.recorder.record(
                pod.object_ref(&()),
                NewEvent::warning("UnboostFailed", message),
                inner.clock.now(),
            );
            error.to_string()
        })
    }
}

impl Inner {
    /// Boosted pods in a cluster without VPAs, where pods are not watched: one list finds them.
    async fn find_orphans(&self) {
        if !self.informers.vpas.is_empty() {
            return;
        }
        let pods: Api<Pod> = match self.informers.namespaces().only() {
            Some(only) => Api::namespaced(self.client.clone(), only),
            None => Api::all(self.client.clone()),
        };
        let mut page = ListParams::default().limit(500);
        loop {
            let list = match pods.list(&page).await {
                Ok(list) => list,
                Err(error) => {
                    tracing::warn!(%error, "pods whose boost was never ended cannot be listed");
                    return;
                }
            };
            for pod in list.items.iter().filter(|pod| is_boosted(pod)) {
                self.queue.add(ObjectRef::of(pod));
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return,
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

    async fn reconcile(&self, pod: &Pod) -> Result<Requeue, UnboostError> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended =
            matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some();
        if has_ended || !is_boosted(pod) {
            return Ok(Requeue::AwaitChange);
        }
        let vpa = match self.vpas.of_pod(&pod.metadata).await {
            Ok(controlling) => controlling.map(|controlling| controlling.vpa),
            Err(error) if error.is_transient() => return Err(UnboostError::Controller(error)),
            // The controller is gone, and the VPA with it.
            Err(_) => None,
        };
        let now = self.clock.now();
        let spec = vpa.as_ref().map(|vpa| &vpa.spec);
        let dues: Vec<(String, Due)> = boosted_containers(pod)
            .into_iter()
            .map(|container| {
                let due = due(pod, &container, spec, self.deadline);
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
        let mut unboost = plan(vpa.as_deref(), None);
        if !unboost.unresolved.is_empty() {
            let template = self.template(pod).await?;
            unboost = plan(vpa.as_deref(), template.as_ref());
        }
        let stage = read(pod)?.stage;
        // More than the boost may not fit the node; what the container had before does.
        if matches!(stage, Stage::Infeasible { .. } | Stage::Deferred { .. }) || !unboost.keeps_qos_class(pod)
        {
            unboost = plan(None, self.template(pod).await?.as_ref());
        }
        if let Some(unresolved) = unboost.unresolved.first() {
            let container = unresolved.container.clone();
            return Err(UnboostError::Unresolved { container, reason: unresolved.damaged.to_string() });
        }
        if !unboost.keeps_qos_class(pod) {
            return Err(UnboostError::QosClass);
        }
        if unboost.containers.iter().any(|container| container.from != container.to) {
            self.resize(pod, &unboost).await?;
        } else if stage == Stage::Applied {
            self.finish(pod, &unboost).await?;
        }
        Ok(self.again(next, now))
    }

    /// When the pod is looked at again.
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

    /// The pod template of the pod's controller.
    async fn template(&self, pod: &Pod) -> Result<Option<PodSpec>, UnboostError> {
        let Some(owner) = controller_of(&pod.metadata) else { return Ok(None) };
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
        let found = owners.get_opt(&owner.name).await;
        let found =
            found.map_err(|source| UnboostError::Request { operation: "reading its controller", source })?;
        let spec = found.map(|owner| owner.data["spec"]["template"]["spec"].clone());
        Ok(spec.and_then(|spec| serde_json::from_value(spec).ok()))
    }

    async fn resize(&self, pod: &Pod, unboost: &Unboost) -> Result<(), UnboostError> {
        let changed: Vec<Value> = unboost
            .containers
            .iter()
            .map(|container| {
                let mut resources = json!({});
                for (list, amount) in [("requests", container.to.request), ("limits", container.to.limit)] {
                    if let Some(amount) = amount {
                        resources[list] = json!({ "cpu": amount.to_string() });
                    }
                }
                json!({ "name": container.name, "resources": resources })
            })
            .collect();
        let patch = json!({
            "metadata": { "resourceVersion": pod.metadata.resource_version, "uid": pod.metadata.uid },
            "spec": { "containers": changed },
        });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let resized =
            self.pods(pod).patch_resize(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        match resized {
            Ok(_) => {}
            // It has changed since, and comes again.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => return Ok(()),
            Err(source) => return Err(UnboostError::Request { operation: "resizing the pod", source }),
        }
        for container in &unboost.containers {
            let damaged = container.damaged.as_ref();
            let from = damaged.map(|damaged| {
                format!(" (by {:?}: the annotation of the boost: {damaged})", container.source)
            });
            let message = format!(
                "CPU start-up boost of container {} ended: {} to {}{}",
                container.name,
                shown(container.from),
                shown(container.to),
                from.unwrap_or_default()
            );
            self.recorder.record(
                pod.object_ref(&()),
                NewEvent::normal("StartupBoostEnded", message),
                self.clock.now(),
            );
        }
        Ok(())
    }

    /// Removes the annotations of the boosts that have ended.
    async fn finish(&self, pod: &Pod, unboost: &Unboost) -> Result<(), UnboostError> {
        let ended: BTreeSet<&str> = unboost
            .containers
            .iter()
            .map(|container| container.name.as_str())
            .chain(unboost.unknown.iter().map(String::as_str))
            .collect();
        let mut annotations: BTreeMap<String, Option<String>> =
            ended.iter().map(|name| (key(name), None)).collect();
        let left: BTreeMap<_, _> =
            read_boosts(pod).into_iter().filter(|(name, _)| !ended.contains(name.as_str())).collect();
        let boosts =
            (!left.is_empty()).then(|| boosts_text(left.iter().map(|(name, boost)| (name.as_str(), *boost))));
        annotations.insert(BOOSTS.to_owned(), boosts);
        annotations.insert(IN_PLACE_UPDATED.to_owned(), Some("true".to_owned()));
        let patch = json!({ "metadata": { "uid": pod.metadata.uid, "annotations": annotations } });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match self.pods(pod).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(source) => Err(UnboostError::Request { operation: "removing the annotations", source }),
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }
}

fn shown(cpu: Cpu) -> String {
    let text = |amount: Option<Quantity>| amount.map_or("none".to_owned(), |amount| amount.to_string());
    match cpu.limit {
        Some(_) => format!("request {}, limit {}", text(cpu.request), text(cpu.limit)),
        None => format!("request {}", text(cpu.request)),
    }
}
