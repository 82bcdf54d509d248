//! Who is told of a write: watchers indexed by subtree and attribute.
//!
//! A write looks up the few subtrees that hold its key, and in each the watchers of all and those of the attributes
//! that the object has or had. Watchers of other subtrees and attributes cost it nothing.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use parking_lot::Mutex;

use crate::{Attributes, Event, Interest, Revision, watch::Queue};

#[derive(Debug)]
struct Watcher {
    id: u64,
    queue: Arc<Queue>,
}

type Watchers = Vec<Watcher>;

#[derive(Debug, Default)]
struct Subtree {
    all: Watchers,
    /// By name, then by value.
    by_attribute: HashMap<Box<str>, HashMap<Box<str>, Watchers>>,
}

impl Subtree {
    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_attribute.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    subtrees: HashMap<Box<str>, Subtree>,
    next: u64,
    len: usize,
    closed: bool,
}

/// The index and how far it has been told.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    index: Mutex<Index>,
    /// Every watcher's queue holds all events of interest to it up to this revision.
    pub(crate) distributed: AtomicU64,
}

impl Hub {
    pub(crate) fn new(revision: Revision) -> Self {
        Self { index: Mutex::default(), distributed: AtomicU64::new(revision) }
    }

    /// Holds new watchers off while the present changes, so that each finds the change in history or is told of it.
    pub(crate) fn hold<T>(&self, body: impl FnOnce(&mut Index) -> T) -> T {
        body(&mut self.index.lock())
    }

    /// Tells those concerned. Cuts off whoever is too slow, and waits for nobody.
    pub(crate) fn distribute(&self, events: &[Arc<Event>]) {
        let Some(last) = events.last() else { return };
        let mut wakers = Vec::new();
        {
            let mut index = self.index.lock();
            if index.len > 0 {
                for event in events {
                    index.tell(event, &mut wakers);
                }
            }
            self.distributed.store(last.revision, Ordering::Release);
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn leave(&self, id: u64, interest: &Interest) {
        self.index.lock().remove(id, interest);
    }

    pub(crate) fn len(&self) -> usize {
        self.index.lock().len
    }

    /// Ends all watches once they have handed out what waits for them.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        {
            let mut index = self.index.lock();
            index.closed = true;
            for subtree in index.subtrees.values() {
                let by_attribute = subtree.by_attribute.values().flat_map(HashMap::values).flatten();
                wakers.extend(
                    subtree.all.iter().chain(by_attribute).filter_map(|watcher| watcher.queue.close()),
                );
            }
        }
        // Without the lock: whoever wakes up may end its watch at once.
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Index {
    pub(crate) fn insert(&mut self, interest: &Interest, queue: Arc<Queue>) -> u64 {
        if self.closed {
            // Nobody waits on it yet.
            let _ = queue.close();
        }
        let id = self.next;
        self.next += 1;
        self.len += 1;
        let subtree = self.subtrees.entry(interest.prefix.as_str().into()).or_default();
        let watchers = match &interest.attribute {
            None => &mut subtree.all,
            Some((name, value)) => {
                subtree.by_attribute.entry(name.clone()).or_default().entry(value.clone()).or_default()
            }
        };
        watchers.push(Watcher { id, queue });
        id
    }

    fn tell(&mut self, event: &Arc<Event>, wakers: &mut Vec<Waker>) {
        let Self { subtrees, len, .. } = self;
        let mut push = |watchers: &mut Watchers| {
            let before = watchers.len();
            watchers.retain(|watcher| watcher.queue.push(event, wakers));
            *len -= before - watchers.len();
        };
        for ancestor in event.key().ancestors() {
            let Some(subtree) = subtrees.get_mut(ancestor) else { continue };
            push(&mut subtree.all);
            if subtree.by_attribute.is_empty() {
                continue;
            }
            let current = event.current().map(|object| &object.attributes);
            let previous = event.previous().map(|object| &object.attributes);
            let now = current.into_iter().flat_map(Attributes::iter);
            let gone = previous
                .into_iter()
                .flat_map(Attributes::iter)
                .filter(|(name, value)| current.is_none_or(|attributes| attributes.get(name) != Some(value)));
            for (name, value) in now.chain(gone) {
                let watchers = subtree.by_attribute.get_mut(name).and_then(|values| values.get_mut(value));
                if let Some(watchers) = watchers {
                    push(watchers);
                }
            }
        }
    }

    fn remove(&mut self, id: u64, interest: &Interest) {
        let Some(subtree) = self.subtrees.get_mut(interest.prefix.as_str()) else { return };
        let mut drop_from = |watchers: &mut Watchers| {
            if let Some(at) = watchers.iter().position(|watcher| watcher.id == id) {
                watchers.swap_remove(at);
                self.len -= 1;
            }
        };
        match &interest.attribute {
            None => drop_from(&mut subtree.all),
            Some((name, value)) => {
                if let Some(values) = subtree.by_attribute.get_mut(name) {
                    if let Some(watchers) = values.get_mut(value) {
                        drop_from(watchers);
                        if watchers.is_empty() {
                            values.remove(value);
                        }
                    }
                    if values.is_empty() {
                        subtree.by_attribute.remove(name);
                    }
                }
            }
        }
        if subtree.is_empty() {
            self.subtrees.remove(interest.prefix.as_str());
        }
    }
}
