//! `EndpointSlice`s of Services with a selector: upstream's `endpointslice-controller`.
//!
//! ```text
//!   Service, its pods, their nodes ──▶ decide: endpoints by ports ▸ pack into slices ▸ hints ──▶ create, update, delete
//! ```
//!
//! `ready` is a pod that is ready and not terminating (or any, with `publishNotReadyAddresses`), `serving` one that is ready,
//! `terminating` one that is to go. Pods whose named target ports differ are in different slices.

pub mod decide;
pub(crate) mod endpoint;
mod hints;
mod labels;
pub(crate) mod pack;
pub mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource as _;
use parking_lot::Mutex;
use plumb_controller_runtime::work_queue::RateLimit;
use plumb_controller_runtime::{
    Change, Clock, InformerFactory, ObjectRef, Reconciler, Requeue, Store, WorkQueue, pods as pod_functions,
};

use crate::Clients;
use crate::endpoints::membership::Membership;
use crate::endpoints::trigger_time::TriggerTimes;
use crate::endpoints::writer::{SliceWriter, WriteError};
use crate::endpoints::{SlicesByService, is_managed_by, selector, service_of, service_type};
use crate::nodes::health::is_ready;
use crate::workload::Note;
use crate::workload::recorder::Recorder;

use decide::{State, decide};
use hints::is_topology_aware;
use topology::{AssignedHints, CpuRatios, zone};

/// The name of this controller's user.
pub const NAME: &str = "endpointslice-controller";
/// The value of the label `endpointslice.kubernetes.io/managed-by` of its slices.
pub const MANAGER: &str = "endpointslice-controller.k8s.io";
/// The component that its events name as their source.
const EVENT_SOURCE: &str = "endpoint-slice-controller";

/// The number of endpoints in a slice.
pub const MAX_ENDPOINTS: usize = 100;
/// How many Services are reconciled at a time.
const WORKERS: usize = 5;
/// How long the controller waits after a slice changed, so that many that change are one reconcile.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);
/// Upstream's backoff after failures.
const RATE_LIMIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1000));

/// Settings of the controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long changes of pods are collected before a Service is reconciled (`--endpoint-updates-batch-period`).
    pub batch_period: Duration,
    /// The clock of its queue and its events.
    pub clock: Clock,
}

impl Config {
    /// Upstream's defaults.
    pub fn new(clock: Clock) -> Self {
        Self { batch_period: Duration::ZERO, clock }
    }
}

/// Reconciles the slices of Services until the future is dropped.
pub fn run(
    clients: Clients,
    informers: &InformerFactory,
    membership: &Arc<Membership>,
    config: Config,
) -> BoxFuture<'static, ()> {
    let (services, slices) = (informers.informer::<Service>(), informers.informer::<EndpointSlice>());
    let nodes = informers.informer::<Node>();
    let pods = informers.informer_with(pod_functions::essence);
    let reconciler = EndpointSlices {
        services: services.store().clone(),
        nodes: nodes.store().clone(),
        slices: SlicesByService::new(&slices),
        writer: SliceWriter { client: clients.write.clone(), slices: slices.store().clone() },
        membership: membership.clone(),
        trigger_times: TriggerTimes::default(),
        assigned_hints: Arc::default(),
        recorder: Recorder::start(clients.write.clone(), EVENT_SOURCE, &clients.supervisor, &clients.metrics),
        clock: config.clock.clone(),
    };
    let (first, ceiling) = RATE_LIMIT;
    let limit = RateLimit { first, ceiling, ..RateLimit::default() };
    let queue = Arc::new(WorkQueue::new(config.clock).rate_limit(limit));
    let (of_pods, batch_period) = (queue.clone(), config.batch_period);
    membership.subscribe(move |service| of_pods.add_after(service.clone(), batch_period));
    let slice_delay = SLICE_CHANGE_DELAY.max(batch_period);
    let (known_nodes, assigned_hints) = (nodes.store().clone(), reconciler.assigned_hints.clone());
    clients
        .controller(NAME, reconciler)
        .with_queue(queue)
        .with_workers(WORKERS)
        .awaits(pods.store().clone())
        .watches(&nodes, move |change, queue| {
            let assigned_hints = assigned_hints.lock();
            if assigned_hints.is_empty() || !changes_topology(change) {
                return;
            }
            let ratios = CpuRatios::from_nodes(known_nodes.all().iter().map(AsRef::as_ref));
            let overloaded = assigned_hints.iter().filter(|(_, hints)| hints.is_overloaded(&ratios));
            overloaded.for_each(|(service, _)| queue.add(service.clone()));
        })
        .watches(&services, |change, queue| {
            if let Some(service) = change.latest() {
                queue.add(ObjectRef::of(&**service));
            }
        })
        // Own writes come back here too: that reconcile finds nothing to do.
        .watches(&slices, move |change, queue| {
            let ours = [change.before, change.after]
                .into_iter()
                .flatten()
                .filter(|slice| is_managed_by(slice, MANAGER));
            for service in ours.filter_map(|slice| service_of(slice)) {
                queue.add_after(service, slice_delay);
            }
        })
        .run()
}

/// Reconciles the slices of Services.
struct EndpointSlices {
    services: Arc<Store<Service>>,
    nodes: Arc<Store<Node>>,
    slices: SlicesByService,
    writer: SliceWriter,
    membership: Arc<Membership>,
    trigger_times: TriggerTimes,
    /// The hints of Services with the annotation for topology-aware routing.
    assigned_hints: Arc<Mutex<BTreeMap<ObjectRef, AssignedHints>>>,
    recorder: Recorder,
    clock: Clock,
}

/// Why the slices of a Service could not be reconciled.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0}")]
    Skipped(String),
}

impl Reconciler for EndpointSlices {
    type Key = ObjectRef;
    type Error = ReconcileError;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, ReconcileError> {
        let Some(service) = self.services.get(key) else {
            // The garbage collector deletes the slices with their owner.
            self.trigger_times.forget(key);
            self.assigned_hints.lock().remove(key);
            return Ok(Requeue::AwaitChange);
        };
        if selector(&service).is_none() || service_type(&service) == "ExternalName" {
            return Ok(Requeue::AwaitChange);
        }
        let pods = self.membership.pods(key);
        let mut zones = BTreeMap::new();
        for node in pods.iter().filter_map(|pod| pod_functions::node_of(pod)) {
            if !zones.contains_key(node)
                && let Some(found) = self.nodes.get(&ObjectRef::cluster(node))
            {
                zones.insert(node.to_owned(), zone(&found).map(str::to_owned));
            }
        }
        let cpu_ratios = if is_topology_aware(&service) {
            CpuRatios::from_nodes(self.nodes.all().iter().map(AsRef::as_ref))
        } else {
            CpuRatios::default()
        };
        let state = State {
            cpu_ratios,
            assigned_hints: self.assigned_hints.lock().get(key).cloned().unwrap_or_default(),
            trigger_time: self.trigger_times.observe(key, &service, &pods),
            slices: self.slices.managed_by(key, MANAGER),
            service,
            pods,
            zones,
        };
        let decided = decide(&state, MAX_ENDPOINTS);
        self.remember(key, decided.assigned_hints);
        let written = self.writer.perform(&key.namespace, &format!("Service {key}"), &decided.changes).await;
        for note in decided.notes {
            self.recorder.record(state.service.object_ref(&()), note, self.clock.now());
        }
        let result = match (written, decided.skipped) {
            (Err(error), _) if error.is_conflict() => return Err(error.into()),
            (Err(error), _) => Err(error.into()),
            (Ok(()), skipped) if !skipped.is_empty() => {
                Err(ReconcileError::Skipped(format!("[{}]", skipped.join(", "))))
            }
            (Ok(()), _) => Ok(Requeue::AwaitChange),
        };
        if let Err(error) = &result {
            let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
            let note = Note::warning("FailedToUpdateEndpointSlices", message);
            self.recorder.record(state.service.object_ref(&()), note, self.clock.now());
        }
        result
    }

    fn regarding(&self, service: &ObjectRef) -> Option<ObjectReference> {
        self.services.get(service).map(|found| found.object_ref(&()))
    }
}

impl EndpointSlices {
    fn remember(&self, service: &ObjectRef, hints: AssignedHints) {
        let mut all = self.assigned_hints.lock();
        if hints.is_empty() {
            all.remove(service);
        } else {
            all.insert(service.clone(), hints);
        }
    }
}

/// Whether a change of a node may change the CPU of zones. Changes of its allocatable CPU do not count, as upstream.
fn changes_topology(change: &Change<'_, Node>) -> bool {
    match (change.before, change.after) {
        (Some(before), Some(after)) => is_ready(before) != is_ready(after) || zone(before) != zone(after),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
