//! What a cluster has, by its watches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::kinds::{KINDS, Kind};

/// The label that says to which scenario an object belongs that is in no namespace.
pub(super) const SCENARIO: &str = "scenario";

/// What a namespace has.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// What is there, by kind and name.
    pub(super) there: BTreeMap<(&'static str, String), Value>,
    /// What has been there, as it was last seen.
    pub(super) gone: Vec<(&'static str, Value)>,
    /// When something last changed.
    pub(super) changed: Instant,
}

impl Default for Place {
    fn default() -> Self {
        Self { there: BTreeMap::new(), gone: Vec::new(), changed: Instant::now() }
    }
}

/// What a cluster has. The watches end with it.
pub(super) struct View {
    shared: Arc<Shared>,
    _watches: JoinSet<()>,
}

struct Shared {
    places: Mutex<HashMap<String, Place>>,
    changes: watch::Sender<()>,
}

impl View {
    /// Begins to look at a cluster.
    pub(super) fn of(client: &Client) -> Self {
        let shared = Arc::new(Shared { places: Mutex::default(), changes: watch::Sender::new(()) });
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

    /// What a namespace has now.
    pub(super) fn place(&self, namespace: &str) -> Place {
        self.shared.places().get(namespace).cloned().unwrap_or_default()
    }

    /// Something was just asked for in a namespace, and its rest is over.
    pub(super) fn disturb(&self, namespace: &str) {
        self.shared.places().entry(namespace.to_owned()).or_default().changed = Instant::now();
    }

    /// For how long nothing has changed in a namespace.
    pub(super) fn rest(&self, namespace: &str) -> Duration {
        self.shared.places().get(namespace).map_or(Duration::ZERO, |place| place.changed.elapsed())
    }

    /// Which version an object has.
    pub(super) fn version(&self, namespace: &str, kind: &'static str, name: &str) -> Option<u64> {
        version(self.shared.places().get(namespace)?.there.get(&(kind, name.to_owned()))?)
    }

    /// When something last changed in a namespace.
    pub(super) fn changed(&self, namespace: &str) -> Option<Instant> {
        self.shared.places().get(namespace).map(|place| place.changed)
    }

    /// To wait for changes with.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// The nodes of all scenarios, and whether each is to be heard of.
    pub(super) fn nodes(&self) -> Vec<Value> {
        let places = self.shared.places();
        let there = places.values().flat_map(|place| &place.there);
        there.filter(|((kind, _), _)| *kind == "nodes").map(|(_, node)| node.clone()).collect()
    }
}

/// Which version of an object this is.
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
    fn places(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        // Whoever panicked in here left a map that is whole.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
                for (namespace, place) in self.places().iter_mut() {
                    let lost: Vec<String> = place
                        .there
                        .keys()
                        .filter(|(known, name)| {
                            *known == kind.plural && !relisted.contains(&(namespace.clone(), name.clone()))
                        })
                        .map(|(_, name)| name.clone())
                        .collect();
                    for name in lost {
                        place.drop(kind, &name);
                    }
                }
            }
            Event::Apply(object) => self.put(kind, object),
            Event::Delete(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                self.places().entry(home(kind, &object)).or_default().drop(kind, &name);
            }
        }
        self.changes.send_replace(());
    }

    fn put(&self, kind: &'static Kind, object: DynamicObject) {
        let (home, name) = (home(kind, &object), object.metadata.name.clone().unwrap_or_default());
        let Ok(mut object) = serde_json::to_value(object) else { return };
        if let Some(fields) = object.as_object_mut() {
            // Lists don't say it of each.
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        let mut places = self.places();
        let place = places.entry(home).or_default();
        place.changed = Instant::now();
        // One of the same name may have come in its place.
        let former = place.there.insert((kind.plural, name), object.clone());
        if let Some(former) = former.filter(|former| former["metadata"]["uid"] != object["metadata"]["uid"]) {
            place.gone.push((kind.plural, former));
        }
    }
}

impl Place {
    fn drop(&mut self, kind: &'static Kind, name: &str) {
        if let Some(object) = self.there.remove(&(kind.plural, name.to_owned())) {
            self.gone.push((kind.plural, object));
            self.changed = Instant::now();
        }
    }
}
