//! Watches of the objects that quotas count.
//!
//! The watch keeps only the usage of each object, since quotas need to know when it decreases.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::Resource;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use plumb_controller_runtime::{ObjectRef, Reflector, WatchEvent};
use plumb_resize::list::ResourceList;
use plumb_resize::quota::{Counted, Item};

use super::Config;
use super::counting::Kind;

/// An object that quotas count.
pub(super) trait Countable: Resource + Clone + Send + 'static {
    /// The object as an item of a quota.
    fn item(&self) -> Item<'_>;
}

impl Countable for Pod {
    fn item(&self) -> Item<'_> {
        Item::Pod(self)
    }
}

impl Countable for Service {
    fn item(&self) -> Item<'_> {
        Item::Service(self)
    }
}

impl Countable for PersistentVolumeClaim {
    fn item(&self) -> Item<'_> {
        Item::Claim(self)
    }
}

impl Countable for PartialObjectMeta<DynamicObject> {
    fn item(&self) -> Item<'_> {
        Item::Other
    }
}

/// Watches all objects of a kind for good, and reports the namespaces in which an object was deleted or uses less.
pub(super) async fn watch<K: Countable>(
    reflector: Reflector<K>,
    config: Config,
    kind: Kind,
    released: impl Fn(&str),
) {
    let mut ledger = Ledger { config, kind, usage: HashMap::new() };
    let mut events = std::pin::pin!(reflector.into_stream());
    while let Some(event) = events.next().await {
        for namespace in ledger.apply(event) {
            released(&namespace);
        }
    }
}

/// The last observed usage of each object.
struct Ledger {
    config: Config,
    kind: Kind,
    usage: HashMap<ObjectRef, ResourceList>,
}

impl Ledger {
    /// Applies an event, and returns the namespaces in which an object was deleted or uses less.
    fn apply<K: Countable>(&mut self, event: WatchEvent<K>) -> BTreeSet<String> {
        let mut released = BTreeSet::new();
        match event {
            WatchEvent::Restarted(objects) => {
                let listed: HashSet<ObjectRef> = objects.iter().map(ObjectRef::of).collect();
                self.usage.retain(|object, _| {
                    let is_listed = listed.contains(object);
                    if !is_listed {
                        released.insert(object.namespace.clone());
                    }
                    is_listed
                });
                released.extend(objects.iter().filter_map(|object| self.count(object)));
            }
            WatchEvent::Applied(object) => released.extend(self.count(&*object)),
            WatchEvent::Deleted(object) => {
                self.usage.remove(&object);
                released.insert(object.namespace);
            }
        }
        released
    }

    /// Records the usage of an object, and returns its namespace if it uses less than before.
    fn count<K: Countable>(&mut self, object: &K) -> Option<String> {
        let (group, plural) = self.kind.name();
        let now = self.config.clock.now();
        let counted = Counted { group, plural, item: object.item(), now, rules: &self.config.rules };
        // An invalid quantity uses nothing here; the recalculation reports it.
        let usage = counted.usage().unwrap_or_default();
        let reference = ObjectRef::of(object);
        let namespace = reference.namespace.clone();
        let before = self.usage.insert(reference, usage.clone())?;
        let less = before.iter().any(|(name, amount)| usage.get(name).is_none_or(|now| now < amount));
        less.then_some(namespace)
    }
}
