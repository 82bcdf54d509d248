//! Builds the graph of all objects, custom resources included: discovers which resources are served, and watches the metadata
//! of their objects.
//!
//! Resources come and go with CustomResourceDefinitions; each is monitored for as long as it is served.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use parking_lot::{Mutex, MutexGuard};
use plumb_client::Api;
use plumb_controller_runtime::informer::Synced;
use plumb_controller_runtime::{Reconciler, Reflector, Requeue, WatchConfig, WatchEvent, WorkQueue};
use plumb_supervise::Supervisor;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::graph::{Graph, KindId, Node};
use crate::Clients;

/// How often resources are discovered if no definition changes, as by upstream's garbage collector: what an API server serves
/// may change a moment after the event of the definition that says so.
const RESYNC: Duration = Duration::from_secs(30);
/// The resource whose objects define others.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// The resource whose objects have no owners, and expire.
const IGNORED: &str = "events";

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// How it is reached.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether they can be deleted as a collection.
    pub deletes_collections: bool,
    /// Whether its objects are watched and in the graph.
    pub monitored: bool,
}

impl ServedResource {
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

/// A callback with the name of a namespace that has become empty.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// The name of the task, in health checks and metrics.
pub const TASK: &str = "resource-discovery";

/// Discovers resources, and monitors their objects, until the future is dropped.
pub fn run(graph_builder: &Arc<GraphBuilder>, clients: Clients) -> BoxFuture<'static, ()> {
    let reconciler = Discoverer {
        graph_builder: graph_builder.clone(),
        client: clients.watch.clone(),
        supervisor: clients.supervisor.clone(),
        informers: tokio::sync::Mutex::default(),
    };
    graph_builder.discovery.add(());
    clients.controller(TASK, reconciler).with_queue(graph_builder.discovery.clone()).run()
}

/// Reconciles the informers with the resources that are served.
struct Discoverer {
    graph_builder: Arc<GraphBuilder>,
    client: Client,
    supervisor: Supervisor,
    informers: tokio::sync::Mutex<Informers>,
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
        let Changes { stop, remove, start } = self.graph_builder.compare(served(&found));
        let mut informers = self.informers.lock().await;
        let stopped: Vec<_> = stop.iter().filter_map(|number| informers.by_kind.remove(number)).collect();
        for task in &stopped {
            task.abort();
        }
        // Only a task that was aborted ends. It gives its name back to the supervisor before another is started under it.
        for _ in &stopped {
            informers.running.join_next().await;
        }
        for number in remove {
            self.graph_builder.apply(number, WatchEvent::Restarted(Vec::new()));
        }
        for (number, kind) in start {
            let task = informers.running.spawn(self.monitor(number, &kind));
            informers.by_kind.insert(number, task);
        }
        self.graph_builder.note_synced();
        Ok(Requeue::After(RESYNC))
    }
}

impl Discoverer {
    /// Watches the metadata of the objects of a resource for good.
    fn monitor(&self, number: KindId, kind: &ServedResource) -> impl Future<Output = ()> + Send + use<> {
        let (graph_builder, api) =
            (self.graph_builder.clone(), Api::all_with(self.client.clone(), &kind.resource));
        let name = format!("metadata-informer/{}.{}", kind.resource.plural, kind.resource.group);
        self.supervisor.keep(name.trim_end_matches('.'), move || {
            let graph_builder = graph_builder.clone();
            let api = api.clone();
            async move { graph_builder.watch(number, api).await }
        })
    }
}

/// The graph, and its inputs.
pub struct GraphBuilder {
    graph: Mutex<Graph>,
    kinds: Mutex<Kinds>,
    /// The objects to reconcile, by uid.
    pub(super) queue: Arc<WorkQueue<String>>,
    /// Discovers the resources.
    discovery: Arc<WorkQueue<()>>,
    listeners: Mutex<Vec<Listener>>,
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct Kinds {
    /// By number; none for one that is not served.
    all: Vec<Option<ServedResource>>,
    /// By group and plural. A resource keeps its number while it is not served, until its definition is deleted.
    numbers: HashMap<(String, String), KindId>,
    /// Those that are defined by a CustomResourceDefinition.
    custom: HashSet<KindId>,
    /// The resources whose objects were not listed yet.
    unlisted: BTreeSet<KindId>,
    /// The objects whose owners are of kinds that are not served, by uid.
    unresolved: BTreeSet<String>,
}

/// What changes with the resources that are served.
#[derive(Debug, Default)]
struct Changes {
    /// The resources whose monitor is stopped.
    stop: Vec<KindId>,
    /// The resources whose objects no longer exist.
    remove: Vec<KindId>,
    /// The resources whose monitor is started, or restarted with another version.
    start: Vec<(KindId, ServedResource)>,
}

/// The name of the CustomResourceDefinition of a resource.
fn definition((group, plural): &(String, String)) -> String {
    format!("{plural}.{group}")
}

impl Default for GraphBuilder {
    fn default() -> Self {
        Self {
            graph: Mutex::default(),
            kinds: Mutex::default(),
            queue: Arc::default(),
            discovery: Arc::default(),
            listeners: Mutex::default(),
            synced: watch::Sender::new(false),
        }
    }
}

impl GraphBuilder {
    /// The graph.
    pub fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock()
    }

    /// The resources that are served.
    pub fn served(&self) -> Vec<ServedResource> {
        self.kinds.lock().all.iter().flatten().cloned().collect()
    }

    /// A resource by its number.
    pub(super) fn kind(&self, number: KindId) -> Option<ServedResource> {
        self.kinds.lock().all.get(number)?.clone()
    }

    /// The resource of an owner.
    pub(super) fn kind_of(&self, owner: &OwnerReference) -> Option<ServedResource> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let kinds = self.kinds.lock();
        let mut served = kinds.all.iter().flatten();
        served.find(|kind| kind.resource.group == group && kind.resource.kind == owner.kind).cloned()
    }

    /// Reconciles an object again when other resources are served.
    pub(super) fn retry_after_discovery(&self, uid: &str) {
        self.kinds.lock().unresolved.insert(uid.to_owned());
    }

    /// Sets the function that is called with the name of each namespace that has become empty.
    pub fn on_empty_namespace(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.lock().push(Box::new(listener));
    }

    /// Waits until the objects of all resources were listed.
    pub async fn wait_for_sync(&self) {
        // The sender lives as long as this.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Updates the served resources, and returns the changes.
    fn compare(&self, served: Vec<ServedResource>) -> Changes {
        let defined = self.defined();
        let mut kinds = self.kinds.lock();
        let mut changes = Changes::default();
        let names: BTreeSet<_> = served.iter().map(ServedResource::name).collect();
        let absent = kinds.numbers.iter().filter(|(name, _)| !names.contains(*name));
        let absent: Vec<_> = absent.map(|(name, number)| (name.clone(), *number)).collect();
        for (name, number) in absent {
            if kinds.all[number].take().is_some() {
                changes.stop.push(number);
            }
            kinds.unlisted.remove(&number);
            // Its objects are gone only with its definition: it may be served again.
            if kinds.custom.contains(&number) && !defined.contains(&definition(&name)) {
                kinds.numbers.remove(&name);
                kinds.custom.remove(&number);
                changes.remove.push(number);
            }
        }
        for resource in served {
            let name = resource.name();
            let number = kinds.numbers.get(&name).copied().unwrap_or_else(|| {
                kinds.all.push(None);
                let number = kinds.all.len() - 1;
                kinds.numbers.insert(name.clone(), number);
                number
            });
            if defined.contains(&definition(&name)) {
                kinds.custom.insert(number);
            }
            if kinds.all[number].as_ref() == Some(&resource) {
                continue;
            }
            if kinds.all[number].replace(resource.clone()).is_some() {
                changes.stop.push(number);
            }
            if resource.monitored {
                kinds.unlisted.insert(number);
                changes.start.push((number, resource));
            }
        }
        if !changes.start.is_empty() {
            for uid in std::mem::take(&mut kinds.unresolved) {
                self.queue.add(uid);
            }
        }
        changes
    }

    /// The names of the CustomResourceDefinitions.
    fn defined(&self) -> HashSet<String> {
        let name = (DEFINITIONS.0.to_owned(), DEFINITIONS.1.to_owned());
        let number = self.kinds.lock().numbers.get(&name).copied();
        number.into_iter().flat_map(|number| self.graph().names(number)).collect()
    }

    /// Discovers the resources again, soon.
    pub fn rediscover(&self) {
        self.discovery.add(());
    }

    /// Applies what a watch of the metadata of the objects of a resource observes, for good.
    async fn watch(&self, number: KindId, api: Api<DynamicObject>) {
        let defines_resources = self.kind(number).is_some_and(|kind| kind.resource.plural == DEFINITIONS.1);
        let mut events = std::pin::pin!(Reflector::metadata_only(api, WatchConfig::default()).into_stream());
        while let Some(event) = events.next().await {
            let restarted = matches!(event, WatchEvent::Restarted(_));
            self.apply(number, event);
            if restarted {
                self.kinds.lock().unlisted.remove(&number);
                self.note_synced();
            }
            if defines_resources {
                self.rediscover();
            }
        }
    }

    fn note_synced(&self) {
        let ready = {
            let kinds = self.kinds.lock();
            !kinds.all.is_empty() && kinds.unlisted.is_empty()
        };
        if ready {
            self.synced.send_replace(true);
        }
    }

    fn apply(&self, kind: KindId, event: WatchEvent<PartialObjectMeta<DynamicObject>>) {
        let mut empty = Vec::new();
        let touched = {
            let mut graph = self.graph();
            match event {
                WatchEvent::Restarted(objects) => {
                    let nodes = objects.iter().map(|object| Node::new(kind, &object.metadata)).collect();
                    graph.replace(kind, nodes)
                }
                WatchEvent::Applied(object) => graph.put(Node::new(kind, &object.metadata)),
                WatchEvent::Deleted(at) => {
                    let touched = graph.remove(kind, &at);
                    if !at.namespace.is_empty() && graph.count_in_namespace(&at.namespace) == 0 {
                        empty.push(at.namespace);
                    }
                    touched
                }
            }
        };
        for uid in touched {
            self.queue.add(uid);
        }
        let listeners = self.listeners.lock();
        for namespace in empty {
            for listener in listeners.iter() {
                listener(&namespace);
            }
        }
    }
}

impl Synced for GraphBuilder {
    fn synced(&self) -> BoxFuture<'_, ()> {
        self.wait_for_sync().boxed()
    }
}

/// The resources that an API server serves, each once.
fn served(found: &Discovery) -> Vec<ServedResource> {
    let kinds = found.groups().flat_map(kube::discovery::ApiGroup::resources_by_stability);
    let kinds = kinds.map(|(resource, can)| {
        let deletable = can.supports_operation(verbs::DELETE);
        let seen = can.supports_operation(verbs::LIST) && can.supports_operation(verbs::WATCH);
        ServedResource {
            namespaced: can.scope == Scope::Namespaced,
            deletes_collections: can.supports_operation(verbs::DELETE_COLLECTION)
                && can.supports_operation(verbs::LIST),
            monitored: deletable && seen && resource.plural != IGNORED,
            resource,
        }
    });
    kinds.collect()
}
