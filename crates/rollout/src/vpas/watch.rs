//! The VPAs of a cluster, which may have no definition of them.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::PartialObjectMeta;
use plumb_client::Api;
use plumb_controller::informer::Synced;
use plumb_controller::store::Index;
use plumb_controller::{Informer, ObjectRef, WatchConfig};
use plumb_supervise::Supervisor;
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::sync::watch;

use super::Owners;
use crate::engine::Selected;

const DEFINITION: &str = "verticalpodautoscalers.autoscaling.k8s.io";

/// The workload that a VPA names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: String,
    pub(crate) object: ObjectRef,
}

impl Target {
    fn of(vpa: &VerticalPodAutoscaler) -> Self {
        let target = &vpa.spec.target_ref;
        let namespace = vpa.metadata.namespace.clone().unwrap_or_default();
        Self { kind: target.kind.clone(), object: ObjectRef::namespaced(namespace, target.name.clone()) }
    }

    fn text(&self) -> String {
        format!("{}/{}", self.kind, self.object)
    }
}

/// Watches VPAs while they are defined. Clones share what they watch.
#[derive(Clone)]
pub(crate) struct Vpas {
    definitions: Informer<PartialObjectMeta<CustomResourceDefinition>>,
    objects: Informer<VerticalPodAutoscaler>,
    by_target: Index<VerticalPodAutoscaler>,
    defined: Arc<watch::Sender<bool>>,
}

impl Default for Vpas {
    fn default() -> Self {
        let named = WatchConfig::default().fields(format!("metadata.name={DEFINITION}"));
        let (definitions, defined) = (Informer::new(named), Arc::new(watch::Sender::new(false)));
        let changed = defined.clone();
        definitions.add_handler(move |change| _ = changed.send_replace(change.after.is_some()));
        let objects: Informer<VerticalPodAutoscaler> = Informer::default().with_transform(without_status);
        let by_target = objects.add_index(|vpa: &VerticalPodAutoscaler| Some(Target::of(vpa).text()));
        Self { definitions, objects, by_target, defined }
    }
}

/// What a rollout reads of a VPA: recommendations are the updater's.
fn without_status(vpa: VerticalPodAutoscaler) -> VerticalPodAutoscaler {
    VerticalPodAutoscaler { status: None, ..vpa }
}

impl Vpas {
    /// The VPAs that own resources of the pods of a workload.
    pub(crate) fn owners(&self, workload: &Selected<'_>) -> Owners {
        let (namespace, name) = (workload.metadata.namespace.clone(), workload.metadata.name.clone());
        let object = ObjectRef::namespaced(namespace.unwrap_or_default(), name.unwrap_or_default());
        let target = Target { kind: workload.kind.to_owned(), object };
        Owners::of(&self.by_target.get(&target.text()), workload)
    }

    /// Has a function called with the workload of each VPA that changes, and with the one before the change.
    pub(crate) fn add_handler(&self, handler: impl Fn(Target) + Send + Sync + 'static) {
        self.objects.add_handler(move |change| {
            for vpa in [change.before, change.after].into_iter().flatten() {
                handler(Target::of(vpa));
            }
        });
    }

    /// Watches until it is dropped.
    pub(crate) fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let definitions = self.definitions.supervised(Api::all(client.clone()), supervisor);
        let (vpas, client, supervisor) = (self.clone(), client.clone(), supervisor.clone());
        let objects = async move {
            let mut defined = vpas.defined.subscribe();
            loop {
                // The sender is part of `vpas`: it is there.
                let _ = defined.wait_for(|defined| *defined).await;
                let watching = vpas.objects.supervised(Api::all(client.clone()), &supervisor);
                tokio::select! {
                    () = watching => {}
                    _ = defined.wait_for(|defined| !*defined) => {}
                }
            }
        };
        async move { _ = tokio::join!(definitions, objects) }.boxed()
    }
}

impl Synced for Vpas {
    fn synced(&self) -> BoxFuture<'_, ()> {
        async {
            self.definitions.wait_for_sync().await;
            if self.definitions.get(&ObjectRef::cluster(DEFINITION)).is_some() {
                self.objects.wait_for_sync().await;
            }
        }
        .boxed()
    }
}
