//! The `ConfigMap`s and Secrets that pods refer to.
//!
//! A container that starts gets the current object by a GET. Volumes follow the object: there is one shared watch for
//! each object that a pod refers to, which ends with its last subscription. If the API server cannot be reached, the
//! last object of the watch is used.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent, Watchable};
use plumb_supervise::Supervisor;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// How many changes of one object may be queued; only the last one counts.
const BACKLOG: usize = 4;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        })
    }
}

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// A `ConfigMap`.
    pub fn config_map(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: Kind::ConfigMap, namespace: namespace.into(), name: name.into() }
    }

    /// A Secret.
    pub fn secret(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: Kind::Secret, namespace: namespace.into(), name: name.into() }
    }
}

/// The data of a `ConfigMap` or Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The uid of the object.
    pub uid: String,
    /// `data`.
    pub data: BTreeMap<String, Vec<u8>>,
    /// `binaryData` of a `ConfigMap`.
    pub binary: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).or_else(|| self.binary.get(key)).map(Vec::as_slice)
    }

    /// All keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.data.iter().chain(&self.binary).map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}

impl From<ConfigMap> for Content {
    fn from(map: ConfigMap) -> Self {
        let data = map.data.unwrap_or_default().into_iter();
        let binary = map.binary_data.unwrap_or_default().into_iter();
        Self {
            uid: map.metadata.uid.unwrap_or_default(),
            data: data.map(|(key, value)| (key, value.into_bytes())).collect(),
            binary: binary.map(|(key, value)| (key, value.0)).collect(),
        }
    }
}

impl From<Secret> for Content {
    fn from(secret: Secret) -> Self {
        let data = secret.data.unwrap_or_default().into_iter();
        Self {
            uid: secret.metadata.uid.unwrap_or_default(),
            data: data.map(|(key, value)| (key, value.0)).collect(),
            binary: BTreeMap::new(),
        }
    }
}

/// Why an object could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not exist.
    #[error("{kind} {name:?} not found")]
    NotFound {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl ReadError {
    /// Whether the object does not exist, which is no error if it is optional.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Reads and watches objects.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    followed: Arc<Mutex<HashMap<Reference, Weak<Watching>>>>,
    supervisor: Supervisor,
}

/// One watch.
struct Watching {
    reference: Reference,
    content: watch::Receiver<Latest>,
    task: AbortHandle,
    registry: Weak<Mutex<HashMap<Reference, Weak<Watching>>>>,
}

/// The last state of a watch: none yet, that the object does not exist, or its data.
type Latest = Option<Option<Arc<Content>>>;

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
        let Some(registry) = self.registry.upgrade() else { return };
        let mut registry = registry.lock();
        // A new watch may have been started since the last subscription ended.
        if registry.get(&self.reference).is_some_and(|other| other.strong_count() == 0) {
            registry.remove(&self.reference);
        }
    }
}

/// A subscription to an object, which is watched until the last one is dropped.
pub struct Subscription {
    watching: Arc<Watching>,
    content: watch::Receiver<Latest>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.watching.reference).finish()
    }
}

impl Subscription {
    /// Resolves when the object has changed since the last call.
    pub async fn changed(&mut self) {
        if self.content.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("followed", &self.followed.lock().len()).finish_non_exhaustive()
    }
}

impl Objects {
    /// The objects that this client may read.
    pub fn new(client: Client) -> Self {
        Self { client, followed: Arc::default(), supervisor: Supervisor::default() }
    }

    /// The same, with its watches under a supervisor.
    #[must_use]
    pub fn supervised(self, supervisor: &Supervisor) -> Self {
        Self { supervisor: supervisor.clone(), ..self }
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// The objects that are being watched.
    pub fn watched(&self) -> Vec<Reference> {
        self.followed.lock().keys().cloned().collect()
    }

    /// The current data of an object.
    pub async fn read(&self, reference: &Reference) -> Result<Arc<Content>, ReadError> {
        let read = match reference.kind {
            Kind::ConfigMap => self.get::<ConfigMap>(reference).await,
            Kind::Secret => self.get::<Secret>(reference).await,
        };
        match read {
            Ok(Some(content)) => Ok(Arc::new(content)),
            Ok(None) => Err(not_found(reference)),
            Err(refused @ kube::Error::Api(_)) => Err(refused.into()),
            Err(error) => match self.last_received(reference) {
                Some(Some(content)) => Ok(content),
                Some(None) => Err(not_found(reference)),
                None => Err(error.into()),
            },
        }
    }

    /// The last data of an object that is watched, else its current data.
    pub async fn cached_or_read(&self, reference: &Reference) -> Result<Arc<Content>, ReadError> {
        match self.last_received(reference) {
            Some(Some(content)) => Ok(content),
            Some(None) => Err(not_found(reference)),
            None => self.read(reference).await,
        }
    }

    async fn get<K>(&self, reference: &Reference) -> Result<Option<Content>, kube::Error>
    where
        K: Watchable + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        Content: From<K>,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &reference.namespace);
        Ok(api.get_opt(&reference.name).await?.map(Content::from))
    }

    fn last_received(&self, reference: &Reference) -> Latest {
        let watching = self.followed.lock().get(reference).and_then(Weak::upgrade)?;
        watching.content.borrow().clone()
    }

    /// Subscribes to an object; all subscriptions share one watch.
    pub fn subscribe(&self, reference: &Reference) -> Subscription {
        let mut followed = self.followed.lock();
        let watching = followed.get(reference).and_then(Weak::upgrade).unwrap_or_else(|| {
            let watching = Arc::new(self.watch(reference));
            followed.insert(reference.clone(), Arc::downgrade(&watching));
            watching
        });
        drop(followed);
        Subscription { content: watching.content.clone(), watching }
    }

    fn watch(&self, reference: &Reference) -> Watching {
        let (latest, content) = watch::channel(None);
        let (client, at, latest) = (self.client.clone(), reference.clone(), Arc::new(latest));
        // A restart reads the object again.
        let watching = move || {
            let (client, at, latest) = (client.clone(), at.clone(), latest.clone());
            async move {
                match at.kind {
                    Kind::ConfigMap => keep::<ConfigMap>(client, at, &latest).await,
                    Kind::Secret => keep::<Secret>(client, at, &latest).await,
                }
            }
        };
        let task = tokio::spawn(self.supervisor.finish_one_of("node-object-watch", watching));
        Watching {
            reference: reference.clone(),
            content,
            task: task.abort_handle(),
            registry: Arc::downgrade(&self.followed),
        }
    }
}

fn not_found(reference: &Reference) -> ReadError {
    ReadError::NotFound { kind: reference.kind, name: reference.name.clone() }
}

/// Watches one object.
async fn keep<K>(client: Client, reference: Reference, latest: &watch::Sender<Latest>)
where
    K: Watchable + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    Content: From<K>,
{
    let api = Api::<K>::namespaced(client, &reference.namespace);
    let config = WatchConfig::default().fields(format!("metadata.name={}", reference.name));
    let (sender, mut events) = mpsc::channel(BACKLOG);
    let taking = async {
        while let Some(event) = events.recv().await {
            let content = match event {
                WatchEvent::Restarted(objects) => objects.into_iter().next().map(Content::from),
                WatchEvent::Applied(object) => Some(Content::from(*object)),
                WatchEvent::Deleted(_) => None,
            };
            // The data may not have changed.
            latest.send_if_modified(|known| {
                let new = Some(content.map(Arc::new));
                let changed = *known != new;
                *known = new;
                changed
            });
        }
    };
    tokio::join!(Reflector::new(api, config).run(sender), taking);
}
