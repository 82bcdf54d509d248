//! An index that is always as new as the store.
//!
//! Whoever asks is answered by an index that has seen every write that anybody was told of: before it answers, it
//! takes in what the store remembers since it last looked. That costs as much as has changed, and nothing if
//! nothing has. There is no task that might lag behind, and no watch that might be cut off.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockWriteGuard};
use plumb_store::{Event, EventFilter, List, Object, Prefix, Revision, Snapshot, Store};

/// Something that is made of stored objects, one by one.
pub(crate) trait Index: Default {
    /// The subtrees of the store that it is made of.
    const SUBTREES: &'static [&'static str];

    /// An object is there, new or changed.
    fn put(&mut self, object: &Object);

    /// An object is gone.
    fn remove(&mut self, object: &Object);

    /// Something happened.
    fn change(&mut self, event: &Event) {
        match (event.current(), event.previous()) {
            (Some(current), _) => self.put(current),
            (None, Some(previous)) => self.remove(previous),
            (None, None) => {}
        }
    }
}

/// An index with the store that it follows.
pub(crate) struct Followed<I> {
    store: Store,
    filters: Vec<EventFilter>,
    /// Everything of interest up to here is in the index.
    seen: AtomicU64,
    index: RwLock<I>,
}

impl<I: Index> Followed<I> {
    /// An index of what is in the store now, and later.
    pub(crate) fn of(store: Store) -> Self {
        let filters = I::SUBTREES
            .iter()
            // The names are ours, and valid.
            .filter_map(|subtree| Prefix::new(*subtree).ok())
            .map(EventFilter::prefix)
            .collect();
        let followed = Self { store, filters, seen: AtomicU64::new(0), index: RwLock::new(I::default()) };
        followed.rebuild(&mut followed.index.write(), &followed.store.snapshot());
        followed
    }

    /// How many writes there were since the index was last brought up to date.
    pub(crate) fn behind(&self) -> u64 {
        self.store.revision().saturating_sub(self.seen.load(Ordering::Acquire))
    }

    /// Asks the index, which knows of every write that was acknowledged before.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&I) -> T) -> T {
        let present = self.store.revision();
        let index = self.index.read();
        if self.seen.load(Ordering::Acquire) >= present {
            return question(&index);
        }
        let snapshot = self.store.snapshot();
        if self.nothing_new(&snapshot) {
            // Nobody can have put anything into the index meanwhile: this lock is held.
            self.seen.fetch_max(snapshot.revision(), Ordering::AcqRel);
            return question(&index);
        }
        drop(index);
        let mut index = self.index.write();
        self.catch_up(&mut index, &snapshot);
        question(&RwLockWriteGuard::downgrade(index))
    }

    fn nothing_new(&self, snapshot: &Snapshot) -> bool {
        let seen = self.seen.load(Ordering::Acquire);
        snapshot.revision() <= seen
            || self.filters.iter().all(|filter| {
                snapshot.changes(filter, seen).is_ok_and(|mut changes| changes.next().is_none())
            })
    }

    fn catch_up(&self, index: &mut I, snapshot: &Snapshot) {
        let seen = self.seen.load(Ordering::Acquire);
        if snapshot.revision() <= seen {
            return;
        }
        for filter in &self.filters {
            match snapshot.changes(filter, seen) {
                Ok(changes) => changes.for_each(|event| index.change(event)),
                // The store has forgotten what happened, but not what came of it.
                Err(_) => return self.rebuild(index, snapshot),
            }
        }
        self.seen.store(snapshot.revision(), Ordering::Release);
    }

    fn rebuild(&self, index: &mut I, snapshot: &Snapshot) {
        *index = I::default();
        for filter in &self.filters {
            let page = snapshot.list(&List::all(filter.prefix.clone()));
            // A snapshot always knows its own present.
            page.into_iter().flat_map(|page| page.objects).for_each(|object| index.put(&object));
        }
        let revision: Revision = snapshot.revision();
        self.seen.store(revision, Ordering::Release);
    }
}
