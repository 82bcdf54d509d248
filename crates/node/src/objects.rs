//! The config maps and secrets that pods name.
//!
//! A container that starts gets what is there at that moment, by asking. What volumes show follows the object:
//! one watch for each object that any pod needs, shared, and ended when nobody needs it any more. Where the API
//! cannot be reached, what a watch last told stands in.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use parking_lot::Mutex;
use plumb_controller::{Reflector, WatchConfig, WatchEvent, Watchable};
use plumb_supervise::Supervisor;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// How many changes of one object wait to be taken in; only the last one counts.
const BACKLOG: usize = 4;

/// What kind of object is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A config map.
    ConfigMap,
    /// A secret.
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

/// An object that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// Of which kind.
    pub kind: Kind,
    /// In which namespace.
    pub namespace: String,
    /// By which name.
    pub name: String,
}

impl Reference {
    /// A config map.
    pub fn config_map(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: Kind::ConfigMap, namespace: namespace.into(), name: name.into() }
    }

    /// A secret.
    pub fn secret(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: Kind::Secret, namespace: namespace.into(), name: name.into() }
    }
}

/// What is in a config map or secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// `data`.
    pub data: BTreeMap<String, Vec<u8>>,
    /// `binaryData` of a config map.
    pub binary: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// What is under a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).or_else(|| self.binary.get(key)).map(Vec::as_slice)
    }

    /// Everything.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.data.iter().chain(&self.binary).map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}

impl From<ConfigMap> for Content {
    fn from(map: ConfigMap) -> Self {
        let data = map.data.unwrap_or_default().into_iter();
        let binary = map.binary_data.unwrap_or_default().into_iter();
        Self {
            data: data.map(|(key, value)| (key, value.into_bytes())).collect(),
            binary: binary.map(|(key, value)| (key, value.0)).collect(),
        }
    }
}

impl From<Secret> for Content {
    fn from(secret: Secret) -> Self {
        let data = secret.data.unwrap_or_default().into_iter();
        Self { data: data.map(|(key, value)| (key, value.0)).collect(), binary: BTreeMap::new() }
    }
}

/// Why an object could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none.
    #[error("{kind} {name:?} not found")]
    NotFound {
        /// Of this kind.
        kind: Kind,
        /// By this name.
        name: String,
    },
    /// The API refused, or cannot be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl ReadError {
    /// Whether there is no such object, which is well if it is optional.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Reads and follows objects.
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

/// What a watch last told: nothing yet, that there is none, or what is in it.
type Latest = Option<Option<Arc<Content>>>;

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
        let Some(registry) = self.registry.upgrade() else { return };
        let mut registry = registry.lock();
        // Somebody may have begun anew between the last one's end and this.
        if registry.get(&self.reference).is_some_and(|other| other.strong_count() == 0) {
            registry.remove(&self.reference);
        }
    }
}

/// An object that is followed until this is dropped.
pub struct Follower {
    watching: Arc<Watching>,
    content: watch::Receiver<Latest>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Follower").field(&self.watching.reference).finish()
    }
}

impl Follower {
    /// Waits until something was told that was not seen yet. Never answers if nothing ever is.
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
    /// Those that this client may read.
    pub fn new(client: Client) -> Self {
        Self { client, followed: Arc::default(), supervisor: Supervisor::default() }
    }

    /// The same, whose watches are restarted and counted there.
    #[must_use]
    pub fn supervised(self, supervisor: &Supervisor) -> Self {
        Self { supervisor: supervisor.clone(), ..self }
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// The objects that are followed at the moment.
    pub fn followed(&self) -> Vec<Reference> {
        self.followed.lock().keys().cloned().collect()
    }

    /// What is in an object now.
    pub async fn read(&self, reference: &Reference) -> Result<Arc<Content>, ReadError> {
        let read = match reference.kind {
            Kind::ConfigMap => self.get::<ConfigMap>(reference).await,
            Kind::Secret => self.get::<Secret>(reference).await,
        };
        match read {
            Ok(Some(content)) => Ok(Arc::new(content)),
            Ok(None) => Err(not_found(reference)),
            Err(refused @ kube::Error::Api(_)) => Err(refused.into()),
            Err(error) => match self.last_told(reference) {
                Some(Some(content)) => Ok(content),
                Some(None) => Err(not_found(reference)),
                None => Err(error.into()),
            },
        }
    }

    /// What was last told of an object that is followed, else what is in it now.
    pub async fn told_or_read(&self, reference: &Reference) -> Result<Arc<Content>, ReadError> {
        match self.last_told(reference) {
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

    fn last_told(&self, reference: &Reference) -> Latest {
        let watching = self.followed.lock().get(reference).and_then(Weak::upgrade)?;
        watching.content.borrow().clone()
    }

    /// Follows an object, together with everybody else who does.
    pub fn follow(&self, reference: &Reference) -> Follower {
        let mut followed = self.followed.lock();
        let watching = followed.get(reference).and_then(Weak::upgrade).unwrap_or_else(|| {
            let watching = Arc::new(self.watch(reference));
            followed.insert(reference.clone(), Arc::downgrade(&watching));
            watching
        });
        drop(followed);
        Follower { content: watching.content.clone(), watching }
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

/// Keeps what is told of one object.
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
            // A change of something else about it is none.
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
