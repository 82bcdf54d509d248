//! A controller in fifty lines: every namespace that asks for it by the annotation `example.com/memory-limit` has a
//! `LimitRange` named `default-limits` with that default. `cargo run -p plumb-controller-runtime --example default_limits` runs it
//! on the cluster of the current kubeconfig; `tests/it/example.rs` runs it on an API server in the test's process.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LimitRange, Namespace};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plumb_controller_runtime::{Controller, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Write};
use plumb_supervise::Supervisor;
use serde_json::{Value, json};

pub(crate) const ANNOTATION: &str = "example.com/memory-limit";
pub(crate) const NAME: &str = "default-limits";

struct DefaultLimits {
    client: Client,
    namespaces: Arc<Store<Namespace>>,
    limits: Arc<Store<LimitRange>>,
}

/// What is to be applied in a namespace, if the limits there are others. Pure.
pub(crate) fn decide(namespace: &Namespace, found: Option<&LimitRange>) -> Option<Value> {
    let wanted = namespace.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    let limit = found.and_then(|found| found.spec.as_ref()?.limits.first()?.default.as_ref()?.get("memory"));
    let item = json!({ "type": "Container", "default": { "memory": wanted } });
    (limit.map(|limit| &limit.0) != Some(wanted))
        .then(|| json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": NAME }, "spec": { "limits": [item] } }))
}

impl Reconciler for DefaultLimits {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, namespace: &ObjectRef) -> kube::Result<Requeue> {
        let found = self.limits.get(&ObjectRef::namespaced(&*namespace.name, NAME));
        let Some(namespace) = self.namespaces.get(namespace) else { return Ok(Requeue::AwaitChange) };
        if let Some(wanted) = decide(&namespace, found.as_deref()) {
            let name = ObjectRef::of(&*namespace).name;
            let api: Api<LimitRange> = Api::namespaced(self.client.clone(), &name);
            let applied = api.patch(NAME, &PatchParams::apply(NAME).force(), &Patch::Apply(wanted)).await?;
            // Otherwise the next reconcile might decide from a store that does not hold this write yet.
            self.limits.wait_for_write(&Write::created(&applied.metadata)).await;
        }
        Ok(Requeue::AwaitChange)
    }
}

/// Runs the controller until the future is dropped.
pub(crate) async fn run(client: Client, supervisor: Supervisor) {
    let informers = InformerFactory::default();
    let (namespaces, limits) = (informers.informer::<Namespace>(), informers.informer::<LimitRange>());
    let reconciler = DefaultLimits {
        client: client.clone(),
        namespaces: namespaces.store().clone(),
        limits: limits.store().clone(),
    };
    let controller = Controller::new(NAME, reconciler, &supervisor).reconciles(&namespaces).watches(
        &limits,
        |change, queue| {
            if let Some(limits) = change.latest() {
                queue.add(ObjectRef::cluster(ObjectRef::of(&**limits).namespace));
            }
        },
    );
    let _informing = informers.start(&client, &supervisor);
    controller.run().await;
}

#[tokio::main]
async fn main() -> Result<(), kube::Error> {
    run(Client::try_default().await?, Supervisor::default()).await;
    Ok(())
}
