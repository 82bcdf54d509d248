//! An index of stored objects that is as new as the store.
//!
//! Before a lookup, the index applies all writes since the last lookup from the history of the store, so that it has
//! observed every write that was acknowledged. The cost of a lookup is that of the writes since the last one. There is no task
//! that could lag behind, and no watch that could be closed.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockWriteGuard};
use plumb_store::{Event, EventFilter, List, Object, Prefix, Revision, Snapshot, Store};

/// An index of stored objects.
pub(crate) trait Index: Default {
    /// The prefixes of the objects in the index.
    const SUBTREES: &'static [&'static str];

    /// Adds or updates an object.
    fn put(&mut self, object: &Object);

    /// Removes an object.
    fn remove(&mut self, object: &Object);

    /// Applies an event.
    fn change(&mut self, event: &Event) {
        match (event.current(), event.previous()) {
            (Some(current), _) => self.put(current),
            (None, Some(previous)) => self.remove(previous),
            (None, None) => {}
        }
    }
}

/// An index and its store.
pub(crate) struct Followed<I> {
    store: Store,
    filters: Vec<EventFilter>,
    /// The revision up to which the index has applied all writes.
    applied: AtomicU64,
    index: RwLock<I>,
}

impl<I: Index> Followed<I> {
    /// An index of the objects of a store.
    pub(crate) fn of(store: Store) -> Self {
        let filters = I::SUBTREES
            .iter()
            // The prefixes are constants, and valid.
            .filter_map(|subtree| Prefix::new(*subtree).ok())
            .map(EventFilter::prefix)
            .collect();
        let followed = Self { store, filters, applied: AtomicU64::new(0), index: RwLock::new(I::default()) };
        followed.rebuild(&mut followed.index.write(), &followed.store.snapshot());
        followed
    }

    /// The number of writes that the index has not applied yet.
    pub(crate) fn behind(&self) -> u64 {
        self.store.revision().saturating_sub(self.applied.load(Ordering::Acquire))
    }

    /// Reads the index, which has applied every write that was acknowledged before.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&I) -> T) -> T {
        let present = self.store.revision();
        let index = self.index.read();
        if self.applied.load(Ordering::Acquire) >= present {
            return question(&index);
        }
        let snapshot = self.store.snapshot();
        if self.has_no_changes(&snapshot) {
            // Other threads cannot have changed the index meanwhile: this lock is held.
            self.applied.fetch_max(snapshot.revision(), Ordering::AcqRel);
            return question(&index);
        }
        drop(index);
        let mut index = self.index.write();
        self.catch_up(&mut index, &snapshot);
        question(&RwLockWriteGuard::downgrade(index))
    }

    fn has_no_changes(&self, snapshot: &Snapshot) -> bool {
        let applied = self.applied.load(Ordering::Acquire);
        snapshot.revision() <= applied
            || self.filters.iter().all(|filter| {
                snapshot.changes(filter, applied).is_ok_and(|mut changes| changes.next().is_none())
            })
    }

    fn catch_up(&self, index: &mut I, snapshot: &Snapshot) {
        let applied = self.applied.load(Ordering::Acquire);
        if snapshot.revision() <= applied {
            return;
        }
        for filter in &self.filters {
            match snapshot.changes(filter, applied) {
                Ok(changes) => changes.for_each(|event| index.change(event)),
                // The history of the store is compacted, so the index is built anew.
                Err(_) => return self.rebuild(index, snapshot),
            }
        }
        self.applied.store(snapshot.revision(), Ordering::Release);
    }

    fn rebuild(&self, index: &mut I, snapshot: &Snapshot) {
        *index = I::default();
        for filter in &self.filters {
            let page = snapshot.list(&List::all(filter.prefix.clone()));
            // A snapshot can always be read at its own revision.
            page.into_iter().flat_map(|page| page.objects).for_each(|object| index.put(&object));
        }
        let revision: Revision = snapshot.revision();
        self.applied.store(revision, Ordering::Release);
    }
}
