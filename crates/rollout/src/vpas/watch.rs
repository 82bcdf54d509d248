//! The VPAs of a cluster, which may have no definition of them.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::PartialObjectMeta;
use plumb_client::Api;
use plumb_controller::informer::Synced;
use plumb_controller::{Informer, ObjectRef, WatchConfig};
use plumb_supervise::Supervisor;
use tokio::sync::watch;

use super::VerticalPodAutoscaler;

const DEFINITION: &str = "verticalpodautoscalers.autoscaling.k8s.io";

/// Watches VPAs while they are defined. Clones share what they watch.
#[derive(Clone)]
pub(crate) struct Vpas {
    definitions: Informer<PartialObjectMeta<CustomResourceDefinition>>,
    objects: Informer<VerticalPodAutoscaler>,
    defined: Arc<watch::Sender<bool>>,
}

impl Default for Vpas {
    fn default() -> Self {
        let named = WatchConfig::default().fields(format!("metadata.name={DEFINITION}"));
        let (definitions, defined) = (Informer::new(named), Arc::new(watch::Sender::new(false)));
        let changed = defined.clone();
        definitions.add_handler(move |change| _ = changed.send_replace(change.after.is_some()));
        Self { definitions, objects: Informer::default(), defined }
    }
}

impl Vpas {
    /// All that are known.
    pub(crate) fn objects(&self) -> &Informer<VerticalPodAutoscaler> {
        &self.objects
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
