//! The Endpoints of Services with a selector: upstream's `endpoint-controller`. The API is deprecated, and clients still
//! read it.

pub mod decide;
pub(crate) mod subsets;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, ObjectReference, Pod, Service};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_controller_runtime::{
    Clock, Informer, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Write, pods as pod_functions,
};

use crate::Clients;
use crate::endpoints::membership::Membership;
use crate::endpoints::trigger_time::TriggerTimes;
use crate::endpoints::{LEADER_ANNOTATION, selector, service_type};
use crate::workload::Note;
use crate::workload::recorder::Recorder;

pub use crate::endpointslice::Config;
use decide::{Action, State, decide};

/// The name of this controller's user, and of its label.
pub const NAME: &str = "endpoint-controller";
/// How many Services are reconciled at a time.
const WORKERS: usize = 5;
/// How long own writes are awaited.
const OBSERVED_WITHIN: Duration = Duration::from_secs(30);

/// Reconciles the Endpoints of Services until the future is dropped.
pub fn run(
    clients: Clients,
    informers: &InformerFactory,
    membership: &Arc<Membership>,
    config: Config,
) -> BoxFuture<'static, ()> {
    let (services, endpoints) = (informers.informer::<Service>(), informers.informer::<Endpoints>());
    let pods: Informer<Pod> = informers.informer_with(pod_functions::essence);
    let reconciler = EndpointsOfServices {
        client: clients.write.clone(),
        services: services.store().clone(),
        endpoints: endpoints.store().clone(),
        membership: membership.clone(),
        trigger_times: TriggerTimes::default(),
        recorder: Recorder::start(clients.write.clone(), NAME, &clients.supervisor, &clients.metrics),
        clock: config.clock.clone(),
    };
    let known = services.store().clone();
    let controller = clients
        .controller(NAME, reconciler)
        .with_clock(config.clock)
        .with_workers(WORKERS)
        .awaits(pods.store().clone())
        .watches(&services, |change, queue| {
            if let Some(service) = change.latest() {
                queue.add(ObjectRef::of(&**service));
            }
        })
        .watches(&endpoints, move |change, queue| {
            let Some(endpoints) = change.latest() else { return };
            let key = ObjectRef::of(&**endpoints);
            // Upstream reads Endpoints without a Service at its start only. Those that users create before the Service are
            // left alone here as there, and all that appear before the Services are known are looked at again.
            if change.after.is_none() || !known.has_synced() {
                queue.add(key);
            }
        });
    let (queue, batch_period) = (controller.queue().clone(), config.batch_period);
    membership.subscribe(move |service| queue.add_after(service.clone(), batch_period));
    controller.run()
}

/// Reconciles the Endpoints of Services.
struct EndpointsOfServices {
    client: Client,
    services: Arc<Store<Service>>,
    endpoints: Arc<Store<Endpoints>>,
    membership: Arc<Membership>,
    trigger_times: TriggerTimes,
    recorder: Recorder,
    clock: Clock,
}

impl Reconciler for EndpointsOfServices {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, key: &ObjectRef) -> kube::Result<Requeue> {
        let api = Api::<Endpoints>::namespaced(self.client.clone(), &key.namespace);
        let current = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            self.trigger_times.forget(key);
            if let Some(current) = current.filter(|current| !is_lock(current)) {
                self.delete(&api, key, &current).await?;
            }
            return Ok(Requeue::AwaitChange);
        };
        if selector(&service).is_none() || service_type(&service) == "ExternalName" {
            return Ok(Requeue::AwaitChange);
        }
        let pods = self.membership.pods(key);
        let trigger_time = self.trigger_times.observe(key, &service, &pods);
        let Some(action) = decide(&State { service, pods, current, trigger_time }) else {
            return Ok(Requeue::AwaitChange);
        };
        let params = PostParams::default();
        let (written, endpoints, reason, failed) = match &action {
            Action::Create(endpoints) => {
                let written = api.create(&params, endpoints).await;
                (written, endpoints, "FailedToCreateEndpoint", format!("create endpoint for service {key}"))
            }
            Action::Update(endpoints) => {
                let written = api.replace(&key.name, &params, endpoints).await;
                (written, endpoints, "FailedToUpdateEndpoint", format!("update endpoint {key}"))
            }
        };
        match written {
            Ok(written) => {
                let write = match &action {
                    Action::Create(_) => Write::created(&written.metadata),
                    Action::Update(_) => Write::updated(&written.metadata),
                };
                self.observe(&write).await;
                Ok(Requeue::AwaitChange)
            }
            // Conflict, or the store is behind: the object is read again once the store has caught up.
            Err(error) if is_conflict(&error) => Err(error),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Err(kube::Error::Api(status)),
            Err(error) if is_settled(&error) => Ok(Requeue::AwaitChange),
            Err(error) => {
                let note = Note::warning(reason, format!("Failed to {failed}: {error}"));
                self.recorder.record(endpoints.object_ref(&()), note, self.clock.now());
                Err(error)
            }
        }
    }

    fn regarding(&self, service: &ObjectRef) -> Option<ObjectReference> {
        self.services.get(service).map(|found| found.object_ref(&()))
    }
}

impl EndpointsOfServices {
    async fn delete(&self, api: &Api<Endpoints>, key: &ObjectRef, current: &Endpoints) -> kube::Result<()> {
        let uid = current.metadata.uid.clone();
        let preconditions = Some(Preconditions { uid: uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match api.delete(&key.name, &params).await {
            Ok(()) => self.observe(&Write::deleted(key.clone(), uid.unwrap_or_default())).await,
            Err(error) if is_settled(&error) || is_conflict(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn observe(&self, write: &Write) {
        if tokio::time::timeout(OBSERVED_WITHIN, self.endpoints.wait_for_write(write)).await.is_err() {
            tracing::warn!(
                ?write,
                "an own write of Endpoints was not observed in time, continuing without it"
            );
        }
    }
}

/// Whether Endpoints are a lock of leader election, which has no Service.
fn is_lock(endpoints: &Endpoints) -> bool {
    endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER_ANNOTATION))
}

#[cfg(test)]
mod tests;
