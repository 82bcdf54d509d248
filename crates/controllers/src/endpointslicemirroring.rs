//! `EndpointSlice`s of Endpoints that users write: upstream's `endpointslicemirroring-controller`.
//!
//! A Service without a selector has the Endpoints that a user gives it; proxies read slices only. Endpoints with the label
//! `endpointslice.kubernetes.io/skip-mirror: "true"` are not mirrored: their writer maintains slices too.

pub mod decide;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, ObjectReference, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource as _;
use plumb_controller_runtime::work_queue::RateLimit;
use plumb_controller_runtime::{Clock, InformerFactory, ObjectRef, Reconciler, Requeue, Store, WorkQueue};

use crate::Clients;
use crate::endpoints::writer::{Changes, SliceWriter, WriteError};
use crate::endpoints::{SlicesByService, is_managed_by, selector, service_of};
use crate::workload::recorder::Recorder;

use decide::{decide, is_mirrored};

/// The name of this controller's user.
pub const NAME: &str = "endpointslicemirroring-controller";
/// The value of the label `endpointslice.kubernetes.io/managed-by` of its slices.
pub const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The component that its events name as their source.
const EVENT_SOURCE: &str = "endpoint-slice-mirroring-controller";
/// The number of addresses of a subset that are mirrored.
pub const MAX_ENDPOINTS: usize = 1000;
/// How many Endpoints are reconciled at a time.
const WORKERS: usize = 5;
/// Upstream's backoff after failures.
const RATE_LIMIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(100));

/// Mirrors Endpoints until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, clock: Clock) -> BoxFuture<'static, ()> {
    let (services, endpoints) = (informers.informer::<Service>(), informers.informer::<Endpoints>());
    let slices = informers.informer::<EndpointSlice>();
    let reconciler = Mirroring {
        services: services.store().clone(),
        endpoints: endpoints.store().clone(),
        slices: SlicesByService::new(&slices),
        writer: SliceWriter { client: clients.write.clone(), slices: slices.store().clone() },
        recorder: Recorder::start(clients.write.clone(), EVENT_SOURCE, &clients.supervisor, &clients.metrics),
        clock: clock.clone(),
    };
    let (first, ceiling) = RATE_LIMIT;
    let queue = WorkQueue::new(clock).rate_limit(RateLimit { first, ceiling, ..RateLimit::default() });
    clients
        .controller(NAME, reconciler)
        .with_queue(Arc::new(queue))
        .with_workers(WORKERS)
        .watches(&services, |change, queue| {
            let selects = |service: Option<&Arc<Service>>| service.map(|service| selector(service).is_some());
            if selects(change.before) != selects(change.after)
                && let Some(service) = change.latest()
            {
                queue.add(ObjectRef::of(&**service));
            }
        })
        .watches(&endpoints, |change, queue| {
            let mirrored = |endpoints: Option<&Arc<Endpoints>>| endpoints.is_some_and(|one| is_mirrored(one));
            if (mirrored(change.before) || mirrored(change.after))
                && let Some(endpoints) = change.latest()
            {
                queue.add(ObjectRef::of(&**endpoints));
            }
        })
        .watches(&slices, |change, queue| {
            let ours = [change.before, change.after]
                .into_iter()
                .flatten()
                .filter(|slice| is_managed_by(slice, MANAGER));
            for service in ours.filter_map(|slice| service_of(slice)) {
                queue.add(service);
            }
        })
        .run()
}

/// Mirrors Endpoints.
struct Mirroring {
    services: Arc<Store<Service>>,
    endpoints: Arc<Store<Endpoints>>,
    slices: SlicesByService,
    writer: SliceWriter,
    recorder: Recorder,
    clock: Clock,
}

impl Reconciler for Mirroring {
    type Key = ObjectRef;
    type Error = WriteError;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, WriteError> {
        let slices = self.slices.managed_by(key, MANAGER);
        let service = self.services.get(key).filter(|service| selector(service).is_none());
        let endpoints = self.endpoints.get(key).filter(|endpoints| is_mirrored(endpoints));
        let about = format!("Endpoints {key}");
        let (Some(_), Some(endpoints)) = (service, endpoints) else {
            let changes = Changes { delete: slices, ..Changes::default() };
            self.writer.perform(&key.namespace, &about, &changes).await?;
            return Ok(Requeue::AwaitChange);
        };
        let decided = decide(&endpoints, &slices, MAX_ENDPOINTS);
        for note in decided.notes {
            self.recorder.record(endpoints.object_ref(&()), note, self.clock.now());
        }
        self.writer.perform(&key.namespace, &about, &decided.changes).await?;
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, endpoints: &ObjectRef) -> Option<ObjectReference> {
        self.endpoints.get(endpoints).map(|found| found.object_ref(&()))
    }
}

#[cfg(test)]
mod tests;
