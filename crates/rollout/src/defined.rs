//! Kinds that a cluster may not define: their objects are watched while a definition serves them.

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller_runtime::informer::Synced;
use plumb_controller_runtime::{Informer, ObjectRef, WatchConfig, WatchEvent, Watchable};
use plumb_supervise::Supervisor;
use tokio::sync::watch;

/// Whether the version of a kind is served. Clones share the watch.
#[derive(Clone)]
pub(crate) struct Definition {
    definitions: Informer<CustomResourceDefinition>,
    name: ObjectRef,
    served: Arc<watch::Sender<bool>>,
}

impl Definition {
    /// The definition of a kind.
    pub(crate) fn of<K: Resource<DynamicType = ()>>() -> Self {
        let (name, version) = (format!("{}.{}", K::plural(&()), K::group(&())), K::version(&()).into_owned());
        let named = WatchConfig::default().fields(format!("metadata.name={name}"));
        let definitions: Informer<CustomResourceDefinition> =
            Informer::new(named).with_transform(without_schemas);
        let served = Arc::new(watch::Sender::new(false));
        let changed = served.clone();
        definitions.add_handler(move |change| {
            let is_served = change.after.is_some_and(|definition| serves(definition, &version));
            changed.send_if_modified(|served| std::mem::replace(served, is_served) != is_served);
        });
        Self { definitions, name: ObjectRef::cluster(name), served }
    }

    /// Watches the definition until it is dropped.
    pub(crate) fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        self.definitions.supervised(Api::all(client.clone()), supervisor)
    }

    /// Waits until the kind is served, or until it is not.
    pub(crate) async fn until(&self, served: bool) {
        // The sender is part of this: it is there.
        let _ = self.served.subscribe().wait_for(|is_served| *is_served == served).await;
    }
}

/// Whether the API server serves a version of a kind.
fn serves(definition: &CustomResourceDefinition, version: &str) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut established = conditions.filter(|condition| condition.type_ == "Established");
    established.any(|condition| condition.status == "True")
        && definition.spec.versions.iter().any(|one| one.name == version && one.served)
}

/// A definition without its schemas, which are large.
fn without_schemas(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        version.schema = None;
    }
    definition
}

/// An informer of a kind that may not be served. It is empty while the kind is not. Clones share the watch.
pub(crate) struct DefinedInformer<K> {
    definition: Definition,
    objects: Informer<K>,
}

impl<K> Clone for DefinedInformer<K> {
    fn clone(&self) -> Self {
        Self { definition: self.definition.clone(), objects: self.objects.clone() }
    }
}

impl<K> Deref for DefinedInformer<K> {
    type Target = Informer<K>;

    fn deref(&self) -> &Informer<K> {
        &self.objects
    }
}

impl<K: Watchable + Resource<DynamicType = ()>> DefinedInformer<K> {
    /// Has an informer run while its kind is served.
    pub(crate) fn new(objects: Informer<K>) -> Self {
        Self { definition: Definition::of::<K>(), objects }
    }

    /// Watches until it is dropped.
    pub(crate) fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let definition = self.definition.run(client, supervisor);
        let (this, client, supervisor) = (self.clone(), client.clone(), supervisor.clone());
        let objects = async move {
            loop {
                this.definition.until(true).await;
                let watching = this.objects.supervised(Api::all(client.clone()), &supervisor);
                tokio::select! {
                    () = watching => {}
                    () = this.definition.until(false) => {}
                }
                this.objects.apply(WatchEvent::Restarted(Vec::new()));
            }
        };
        async move { _ = tokio::join!(definition, objects) }.boxed()
    }
}

impl<K: Watchable + Resource<DynamicType = ()>> Synced for DefinedInformer<K> {
    fn synced(&self) -> BoxFuture<'_, ()> {
        async {
            let Definition { definitions, name, served } = &self.definition;
            definitions.wait_for_sync().await;
            if definitions.get(name).is_some() && *served.borrow() {
                self.objects.wait_for_sync().await;
            }
        }
        .boxed()
    }
}
