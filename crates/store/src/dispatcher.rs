//! Dispatch of events to watchers, which are indexed by subtree and attribute.
//!
//! A write looks up the few subtrees that contain its key, and in each the watchers without an attribute and those of
//! the attributes that the object has or had. Watchers of other subtrees and attributes cost it nothing.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use parking_lot::Mutex;

use crate::{Attributes, Event, EventFilter, Revision, watch::Queue};

#[derive(Debug)]
struct Watcher {
    id: u64,
    queue: Arc<Queue>,
}

type Watchers = Vec<Watcher>;

#[derive(Debug, Default)]
struct Subtree {
    all: Watchers,
    /// The watchers with an attribute, by its name and then by its value.
    by_attribute: HashMap<Box<str>, HashMap<Box<str>, Watchers>>,
}

impl Subtree {
    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_attribute.is_empty()
    }

    fn watchers(&self) -> impl Iterator<Item = &Watcher> {
        let by_attribute = self.by_attribute.values().flat_map(HashMap::values).flatten();
        self.all.iter().chain(by_attribute)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    subtrees: HashMap<Box<str>, Subtree>,
    next: u64,
    len: usize,
    closed: bool,
}

/// Dispatches events to watchers.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    index: Mutex<Index>,
    /// Every watcher's queue has received all its matching events up to this revision.
    pub(crate) dispatched: AtomicU64,
    /// Whether the events are of a [`crate::Cache`], where those of one transaction have the same revision.
    pub(crate) is_of_cache: bool,
}

impl Dispatcher {
    pub(crate) fn new(revision: Revision) -> Self {
        Self { index: Mutex::default(), dispatched: AtomicU64::new(revision), is_of_cache: false }
    }

    pub(crate) fn for_cache(revision: Revision) -> Self {
        Self { is_of_cache: true, ..Self::new(revision) }
    }

    /// Locks the index. While a snapshot is published no watch can start, so that each reads an event from history or receives it.
    pub(crate) fn with_index<T>(&self, body: impl FnOnce(&mut Index) -> T) -> T {
        body(&mut self.index.lock())
    }

    /// Sends events to the matching watchers. Ends the watches that are too slow; never waits.
    pub(crate) fn dispatch(&self, events: &[Arc<Event>]) {
        let Some(last) = events.last() else { return };
        let mut wakers = Vec::new();
        {
            let mut index = self.index.lock();
            if index.len > 0 {
                for event in events {
                    index.dispatch(event, &mut wakers);
                }
            }
            self.dispatched.store(last.revision, Ordering::Release);
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn remove(&self, id: u64, filter: &EventFilter) {
        self.index.lock().remove(id, filter);
    }

    pub(crate) fn len(&self) -> usize {
        self.index.lock().len
    }

    /// Advances to a revision up to which there are no further events.
    pub(crate) fn progress(&self, revision: Revision) {
        self.dispatched.fetch_max(revision, Ordering::AcqRel);
    }

    /// Replaces the snapshot, and ends all watches, whose next events are not known.
    pub(crate) fn replace(&self, revision: Revision, publish: impl FnOnce()) {
        let mut wakers = Vec::new();
        {
            let mut index = self.index.lock();
            publish();
            let Index { subtrees, len, .. } = &mut *index;
            *len = 0;
            for subtree in std::mem::take(subtrees).into_values() {
                wakers.extend(subtree.watchers().filter_map(|watcher| watcher.queue.lag()));
            }
            self.dispatched.store(revision, Ordering::Release);
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all watches after their queued events.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        {
            let mut index = self.index.lock();
            index.closed = true;
            for subtree in index.subtrees.values() {
                wakers.extend(subtree.watchers().filter_map(|watcher| watcher.queue.close()));
            }
        }
        // Without the lock: a woken watcher may drop its watch at once.
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Index {
    pub(crate) fn insert(&mut self, filter: &EventFilter, queue: Arc<Queue>) -> u64 {
        if self.closed {
            // The watch is not polled yet, so there is no waker.
            let _ = queue.close();
        }
        let id = self.next;
        self.next += 1;
        self.len += 1;
        let subtree = self.subtrees.entry(filter.prefix.as_str().into()).or_default();
        let watchers = match &filter.attribute {
            None => &mut subtree.all,
            Some((name, value)) => {
                subtree.by_attribute.entry(name.clone()).or_default().entry(value.clone()).or_default()
            }
        };
        watchers.push(Watcher { id, queue });
        id
    }

    fn dispatch(&mut self, event: &Arc<Event>, wakers: &mut Vec<Waker>) {
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
            let removed = previous
                .into_iter()
                .flat_map(Attributes::iter)
                .filter(|(name, value)| current.is_none_or(|attributes| attributes.get(name) != Some(value)));
            for (name, value) in now.chain(removed) {
                let watchers = subtree.by_attribute.get_mut(name).and_then(|values| values.get_mut(value));
                if let Some(watchers) = watchers {
                    push(watchers);
                }
            }
        }
    }

    fn remove(&mut self, id: u64, filter: &EventFilter) {
        let Some(subtree) = self.subtrees.get_mut(filter.prefix.as_str()) else { return };
        let mut drop_from = |watchers: &mut Watchers| {
            if let Some(at) = watchers.iter().position(|watcher| watcher.id == id) {
                watchers.swap_remove(at);
                self.len -= 1;
            }
        };
        match &filter.attribute {
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
            self.subtrees.remove(filter.prefix.as_str());
        }
    }
}
