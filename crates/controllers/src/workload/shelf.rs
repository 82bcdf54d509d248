//! What is known of a kind: followed once, looked at by every controller of the process.
//!
//! A shelf is an index: objects by place, and by the uid of the one that controls them; those that nobody controls, by
//! namespace. It answers at once and does no I/O. Whoever listens hears of each change, with what was there before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use plumb_follow::{Followed, Place, Told, follow, place};
use tokio::sync::{mpsc, watch};

/// How much that happened waits to be taken in.
const UNREAD: usize = 1024;

/// What became of an object: there before, there now, or both.
pub struct Change<'a, K> {
    /// What was there.
    pub before: Option<&'a Arc<K>>,
    /// What is there.
    pub now: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// What is there, or was if it is gone.
    pub fn last(&self) -> Option<&'a Arc<K>> {
        self.now.or(self.before)
    }
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// What is known of the objects of a kind.
pub struct Shelf<K> {
    index: Mutex<Index<K>>,
    listeners: Mutex<Vec<Listener<K>>>,
    seen: watch::Sender<Seen>,
}

/// How far a shelf has come.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Whether everything was told once.
    all: bool,
    /// The latest revision that was told.
    revision: u64,
}

struct Index<K> {
    objects: BTreeMap<Place, Arc<K>>,
    controlled: HashMap<String, BTreeSet<Place>>,
    orphans: BTreeSet<Place>,
}

/// Who controls an object.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// The revision of an object, as a number that grows. Nothing is waited for where it cannot be read.
pub(super) fn revision(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl<K: kube::Resource> Index<K> {
    fn put(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let at = place(&*object);
        let before = self.objects.insert(at.clone(), object.clone());
        if let Some(before) = &before {
            self.forget(&at, before);
        }
        match controller_of(object.meta()) {
            Some(owner) => self.controlled.entry(owner.uid.clone()).or_default().insert(at),
            None => self.orphans.insert(at),
        };
        before
    }

    fn remove(&mut self, at: &Place) -> Option<Arc<K>> {
        let before = self.objects.remove(at)?;
        self.forget(at, &before);
        Some(before)
    }

    fn forget(&mut self, at: &Place, object: &Arc<K>) {
        let Some(owner) = controller_of(object.meta()) else {
            self.orphans.remove(at);
            return;
        };
        if let Some(places) = self.controlled.get_mut(&owner.uid) {
            places.remove(at);
            if places.is_empty() {
                self.controlled.remove(&owner.uid);
            }
        }
    }
}

impl<K: Followed> Default for Shelf<K> {
    fn default() -> Self {
        let index = Index { objects: BTreeMap::new(), controlled: HashMap::new(), orphans: BTreeSet::new() };
        Self {
            index: Mutex::new(index),
            listeners: Mutex::default(),
            seen: watch::Sender::new(Seen::default()),
        }
    }
}

impl<K: Followed> Shelf<K> {
    /// Follows the objects of an API for good; `keep` says what is kept of each.
    pub async fn follow(&self, api: Api<K>, keep: impl Fn(K) -> K) {
        let (tell, mut told) = mpsc::channel(UNREAD);
        let taking = async {
            while let Some(told) = told.recv().await {
                self.take(match told {
                    Told::All(objects) => Told::All(objects.into_iter().map(&keep).collect()),
                    Told::Put(object) => Told::Put(Box::new(keep(*object))),
                    Told::Gone(at) => Told::Gone(at),
                });
            }
        };
        tokio::join!(follow(api, None, tell), taking);
    }

    /// Takes in what was told, and lets those know who listen.
    pub fn take(&self, told: Told<K>) {
        let (mut all, mut revision_told) = (false, 0);
        match told {
            Told::All(objects) => {
                all = true;
                let mut lost: BTreeSet<Place> = self.index().objects.keys().cloned().collect();
                for object in objects {
                    revision_told = revision_told.max(revision(object.meta()));
                    lost.remove(&place(&object));
                    self.put(object);
                }
                for at in lost {
                    self.remove(&at);
                }
            }
            Told::Put(object) => {
                revision_told = revision(object.meta());
                self.put(*object);
            }
            Told::Gone(at) => self.remove(&at),
        }
        self.seen.send_modify(|seen| {
            seen.all |= all;
            seen.revision = seen.revision.max(revision_told);
        });
    }

    fn put(&self, object: K) {
        let object = Arc::new(object);
        let before = self.index().put(object.clone());
        let same = before.as_ref().is_some_and(|before| {
            before.meta().resource_version.is_some()
                && before.meta().resource_version == object.meta().resource_version
        });
        if !same {
            self.tell(&Change { before: before.as_ref(), now: Some(&object) });
        }
    }

    fn remove(&self, at: &Place) {
        let before = self.index().remove(at);
        if before.is_some() {
            self.tell(&Change { before: before.as_ref(), now: None });
        }
    }

    fn tell(&self, change: &Change<'_, K>) {
        // The index is free meanwhile: whoever listens may look at any shelf.
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut panic = None;
        for listener in listeners.iter() {
            // A listener that panics must not keep the change from the others: the change is not delivered again.
            panic = catch_unwind(AssertUnwindSafe(|| listener(change))).err().or(panic);
        }
        drop(listeners);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Has a function called for each change from now on. It must not take long, and not listen to this shelf.
    pub fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    /// An object.
    pub fn get(&self, at: &Place) -> Option<Arc<K>> {
        self.index().objects.get(at).cloned()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.index().objects.values().cloned().collect()
    }

    /// The objects of a namespace.
    pub fn within(&self, namespace: &str) -> Vec<Arc<K>> {
        let index = self.index();
        let from = (namespace.to_owned(), String::new());
        let within = index.objects.range(from..).take_while(|((of, _), _)| of == namespace);
        within.map(|(_, object)| object.clone()).collect()
    }

    /// What an object controls.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let index = self.index();
        let places = index.controlled.get(uid).into_iter().flatten();
        places.filter_map(|at| index.objects.get(at).cloned()).collect()
    }

    /// What nobody controls in a namespace.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        let index = self.index();
        let from = (namespace.to_owned(), String::new());
        let within = index.orphans.range(from..).take_while(|(of, _)| of == namespace);
        within.filter_map(|at| index.objects.get(at).cloned()).collect()
    }

    /// Waits until everything was told once.
    pub async fn ready(&self) {
        // The sender lives as long as this.
        let _ = self.seen.subscribe().wait_for(|seen| seen.all).await;
    }

    /// Waits until something that was made is known, or was known and is gone.
    pub(super) async fn saw(&self, revision: u64) {
        // The sender lives as long as this.
        let _ = self.seen.subscribe().wait_for(|seen| seen.revision >= revision).await;
    }

    /// Waits until an object is known as it was written, or as gone.
    pub(super) async fn saw_written(&self, at: &Place, uid: &str, written: u64) {
        self.until(at, |meta| meta.uid.as_deref() != Some(uid) || revision(meta) >= written).await;
    }

    /// Waits until an object is known to go, or to be gone.
    pub(super) async fn saw_going(&self, at: &Place, uid: &str) {
        self.until(at, |meta| meta.uid.as_deref() != Some(uid) || meta.deletion_timestamp.is_some()).await;
    }

    async fn until(&self, at: &Place, is_so: impl Fn(&ObjectMeta) -> bool) {
        let is_so = |_: &Seen| self.get(at).is_none_or(|object| is_so(object.meta()));
        // The sender lives as long as this.
        let _ = self.seen.subscribe().wait_for(is_so).await;
    }

    fn index(&self) -> MutexGuard<'_, Index<K>> {
        // An index that somebody panicked over is still one that the next watch event makes right.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, revision: u64, owner: Option<&str>) -> Pod {
        let owners: Vec<_> = owner
            .iter()
            .map(|uid| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true }))
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "n", "uid": name, "resourceVersion": revision.to_string(), "ownerReferences": owners },
        }))
        .unwrap()
    }

    fn names(pods: Vec<Arc<Pod>>) -> Vec<String> {
        pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
    }

    #[test]
    fn objects_are_found_by_whom_they_belong_to() {
        let shelf = Shelf::default();
        shelf.take(Told::All(vec![pod("a", 1, Some("x")), pod("b", 2, None)]));
        assert_eq!(names(shelf.controlled_by("x")), ["a"]);
        assert_eq!(names(shelf.orphans("n")), ["b"]);
        shelf.take(Told::Put(Box::new(pod("b", 3, Some("x")))));
        assert_eq!(names(shelf.controlled_by("x")), ["a", "b"]);
        assert_eq!(names(shelf.orphans("n")), [""; 0]);
        shelf.take(Told::Put(Box::new(pod("a", 4, Some("y")))));
        shelf.take(Told::Gone(("n".into(), "b".into())));
        assert_eq!(names(shelf.controlled_by("x")), [""; 0]);
        assert_eq!(names(shelf.controlled_by("y")), ["a"]);
        assert_eq!(names(shelf.within("n")), ["a"]);
    }

    #[test]
    fn a_second_telling_of_everything_is_heard_only_where_it_differs() {
        let shelf = Shelf::default();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = heard.clone();
        shelf.listen(move |change: &Change<'_, Pod>| {
            let name = change.last().unwrap().metadata.name.clone().unwrap();
            note.lock().unwrap().push(format!("{}{name}", if change.now.is_some() { '+' } else { '-' }));
        });
        shelf.take(Told::All(vec![pod("a", 1, None), pod("b", 2, None)]));
        shelf.take(Told::All(vec![pod("a", 1, None), pod("c", 3, None)]));
        assert_eq!(*heard.lock().unwrap(), ["+a", "+b", "+c", "-b"]);
    }

    #[tokio::test]
    async fn own_writes_are_waited_for() {
        let shelf = Shelf::default();
        shelf.take(Told::All(vec![pod("a", 1, None)]));
        let at = ("n".to_owned(), "a".to_owned());
        let seen = async {
            // What was made is gone again before it was looked for: it was seen nevertheless.
            shelf.take(Told::Put(Box::new(pod("b", 5, None))));
            shelf.take(Told::Gone(("n".into(), "b".into())));
            shelf.take(Told::Gone(at.clone()));
        };
        let mut waiting = std::pin::pin!(async {
            tokio::join!(shelf.saw(5), shelf.saw_written(&at, "a", 2), shelf.saw_going(&at, "a"))
        });
        let at_once = std::time::Duration::ZERO;
        assert!(tokio::time::timeout(at_once, &mut waiting).await.is_err());
        tokio::join!(waiting, seen);
    }
}
