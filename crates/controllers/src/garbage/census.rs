//! All objects of all kinds, custom ones too: which kinds there are, and what is said of every object.
//!
//! Kinds come and go with the definitions of custom resources; each is followed for as long as it is served. Only what
//! is said of every object is read, not the objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use plumb_client::Api;
use plumb_controller::informer::Synced;
use plumb_controller::{Reconciler, Reflector, Requeue, WatchConfig, WatchEvent, WorkQueue};
use plumb_supervise::Supervisor;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::graph::{Graph, KindId, Thing};
use crate::Clients;

/// How often it is asked which kinds there are, whatever happened.
const ASK_AGAIN: Duration = Duration::from_mins(5);
/// Where kinds come from.
const DEFINITIONS: &str = "customresourcedefinitions";
/// What nobody owns, and what passes by itself.
const NOT_FOLLOWED: &str = "events";

/// A kind that is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// How it is reached.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether they can be deleted all at once.
    pub sweepable: bool,
    /// Whether its objects are in the graph.
    pub followed: bool,
}

impl Served {
    /// Its objects, in a namespace if they are in one.
    pub fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }

    fn name(&self) -> (String, String) {
        (self.resource.group.clone(), self.resource.plural.clone())
    }
}

/// Who wants to know which namespaces have become empty.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// The name of the task, in health checks and metrics.
pub const TASK: &str = "resource-discovery";

/// Finds out which kinds are served, and follows their objects, until the future is dropped.
pub fn run(census: &Arc<Census>, clients: Clients) -> BoxFuture<'static, ()> {
    let reconciler = Discoverer {
        census: census.clone(),
        client: clients.watch.clone(),
        supervisor: clients.supervisor.clone(),
        informers: Mutex::default(),
    };
    census.discovery.add(());
    clients.controller(TASK, reconciler).with_queue(census.discovery.clone()).run()
}

/// Reconciles the informers with the kinds that are served.
struct Discoverer {
    census: Arc<Census>,
    client: Client,
    supervisor: Supervisor,
    informers: Mutex<Informers>,
}

/// The tasks that watch the metadata of objects.
#[derive(Default)]
struct Informers {
    running: JoinSet<()>,
    by_kind: HashMap<KindId, AbortHandle>,
}

impl Reconciler for Discoverer {
    type Key = ();
    type Error = kube::Error;

    async fn reconcile(&self, (): &()) -> kube::Result<Requeue> {
        let found = Discovery::new(self.client.clone()).run_aggregated().await?;
        let (new, gone) = self.census.compare(served(&found));
        let mut informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        for number in gone {
            if let Some(task) = informers.by_kind.remove(&number) {
                task.abort();
            }
            self.census.apply(number, WatchEvent::Restarted(Vec::new()));
        }
        for (number, kind) in new {
            let task = informers.running.spawn(self.follow(number, &kind));
            informers.by_kind.insert(number, task);
        }
        // What was aborted leaves the set.
        while informers.running.try_join_next().is_some() {}
        self.census.note_ready();
        Ok(Requeue::After(ASK_AGAIN))
    }
}

impl Discoverer {
    /// Watches the metadata of the objects of a kind for good.
    fn follow(&self, number: KindId, kind: &Served) -> impl Future<Output = ()> + Send + use<> {
        let (census, api) = (self.census.clone(), Api::all_with(self.client.clone(), &kind.resource));
        let name = format!("metadata-informer/{}.{}", kind.resource.plural, kind.resource.group);
        self.supervisor.keep(name.trim_end_matches('.'), move || {
            let (census, api) = (census.clone(), api.clone());
            async move { census.watch(number, api).await }
        })
    }
}

/// All objects.
pub struct Census {
    graph: Mutex<Graph>,
    kinds: Mutex<Kinds>,
    /// The objects to be collected or not, by uid.
    pub(super) queue: Arc<WorkQueue<String>>,
    /// Asks for the kinds again.
    discovery: Arc<WorkQueue<()>>,
    listeners: Mutex<Vec<Listener>>,
    ready: watch::Sender<bool>,
}

#[derive(Default)]
struct Kinds {
    /// A kind keeps its number when it is gone; one that comes back gets another.
    all: Vec<Option<Served>>,
    numbers: HashMap<(String, String), KindId>,
    /// The kinds that have not told what is there.
    unread: BTreeSet<KindId>,
    /// Whose owners are of kinds that are not served.
    unresolved: BTreeSet<String>,
}

impl Default for Census {
    fn default() -> Self {
        Self {
            graph: Mutex::default(),
            kinds: Mutex::default(),
            queue: Arc::default(),
            discovery: Arc::default(),
            listeners: Mutex::default(),
            ready: watch::Sender::new(false),
        }
    }
}

impl Census {
    /// Who owns whom.
    pub fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that are served.
    pub fn served(&self) -> Vec<Served> {
        self.kinds().all.iter().flatten().cloned().collect()
    }

    /// A kind by its number.
    pub(super) fn kind(&self, number: KindId) -> Option<Served> {
        self.kinds().all.get(number)?.clone()
    }

    /// The kind that a reference is about.
    pub(super) fn kind_of(&self, owner: &OwnerReference) -> Option<Served> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let kinds = self.kinds();
        let mut served = kinds.all.iter().flatten();
        served.find(|kind| kind.resource.group == group && kind.resource.kind == owner.kind).cloned()
    }

    /// Judges an object again when there are other kinds.
    pub(super) fn wait_for_kinds(&self, uid: &str) {
        self.kinds().unresolved.insert(uid.to_owned());
    }

    /// Has a function called with the name of each namespace of which nothing is left.
    pub fn when_empty(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    /// Waits until everything is known once.
    pub async fn ready(&self) {
        // The sender lives as long as this.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Takes in which kinds are served, and answers which are to be followed from now on, and which no more.
    fn compare(&self, served: Vec<Served>) -> (Vec<(KindId, Served)>, Vec<KindId>) {
        let mut kinds = self.kinds();
        let names: BTreeSet<_> = served.iter().map(Served::name).collect();
        let gone: Vec<_> = kinds
            .numbers
            .iter()
            .filter(|(name, _)| !names.contains(*name))
            .map(|(_, number)| *number)
            .collect();
        kinds.numbers.retain(|name, _| names.contains(name));
        for number in &gone {
            kinds.all[*number] = None;
            kinds.unread.remove(number);
        }
        let mut new = Vec::new();
        for kind in served {
            if kinds.numbers.contains_key(&kind.name()) {
                continue;
            }
            let number = kinds.all.len();
            kinds.numbers.insert(kind.name(), number);
            kinds.all.push(Some(kind.clone()));
            if kind.followed {
                kinds.unread.insert(number);
                new.push((number, kind));
            }
        }
        if !new.is_empty() {
            for uid in std::mem::take(&mut kinds.unresolved) {
                self.queue.add(uid);
            }
        }
        (new, gone)
    }

    /// Watches the metadata of the objects of a kind for good.
    async fn watch(&self, number: KindId, api: Api<DynamicObject>) {
        let makes_kinds = self.kind(number).is_some_and(|kind| kind.resource.plural == DEFINITIONS);
        let mut events = std::pin::pin!(Reflector::metadata_only(api, WatchConfig::default()).into_stream());
        while let Some(event) = events.next().await {
            let restarted = matches!(event, WatchEvent::Restarted(_));
            self.apply(number, event);
            if restarted {
                self.kinds().unread.remove(&number);
                self.note_ready();
            }
            if makes_kinds {
                self.discovery.add(());
            }
        }
    }

    fn note_ready(&self) {
        let ready = {
            let kinds = self.kinds();
            !kinds.all.is_empty() && kinds.unread.is_empty()
        };
        if ready {
            self.ready.send_replace(true);
        }
    }

    fn apply(&self, kind: KindId, event: WatchEvent<PartialObjectMeta<DynamicObject>>) {
        let mut empty = Vec::new();
        let touched = {
            let mut graph = self.graph();
            match event {
                WatchEvent::Restarted(objects) => {
                    let things = objects.iter().map(|object| Thing::new(kind, &object.metadata)).collect();
                    graph.replace(kind, things)
                }
                WatchEvent::Applied(object) => graph.put(Thing::new(kind, &object.metadata)),
                WatchEvent::Deleted(at) => {
                    let touched = graph.remove(kind, &at);
                    if !at.namespace.is_empty() && graph.count_within(&at.namespace) == 0 {
                        empty.push(at.namespace);
                    }
                    touched
                }
            }
        };
        for uid in touched {
            self.queue.add(uid);
        }
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for namespace in empty {
            for listener in listeners.iter() {
                listener(&namespace);
            }
        }
    }
}

impl Synced for Census {
    fn synced(&self) -> BoxFuture<'_, ()> {
        self.ready().boxed()
    }
}

/// The kinds that an API serves, each once.
fn served(found: &Discovery) -> Vec<Served> {
    let kinds = found.groups().flat_map(kube::discovery::ApiGroup::resources_by_stability);
    let kinds = kinds.map(|(resource, can)| {
        let deletable = can.supports_operation(verbs::DELETE);
        let seen = can.supports_operation(verbs::LIST) && can.supports_operation(verbs::WATCH);
        Served {
            namespaced: can.scope == Scope::Namespaced,
            sweepable: can.supports_operation(verbs::DELETE_COLLECTION)
                && can.supports_operation(verbs::LIST),
            followed: deletable && seen && resource.plural != NOT_FOLLOWED,
            resource,
        }
    });
    kinds.collect()
}
