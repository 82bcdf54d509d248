//! The objects of a cluster, from its watches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::kinds::{KINDS, Kind};

/// The label with the scenario of a cluster-scoped object.
pub(super) const SCENARIO: &str = "scenario";

/// The objects of a namespace.
#[derive(Clone, Debug)]
pub(super) struct NamespaceObjects {
    /// The existing objects, by kind and name.
    pub(super) there: BTreeMap<(&'static str, String), Value>,
    /// The deleted objects, in their last observed version.
    pub(super) gone: Vec<(&'static str, Value)>,
    /// When an object last changed.
    pub(super) changed: Instant,
}

impl Default for NamespaceObjects {
    fn default() -> Self {
        Self { there: BTreeMap::new(), gone: Vec::new(), changed: Instant::now() }
    }
}

/// The objects of a cluster. The watches end with it.
pub(super) struct View {
    shared: Arc<Shared>,
    _watches: JoinSet<()>,
}

struct Shared {
    namespaces: Mutex<HashMap<String, NamespaceObjects>>,
    changes: watch::Sender<()>,
}

impl View {
    /// Starts the watches of a cluster.
    pub(super) fn of(client: &Client) -> Self {
        let shared = Arc::new(Shared { namespaces: Mutex::default(), changes: watch::Sender::new(()) });
        let mut watches = JoinSet::new();
        for kind in &KINDS {
            let api = Api::<DynamicObject>::all_with(client.clone(), &kind.resource());
            let shared = shared.clone();
            watches.spawn(async move {
                let events = watcher(api, Config::default()).default_backoff();
                pin_mut!(events);
                let mut relisted = BTreeSet::new();
                while let Some(event) = events.next().await {
                    // After an error the watch begins anew by itself.
                    let Ok(event) = event else { continue };
                    shared.take(kind, event, &mut relisted);
                }
            });
        }
        Self { shared, _watches: watches }
    }

    /// The objects of a namespace now.
    pub(super) fn objects_in(&self, namespace: &str) -> NamespaceObjects {
        self.shared.namespaces.lock().get(namespace).cloned().unwrap_or_default()
    }

    /// Records that a request was sent in a namespace, so that it is not stable.
    pub(super) fn disturb(&self, namespace: &str) {
        self.shared.namespaces.lock().entry(namespace.to_owned()).or_default().changed = Instant::now();
    }

    /// For how long no object of a namespace has changed.
    pub(super) fn rest(&self, namespace: &str) -> Duration {
        self.shared
            .namespaces
            .lock()
            .get(namespace)
            .map_or(Duration::ZERO, |objects| objects.changed.elapsed())
    }

    /// The resource version of an object.
    pub(super) fn version(&self, namespace: &str, kind: &'static str, name: &str) -> Option<u64> {
        version(self.shared.namespaces.lock().get(namespace)?.there.get(&(kind, name.to_owned()))?)
    }

    /// When an object of a namespace last changed.
    pub(super) fn changed(&self, namespace: &str) -> Option<Instant> {
        self.shared.namespaces.lock().get(namespace).map(|objects| objects.changed)
    }

    /// Notifies of changes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// The nodes of all scenarios, and whether each sends heartbeats.
    pub(super) fn nodes(&self) -> Vec<Value> {
        let namespaces = self.shared.namespaces.lock();
        let there = namespaces.values().flat_map(|objects| &objects.there);
        there.filter(|((kind, _), _)| *kind == "nodes").map(|(_, node)| node.clone()).collect()
    }
}

/// The resource version of an object.
pub(super) fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// The namespace that an object is in, or that it is about.
fn home(kind: &Kind, object: &DynamicObject) -> String {
    let metadata = &object.metadata;
    match kind.plural {
        "namespaces" => metadata.name.clone(),
        _ if kind.namespaced => metadata.namespace.clone(),
        _ => metadata.labels.as_ref().and_then(|labels| labels.get(SCENARIO)).cloned(),
    }
    .unwrap_or_default()
}

impl Shared {
    fn take(
        &self,
        kind: &'static Kind,
        event: Event<DynamicObject>,
        relisted: &mut BTreeSet<(String, String)>,
    ) {
        match event {
            Event::Init => relisted.clear(),
            Event::InitApply(object) => {
                relisted.insert((home(kind, &object), object.metadata.name.clone().unwrap_or_default()));
                self.put(kind, object);
            }
            Event::InitDone => {
                for (namespace, objects) in self.namespaces.lock().iter_mut() {
                    let lost: Vec<String> = objects
                        .there
                        .keys()
                        .filter(|(known, name)| {
                            *known == kind.plural && !relisted.contains(&(namespace.clone(), name.clone()))
                        })
                        .map(|(_, name)| name.clone())
                        .collect();
                    for name in lost {
                        objects.drop(kind, &name);
                    }
                }
            }
            Event::Apply(object) => self.put(kind, object),
            Event::Delete(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                self.namespaces.lock().entry(home(kind, &object)).or_default().drop(kind, &name);
            }
        }
        self.changes.send_replace(());
    }

    fn put(&self, kind: &'static Kind, object: DynamicObject) {
        let (home, name) = (home(kind, &object), object.metadata.name.clone().unwrap_or_default());
        let Ok(mut object) = serde_json::to_value(object) else { return };
        if let Some(fields) = object.as_object_mut() {
            // Objects of a list lack them.
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        let mut namespaces = self.namespaces.lock();
        let objects = namespaces.entry(home).or_default();
        objects.changed = Instant::now();
        // One of the same name may have replaced it.
        let former = objects.there.insert((kind.plural, name), object.clone());
        if let Some(former) = former.filter(|former| former["metadata"]["uid"] != object["metadata"]["uid"]) {
            objects.gone.push((kind.plural, former));
        }
    }
}

impl NamespaceObjects {
    fn drop(&mut self, kind: &'static Kind, name: &str) {
        if let Some(object) = self.there.remove(&(kind.plural, name.to_owned())) {
            self.gone.push((kind.plural, object));
            self.changed = Instant::now();
        }
    }
}
