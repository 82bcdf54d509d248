//! The maps of a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::Resource;

use crate::object_ref::{ObjectRef, controller_of};

/// Computes the values by which an index finds an object.
type Values<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// References by a value. They are shared with the map of the objects: an object is in several indexes.
type Refs = BTreeSet<Arc<ObjectRef>>;

pub(super) struct Inner<K> {
    objects: BTreeMap<Arc<ObjectRef>, Arc<K>>,
    by_controller: HashMap<String, Refs>,
    orphans: Refs,
    indexes: Vec<IndexData<K>>,
}

struct IndexData<K> {
    values: Values<K>,
    refs: HashMap<String, Refs>,
}

impl<K> Default for Inner<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            by_controller: HashMap::new(),
            orphans: BTreeSet::new(),
            indexes: Vec::new(),
        }
    }
}

impl<K: Resource> Inner<K> {
    /// Inserts an object, and returns the one that it replaces.
    pub(super) fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let reference = ObjectRef::of(&*object);
        let known = self.objects.get_key_value(&reference).map(|(reference, _)| reference.clone());
        let reference = known.unwrap_or_else(|| Arc::new(reference));
        let before = self.objects.insert(reference.clone(), object.clone());
        self.reindex(&reference, before.as_deref(), Some(&object));
        before
    }

    pub(super) fn remove(&mut self, reference: &ObjectRef) -> Option<Arc<K>> {
        let (reference, before) = self.objects.remove_entry(reference)?;
        self.reindex(&reference, Some(&before), None);
        Some(before)
    }

    fn reindex(&mut self, reference: &Arc<ObjectRef>, before: Option<&K>, after: Option<&K>) {
        let uid = |object: &K| controller_of(object.meta()).map(|owner| owner.uid.clone());
        let (uid_before, uid_after) = (before.map(uid), after.map(uid));
        if uid_before != uid_after {
            match uid_before {
                Some(Some(uid)) => remove(&mut self.by_controller, &uid, reference),
                Some(None) => _ = self.orphans.remove(reference),
                None => {}
            }
            match uid_after {
                Some(Some(uid)) => _ = self.by_controller.entry(uid).or_default().insert(reference.clone()),
                Some(None) => _ = self.orphans.insert(reference.clone()),
                None => {}
            }
        }
        for index in &mut self.indexes {
            let values_before = before.map(&index.values).unwrap_or_default();
            let values_after = after.map(&index.values).unwrap_or_default();
            for value in values_before.iter().filter(|value| !values_after.contains(value)) {
                remove(&mut index.refs, value, reference);
            }
            for value in values_after {
                if !values_before.contains(&value) {
                    index.refs.entry(value).or_default().insert(reference.clone());
                }
            }
        }
    }

    /// Adds an index, and returns its position.
    pub(super) fn add_index(&mut self, values: Values<K>) -> usize {
        let mut refs: HashMap<String, Refs> = HashMap::new();
        for (reference, object) in &self.objects {
            for value in values(object) {
                refs.entry(value).or_default().insert(reference.clone());
            }
        }
        self.indexes.push(IndexData { values, refs });
        self.indexes.len() - 1
    }

    pub(super) fn by_index(&self, position: usize, value: &str) -> Vec<Arc<K>> {
        self.resolve(self.indexes.get(position).and_then(|index| index.refs.get(value)).into_iter().flatten())
    }

    pub(super) fn get(&self, reference: &ObjectRef) -> Option<Arc<K>> {
        self.objects.get(reference).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn refs(&self) -> Refs {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = ObjectRef::namespaced(namespace, "");
        let within = self.objects.range::<ObjectRef, _>(from..);
        within.take_while(|(at, _)| at.namespace == namespace).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.resolve(self.by_controller.get(uid).into_iter().flatten())
    }

    pub(super) fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = ObjectRef::namespaced(namespace, "");
        let within = self.orphans.range::<ObjectRef, _>(from..);
        self.resolve(within.take_while(|at| at.namespace == namespace))
    }

    fn resolve<'a>(&self, refs: impl Iterator<Item = &'a Arc<ObjectRef>>) -> Vec<Arc<K>> {
        refs.filter_map(|reference| self.objects.get(reference).cloned()).collect()
    }
}

fn remove(refs: &mut HashMap<String, Refs>, value: &str, reference: &Arc<ObjectRef>) {
    if let Some(of_value) = refs.get_mut(value) {
        of_value.remove(reference);
        if of_value.is_empty() {
            refs.remove(value);
        }
    }
}
