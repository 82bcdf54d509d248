//! The objects of a kind in memory, with indexes and handlers.
//!
//! A store returns at once and does no I/O. Objects are shared ([`Arc`]): a controller that holds one for a while
//! holds that version, and no copy.

mod inner;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ListParams;
use parking_lot::Mutex;
use plumb_client::Api;
use tokio::sync::watch;

use crate::object_ref::{ObjectRef, resource_version};
use crate::own_writes::Write;
use crate::reflector::{WatchEvent, Watchable};
use inner::Inner;

/// The timeout of [`Store::catch_up`]: an object that was deleted since the list may never be observed.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A change of an object: it existed before, exists after, or both.
pub struct Change<'a, K> {
    /// The object before the change; none if it was created.
    pub before: Option<&'a Arc<K>>,
    /// The object after the change; none if it was deleted.
    pub after: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// The latest version: the object after the change, or before it if it was deleted.
    pub fn latest(&self) -> Option<&'a Arc<K>> {
        self.after.or(self.before)
    }
}

type Handler<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// The objects of a kind.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use plumb_controller_runtime::{ObjectRef, Store, WatchEvent};
///
/// let pods: Store<Pod> = Store::default();
/// pods.add_handler(|change| {
///     if change.before.is_none() {
///         println!("a pod was created");
///     }
/// });
/// let mut pod = Pod::default();
/// (pod.metadata.namespace, pod.metadata.name) = (Some("team".into()), Some("web".into()));
/// pods.apply(WatchEvent::Applied(Box::new(pod)));
/// assert!(pods.get(&ObjectRef::namespaced("team", "web")).is_some());
/// assert_eq!(pods.in_namespace("team").len(), 1);
/// ```
pub struct Store<K> {
    inner: Mutex<Inner<K>>,
    handlers: Mutex<Vec<Handler<K>>>,
    observed: watch::Sender<Observed>,
}

/// How far a store has come.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    /// Whether the first list was applied.
    synced: bool,
    /// The latest resource version.
    resource_version: u64,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner::default()),
            handlers: Mutex::default(),
            observed: watch::Sender::new(Observed::default()),
        }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("observed", &*self.observed.borrow()).finish_non_exhaustive()
    }
}

/// The objects of a store by a value that a function computes from each, as client-go's `Indexer`.
pub struct Index<K> {
    store: Arc<Store<K>>,
    position: usize,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), position: self.position }
    }
}

impl<K: Resource> Index<K> {
    /// The objects that have a value, by namespace and name.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        self.store.inner.lock().by_index(self.position, value)
    }
}

impl<K: Resource> Store<K> {
    /// Applies an event, and calls the handlers for what changed. An object that is listed again with the resource version
    /// that is known is no change.
    pub fn apply(&self, event: WatchEvent<K>) {
        let resource_version = match &event {
            WatchEvent::Restarted(objects) => {
                objects.iter().map(|object| resource_version(object.meta())).max().unwrap_or_default()
            }
            WatchEvent::Applied(object) => resource_version(object.meta()),
            WatchEvent::Deleted(_) => 0,
        };
        self.apply_at(Some(event), resource_version);
    }

    /// Applies an event, if there is one, and notes how far the watch has come.
    pub(crate) fn apply_at(&self, event: Option<WatchEvent<K>>, resource_version: u64) {
        let restarted = matches!(event, Some(WatchEvent::Restarted(_)));
        match event {
            Some(WatchEvent::Restarted(objects)) => {
                let mut missing = self.inner.lock().refs();
                for object in objects {
                    missing.remove(&ObjectRef::of(&object));
                    self.insert(object);
                }
                for object in missing {
                    self.remove(&object);
                }
            }
            Some(WatchEvent::Applied(object)) => self.insert(*object),
            Some(WatchEvent::Deleted(object)) => self.remove(&object),
            None => {}
        }
        self.observed.send_modify(|observed| {
            observed.synced |= restarted;
            observed.resource_version = observed.resource_version.max(resource_version);
        });
    }

    fn insert(&self, object: K) {
        let object = Arc::new(object);
        let before = self.inner.lock().insert(object.clone());
        let unchanged = before.as_ref().is_some_and(|before| {
            before.meta().resource_version.is_some()
                && before.meta().resource_version == object.meta().resource_version
        });
        if !unchanged {
            self.handle(&Change { before: before.as_ref(), after: Some(&object) });
        }
    }

    fn remove(&self, object: &ObjectRef) {
        let before = self.inner.lock().remove(object);
        if before.is_some() {
            self.handle(&Change { before: before.as_ref(), after: None });
        }
    }

    fn handle(&self, change: &Change<'_, K>) {
        // The objects are not locked meanwhile: a handler may read any store.
        let handlers = self.handlers.lock();
        let mut panic = None;
        for handler in handlers.iter() {
            // A handler that panics must not keep the change from the others: it is not delivered again.
            panic = catch_unwind(AssertUnwindSafe(|| handler(change))).err().or(panic);
        }
        drop(handlers);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Has a function called for each change from now on. It must return quickly, and must not add a handler to this
    /// store.
    pub fn add_handler(&self, handler: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.handlers.lock().push(Box::new(handler));
    }

    /// Adds an index. The function returns the values of an object: an `Option`, a `Vec`, or any other collection.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use plumb_controller_runtime::Store;
    /// let pods: Arc<Store<Pod>> = Arc::default();
    /// let by_node = pods.add_index(|pod: &Pod| pod.spec.as_ref()?.node_name.clone());
    /// assert!(by_node.get("node-1").is_empty());
    /// ```
    pub fn add_index<V>(self: &Arc<Self>, values: impl Fn(&K) -> V + Send + Sync + 'static) -> Index<K>
    where
        V: IntoIterator<Item = String>,
    {
        let position =
            self.inner.lock().add_index(Box::new(move |object| values(object).into_iter().collect()));
        Index { store: self.clone(), position }
    }

    /// An object.
    pub fn get(&self, object: &ObjectRef) -> Option<Arc<K>> {
        self.inner.lock().get(object)
    }

    /// All objects, by namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.inner.lock().all()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.lock().len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.inner.lock().in_namespace(namespace)
    }

    /// The objects whose controller has a uid.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.inner.lock().controlled_by(uid)
    }

    /// The objects of a namespace that have no controller.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        self.inner.lock().orphans(namespace)
    }

    /// Whether the first list was applied.
    pub fn has_synced(&self) -> bool {
        self.observed.borrow().synced
    }

    /// Waits until the first list was applied.
    pub async fn wait_for_sync(&self) {
        // The sender lives as long as the store.
        let _ = self.observed.subscribe().wait_for(|observed| observed.synced).await;
    }

    /// Waits until the store has observed a write of this process, or that the object is gone.
    pub async fn wait_for_write(&self, write: &Write) {
        match write {
            // It may have been deleted meanwhile, so what counts is how far the watch has come.
            Write::Created { resource_version } => self.wait_for_version(*resource_version).await,
            Write::Updated { object, uid, resource_version: written } => {
                let is_other = |meta: &ObjectMeta| meta.uid.as_deref() != Some(uid);
                self.wait_until(object, |meta| is_other(meta) || resource_version(meta) >= *written).await;
            }
            Write::Deleted { object, uid } => {
                let is_other = |meta: &ObjectMeta| meta.uid.as_deref() != Some(uid);
                self.wait_until(object, |meta| is_other(meta) || meta.deletion_timestamp.is_some()).await;
            }
        }
    }

    async fn wait_for_version(&self, resource_version: u64) {
        let reached = |observed: &Observed| observed.resource_version >= resource_version;
        // The sender lives as long as the store.
        let _ = self.observed.subscribe().wait_for(reached).await;
    }

    async fn wait_until(&self, object: &ObjectRef, is_so: impl Fn(&ObjectMeta) -> bool) {
        let is_so = |_: &Observed| self.get(object).is_none_or(|object| is_so(object.meta()));
        // The sender lives as long as the store.
        let _ = self.observed.subscribe().wait_for(is_so).await;
    }
}

impl<K: Watchable> Store<K> {
    /// Waits until the store has the current objects of the API server: no other mechanism waits for the writes of an
    /// interrupted reconcile.
    pub async fn catch_up(&self, api: impl Into<Api<K>>) -> kube::Result<()> {
        let listed = api.into().list_metadata(&ListParams::default()).await?;
        let latest = listed.items.iter().map(|object| resource_version(&object.metadata)).max();
        let reached = self.wait_for_version(latest.unwrap_or_default());
        // An elapsed timeout is no failure, see there.
        let _ = tokio::time::timeout(CATCH_UP, reached).await;
        Ok(())
    }
}
