//! Who owns whom: an index of all objects by uid, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plumb_controller::ObjectRef;

/// Holds an owner until those are gone that block it.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Holds an owner until those have let go that it owns.
pub const ORPHAN: &str = "orphan";
/// How many of those that are gone are remembered.
const REMEMBERED: usize = 8192;

/// A kind, by its place in a list.
pub type KindId = usize;

/// What matters of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    /// Of which kind.
    pub kind: KindId,
    /// Where; without a namespace if its kind has none.
    pub at: ObjectRef,
    /// Another one of the same name is another object.
    pub uid: String,
    /// Its version.
    pub revision: String,
    /// To whom it belongs.
    pub owners: Vec<OwnerReference>,
    /// What holds it.
    pub finalizers: Vec<String>,
    /// Whether it is to go.
    pub going: bool,
}

impl Thing {
    /// What matters of an object.
    pub fn new(kind: KindId, metadata: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            kind,
            at: ObjectRef::namespaced(text(&metadata.namespace), text(&metadata.name)),
            uid: text(&metadata.uid),
            revision: text(&metadata.resource_version),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            going: metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether something holds it.
    pub fn is_held_by(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|one| one == finalizer)
    }

    /// Whether it goes as soon as those are gone that it owns.
    pub fn waits_for_dependents(&self) -> bool {
        self.going && self.is_held_by(FOREGROUND)
    }

    /// Whether it keeps an owner from going.
    pub fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|one| one.uid == owner && one.block_owner_deletion == Some(true))
    }
}

/// What is remembered of an owner that was looked for. No uid has spaces.
fn absent(owner: &OwnerReference, from: &str) -> String {
    format!("{} {} {from} {} {}", owner.api_version, owner.kind, owner.name, owner.uid)
}

/// All objects, by whom they belong to.
#[derive(Debug, Default)]
pub struct Graph {
    things: HashMap<String, Thing>,
    places: HashMap<KindId, BTreeMap<ObjectRef, String>>,
    owned: HashMap<String, BTreeSet<String>>,
    gone: HashSet<String>,
    gone_in_order: VecDeque<String>,
    within: HashMap<String, usize>,
}

impl Graph {
    /// An object.
    pub fn get(&self, uid: &str) -> Option<&Thing> {
        self.things.get(uid)
    }

    /// Whether an object was there and is gone.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// Remembers that an object is gone for good.
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

    /// Whether an owner was looked for from a namespace, and there is none of this kind and name. Who says so may have
    /// the uid of somebody else.
    pub fn is_absent(&self, owner: &OwnerReference, from: &str) -> bool {
        self.gone.contains(&absent(owner, from))
    }

    /// Remembers that an owner is not there for those in a namespace.
    pub fn note_absent(&mut self, owner: &OwnerReference, from: &str) {
        self.note_gone(&absent(owner, from));
    }

    /// What an object owns.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Thing> {
        self.owned.get(uid).into_iter().flatten().filter_map(|uid| self.things.get(uid))
    }

    /// How many objects there are in a namespace.
    pub fn count_within(&self, namespace: &str) -> usize {
        self.within.get(namespace).copied().unwrap_or(0)
    }

    /// Takes in an object, and answers who is to be looked at.
    pub fn put(&mut self, thing: Thing) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        let places = self.places.entry(thing.kind).or_default();
        let before = places.insert(thing.at.clone(), thing.uid.clone());
        if let Some(other) = before.filter(|uid| *uid != thing.uid) {
            // It went and another came in its place, and nobody told.
            touched.append(&mut self.forget(&other));
            self.places.entry(thing.kind).or_default().insert(thing.at.clone(), thing.uid.clone());
        }
        let before = self.things.insert(thing.uid.clone(), thing.clone());
        if before.is_none() {
            *self.within.entry(thing.at.namespace.clone()).or_default() += 1;
        }
        let owners_before = before.as_ref().map_or(&[][..], |before| &before.owners);
        if owners_before != thing.owners {
            for owner in owners_before {
                self.disown(&owner.uid, &thing.uid);
                touched.extend(self.waiting(&owner.uid));
            }
            for owner in &thing.owners {
                self.owned.entry(owner.uid.clone()).or_default().insert(thing.uid.clone());
            }
            touched.insert(thing.uid.clone());
        }
        if before.is_none() && !thing.owners.is_empty() {
            touched.insert(thing.uid.clone());
        }
        if thing.going && (thing.is_held_by(FOREGROUND) || thing.is_held_by(ORPHAN)) {
            touched.insert(thing.uid.clone());
        }
        touched
    }

    /// Takes in that an object is gone, and answers who is to be looked at.
    pub fn remove(&mut self, kind: KindId, at: &ObjectRef) -> BTreeSet<String> {
        match self.places.get_mut(&kind).and_then(|places| places.remove(at)) {
            Some(uid) => self.forget(&uid),
            None => BTreeSet::new(),
        }
    }

    /// Takes in that these are all objects of a kind, and answers who is to be looked at.
    pub fn replace(&mut self, kind: KindId, things: Vec<Thing>) -> BTreeSet<String> {
        let there: HashSet<ObjectRef> = things.iter().map(|thing| thing.at.clone()).collect();
        let places = self.places.entry(kind).or_default();
        let lost: Vec<ObjectRef> = places.keys().filter(|at| !there.contains(*at)).cloned().collect();
        let mut touched = BTreeSet::new();
        for thing in things {
            touched.append(&mut self.put(thing));
        }
        for at in lost {
            touched.append(&mut self.remove(kind, &at));
        }
        touched
    }

    fn forget(&mut self, uid: &str) -> BTreeSet<String> {
        let Some(thing) = self.things.remove(uid) else { return BTreeSet::new() };
        self.note_gone(uid);
        if let Some(count) = self.within.get_mut(&thing.at.namespace) {
            *count -= 1;
            if *count == 0 {
                self.within.remove(&thing.at.namespace);
            }
        }
        let mut touched: BTreeSet<String> = self.owned.get(uid).cloned().unwrap_or_default();
        for owner in &thing.owners {
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

    /// An owner, if it waits for what it owns.
    fn waiting(&self, owner: &str) -> Option<String> {
        let thing = self.things.get(owner).filter(|thing| thing.going)?;
        (thing.is_held_by(FOREGROUND) || thing.is_held_by(ORPHAN)).then(|| thing.uid.clone())
    }
}
