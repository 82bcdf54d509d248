//! Stores that are kept up to date by a watch, one per kind, shared by all controllers of a process.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::convert::identity;
use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use kube::{Client, Resource};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

use crate::metrics::Metrics;
use crate::reflector::{Reflector, WatchConfig, Watchable};
use crate::store::Store;

/// A [`Store`] that is kept up to date by a [`Reflector`]. Clones share the store.
pub struct Informer<K> {
    store: Arc<Store<K>>,
    config: WatchConfig,
    transform: fn(K) -> K,
    metrics: Option<Metrics>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            config: self.config.clone(),
            transform: self.transform,
            metrics: self.metrics.clone(),
        }
    }
}

impl<K> Default for Informer<K> {
    fn default() -> Self {
        Self { store: Arc::default(), config: WatchConfig::default(), transform: identity, metrics: None }
    }
}

impl<K> Deref for Informer<K> {
    type Target = Arc<Store<K>>;

    fn deref(&self) -> &Arc<Store<K>> {
        &self.store
    }
}

impl<K: Watchable> Informer<K> {
    /// An informer of the objects that a configuration selects.
    pub fn new(config: WatchConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// The same, with a function that reduces each object (client-go's `SetTransform`).
    #[must_use]
    pub fn with_transform(mut self, transform: fn(K) -> K) -> Self {
        self.transform = transform;
        self
    }

    /// The same, whose reflector counts.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store<K>> {
        &self.store
    }

    /// Updates the store for good. A second run starts with a list, which completes an update that the first was in
    /// the middle of.
    pub async fn run(&self, api: impl Into<Api<K>>) {
        let mut reflector = Reflector::new(api, self.config.clone()).with_transform(self.transform);
        if let Some(metrics) = &self.metrics {
            reflector = reflector.with_metrics(metrics);
        }
        loop {
            let progress = reflector.next().await;
            self.store.apply_at(progress.event, progress.resource_version);
        }
    }

    /// The same under a supervisor, as the task `informer/PLURAL`.
    pub fn supervised(&self, api: impl Into<Api<K>>, supervisor: &Supervisor) -> BoxFuture<'static, ()>
    where
        K: Resource<DynamicType = ()>,
    {
        let (informer, api) = (self.clone(), api.into());
        let running = supervisor.keep(&format!("informer/{}", K::plural(&())), move || {
            let (informer, api) = (informer.clone(), api.clone());
            async move { informer.run(api).await }
        });
        running.boxed()
    }
}

/// Something that is complete once a first list was applied.
pub trait Synced: Send + Sync {
    /// Waits for that.
    fn synced(&self) -> BoxFuture<'_, ()>;
}

impl<K: Watchable> Synced for Store<K> {
    fn synced(&self) -> BoxFuture<'_, ()> {
        self.wait_for_sync().boxed()
    }
}

/// The informers of a process: one per kind, shared by all controllers (client-go's `SharedInformerFactory`).
///
/// ```
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// # use plumb_controller_runtime::InformerFactory;
/// # use plumb_supervise::Supervisor;
/// async fn run(client: kube::Client) {
///     let informers = InformerFactory::default();
///     let pods = informers.informer::<Pod>();
///     let nodes = informers.informer::<Node>();
///     pods.add_handler(|change| println!("{} a pod", if change.after.is_some() { "saw" } else { "lost" }));
///     let _running = informers.start(&client, &Supervisor::default());
///     informers.wait_for_sync().await;
///     println!("{} pods on {} nodes", pods.len(), nodes.len());
/// }
/// ```
#[derive(Default)]
pub struct InformerFactory {
    kinds: Mutex<Kinds>,
    metrics: Option<Metrics>,
}

#[derive(Default)]
struct Kinds {
    by_type: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// In the order of their requests.
    entries: Vec<Arc<dyn Entry>>,
}

trait Entry: Send + Sync {
    fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()>;
    fn store(&self) -> &dyn Synced;
    fn catch_up<'a>(&'a self, client: &Client) -> BoxFuture<'a, kube::Result<()>>;
}

impl<K: Watchable + Resource<DynamicType = ()>> Entry for Informer<K> {
    fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        self.supervised(Api::all(client.clone()), supervisor)
    }

    fn store(&self) -> &dyn Synced {
        &*self.store
    }

    fn catch_up<'a>(&'a self, client: &Client) -> BoxFuture<'a, kube::Result<()>> {
        let api = Api::<K>::all(client.clone());
        async move { self.store.catch_up(api).await }.boxed()
    }
}

impl InformerFactory {
    /// A factory of informers whose reflectors count.
    pub fn with_metrics(metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..Self::default() }
    }

    /// The informer of all objects of a kind.
    pub fn informer<K: Watchable + Resource<DynamicType = ()>>(&self) -> Informer<K> {
        self.informer_with(identity)
    }

    /// The same, with a function that reduces each object. The first request of a kind decides.
    pub fn informer_with<K: Watchable + Resource<DynamicType = ()>>(
        &self,
        transform: fn(K) -> K,
    ) -> Informer<K> {
        let mut kinds = self.kinds.lock();
        let known = kinds.by_type.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Informer<K>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let mut informer = Informer::<K>::default().with_transform(transform);
        informer.metrics.clone_from(&self.metrics);
        kinds.by_type.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        kinds.entries.push(Arc::new(informer.clone()));
        informer
    }

    /// Starts all requested informers, in tasks that end with the set. Handlers are added before.
    pub fn start(&self, client: &Client, supervisor: &Supervisor) -> JoinSet<()> {
        let mut running = JoinSet::new();
        for entry in self.entries() {
            running.spawn(entry.run(client, supervisor));
        }
        running
    }

    /// Waits until all requested informers have synced.
    pub async fn wait_for_sync(&self) {
        for entry in self.entries() {
            entry.store().synced().await;
        }
    }

    /// Waits until all stores have the current objects of the API server, see [`Store::catch_up`].
    pub async fn catch_up(&self, client: &Client) -> kube::Result<()> {
        for entry in self.entries() {
            entry.catch_up(client).await?;
        }
        Ok(())
    }

    fn entries(&self) -> Vec<Arc<dyn Entry>> {
        self.kinds.lock().entries.clone()
    }
}
