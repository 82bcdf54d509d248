//! The graph of owners and dependents: an index of all objects by uid, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plumb_controller_runtime::ObjectRef;

/// The finalizer of an owner until the dependents that block it are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner until its dependents no longer refer to it.
pub const ORPHAN: &str = "orphan";
/// The capacity of the caches of deleted objects and of absent owners.
const REMEMBERED: usize = 8192;

/// A resource, as an index into a list.
pub type KindId = usize;

/// An object in the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its resource.
    pub kind: KindId,
    /// Its namespace and name.
    pub at: ObjectRef,
    /// Its uid, which distinguishes objects of the same name.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Its owner references.
    pub owners: Vec<OwnerReference>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

impl Node {
    /// The node of an object.
    pub fn new(kind: KindId, metadata: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            kind,
            at: ObjectRef::namespaced(text(&metadata.namespace), text(&metadata.name)),
            uid: text(&metadata.uid),
            resource_version: text(&metadata.resource_version),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|one| one == finalizer)
    }

    /// Whether it is being deleted in the foreground.
    pub fn waits_for_dependents(&self) -> bool {
        self.terminating && self.has_finalizer(FOREGROUND)
    }

    /// Whether it blocks the deletion of an owner.
    pub fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|one| one.uid == owner && one.block_owner_deletion == Some(true))
    }
}

/// The key of an absent owner. No uid has spaces.
fn absent(owner: &OwnerReference, from: &str) -> String {
    format!("{} {} {from} {} {}", owner.api_version, owner.kind, owner.name, owner.uid)
}

/// All objects, and the dependents of each.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Node>,
    places: HashMap<KindId, BTreeMap<ObjectRef, String>>,
    owned: HashMap<String, BTreeSet<String>>,
    gone: HashSet<String>,
    gone_in_order: VecDeque<String>,
    within: HashMap<String, usize>,
}

impl Graph {
    /// An object.
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Whether an object was deleted.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// Remembers that an object was deleted.
    pub fn note_gone(&mut self, uid: &str) {
        if self.gone.insert(uid.to_owned()) {
            self.gone_in_order.push_back(uid.to_owned());
        }
        if self.gone_in_order.len() > REMEMBERED
            && let Some(first) = self.gone_in_order.pop_front()
        {
            self.gone.remove(&first);
        }
    }

    /// Whether the API has no owner of this kind, name and uid for objects in a namespace. A reference may have the uid of
    /// another object.
    pub fn is_absent(&self, owner: &OwnerReference, from: &str) -> bool {
        self.gone.contains(&absent(owner, from))
    }

    /// Remembers that an owner is absent for objects in a namespace.
    pub fn note_absent(&mut self, owner: &OwnerReference, from: &str) {
        self.note_gone(&absent(owner, from));
    }

    /// The dependents of an object.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Node> {
        self.owned.get(uid).into_iter().flatten().filter_map(|uid| self.nodes.get(uid))
    }

    /// The names of the objects of a resource.
    pub fn names(&self, kind: KindId) -> Vec<String> {
        self.places.get(&kind).into_iter().flat_map(BTreeMap::keys).map(|at| at.name.clone()).collect()
    }

    /// How many objects a namespace has.
    pub fn count_in_namespace(&self, namespace: &str) -> usize {
        self.within.get(namespace).copied().unwrap_or(0)
    }

    /// Applies an object, and returns the uids of those to reconcile.
    pub fn put(&mut self, node: Node) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        let places = self.places.entry(node.kind).or_default();
        let before = places.insert(node.at.clone(), node.uid.clone());
        if let Some(other) = before.filter(|uid| *uid != node.uid) {
            // Another object of the same name replaced it, and its deletion was not observed.
            touched.append(&mut self.forget(&other));
            self.places.entry(node.kind).or_default().insert(node.at.clone(), node.uid.clone());
        }
        let before = self.nodes.insert(node.uid.clone(), node.clone());
        if before.is_none() {
            *self.within.entry(node.at.namespace.clone()).or_default() += 1;
        }
        let owners_before = before.as_ref().map_or(&[][..], |before| &before.owners);
        if owners_before != node.owners {
            for owner in owners_before {
                self.disown(&owner.uid, &node.uid);
                touched.extend(self.waiting(&owner.uid));
            }
            for owner in &node.owners {
                self.owned.entry(owner.uid.clone()).or_default().insert(node.uid.clone());
            }
            touched.insert(node.uid.clone());
        }
        if before.is_none() && !node.owners.is_empty() {
            touched.insert(node.uid.clone());
        }
        if node.terminating && (node.has_finalizer(FOREGROUND) || node.has_finalizer(ORPHAN)) {
            touched.insert(node.uid.clone());
        }
        touched
    }

    /// Applies the deletion of an object, and returns the uids of those to reconcile.
    pub fn remove(&mut self, kind: KindId, at: &ObjectRef) -> BTreeSet<String> {
        match self.places.get_mut(&kind).and_then(|places| places.remove(at)) {
            Some(uid) => self.forget(&uid),
            None => BTreeSet::new(),
        }
    }

    /// Applies a list of all objects of a resource, and returns the uids of those to reconcile.
    pub fn replace(&mut self, kind: KindId, nodes: Vec<Node>) -> BTreeSet<String> {
        let there: HashSet<ObjectRef> = nodes.iter().map(|node| node.at.clone()).collect();
        let places = self.places.entry(kind).or_default();
        let lost: Vec<ObjectRef> = places.keys().filter(|at| !there.contains(*at)).cloned().collect();
        let mut touched = BTreeSet::new();
        for node in nodes {
            touched.append(&mut self.put(node));
        }
        for at in lost {
            touched.append(&mut self.remove(kind, &at));
        }
        touched
    }

    fn forget(&mut self, uid: &str) -> BTreeSet<String> {
        let Some(node) = self.nodes.remove(uid) else { return BTreeSet::new() };
        self.note_gone(uid);
        if let Some(count) = self.within.get_mut(&node.at.namespace) {
            *count -= 1;
            if *count == 0 {
                self.within.remove(&node.at.namespace);
            }
        }
        let mut touched: BTreeSet<String> = self.owned.get(uid).cloned().unwrap_or_default();
        for owner in &node.owners {
            self.disown(&owner.uid, uid);
            touched.extend(self.waiting(&owner.uid));
        }
        touched
    }

    fn disown(&mut self, owner: &str, uid: &str) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(uid);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    /// An owner, if it waits for its dependents.
    fn waiting(&self, owner: &str) -> Option<String> {
        let node = self.nodes.get(owner).filter(|node| node.terminating)?;
        (node.has_finalizer(FOREGROUND) || node.has_finalizer(ORPHAN)).then(|| node.uid.clone())
    }
}
