//! The store at one revision, and all reads.

use std::{collections::BTreeMap, iter::Peekable, num::NonZeroUsize, ops::Bound, sync::Arc};

use crate::{Event, EventFilter, Key, Object, Prefix, Revision, history::History, quota::Objects};

/// All objects at one revision, and the recent history before it.
///
/// It is immutable and shares unchanged parts with other snapshots. Keeping one blocks no reader or writer, but retains replaced
/// versions in memory.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) objects: Objects,
    pub(crate) history: History,
}

/// Why a revision cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// The revision is compacted; the API returns 410 Gone.
    #[error("revision {asked} is compacted, the oldest known is {oldest}")]
    Compacted {
        /// The requested revision.
        asked: Revision,
        /// The oldest revision at which the subtree can be read or watched from.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {asked} is in the future, the current one is {current}")]
    Future {
        /// The requested revision.
        asked: Revision,
        /// The current revision.
        current: Revision,
    },
}

/// A request to list objects.
#[derive(Debug, Clone)]
pub struct List {
    /// The subtree.
    pub prefix: Prefix,
    /// The revision to list at; the current one if `None`.
    pub at: Option<Revision>,
    /// The key after which the page starts.
    pub after: Option<Key>,
    /// The maximum number of objects on a page; unlimited if `None`.
    pub limit: Option<NonZeroUsize>,
}

impl List {
    /// Lists all current objects of a subtree.
    pub fn all(prefix: Prefix) -> Self {
        Self { prefix, at: None, after: None, limit: None }
    }

    /// Limits the number of objects on a page.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = NonZeroUsize::new(limit);
        self
    }

    /// Lists at a revision.
    #[must_use]
    pub fn at(mut self, revision: Revision) -> Self {
        self.at = Some(revision);
        self
    }

    /// Lists the objects after a key.
    #[must_use]
    pub fn after(mut self, key: Key) -> Self {
        self.after = Some(key);
        self
    }
}

/// Objects in the order of their keys, all as they were at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The revision of the page. The next page at this revision, or a watch from it, has no gap and no duplicate.
    pub revision: Revision,
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// The key after which the next page starts; `None` if this is the last page.
    pub next: Option<Key>,
    /// The number of objects of the subtree after this page, whether they match or not.
    pub remaining: usize,
}

impl Snapshot {
    /// The revision of the last write in it.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision at which a subtree can be read or watched from.
    pub fn oldest(&self, prefix: &Prefix) -> Revision {
        self.history.compacted(prefix)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// The bytes of all objects, as [`crate::Quota`] counts them.
    pub fn bytes(&self) -> u64 {
        self.objects.bytes()
    }

    /// The bytes of the objects of a namespace, as [`crate::Quota`] counts them.
    pub fn namespace_bytes(&self, namespace: &str) -> u64 {
        self.objects.namespace_bytes(namespace)
    }

    /// Whether the snapshot has no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object at a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// The object at a key as it was at a revision.
    pub fn get_at(&self, key: &Key, revision: Revision) -> Result<Option<&Arc<Object>>, RevisionError> {
        // The first change after the revision has the version before it.
        let filter = EventFilter::prefix(key.into());
        self.check(&filter.prefix, revision)?;
        let change = self.history.events(&filter, revision).find(|event| event.key() == key);
        Ok(change.map_or_else(|| self.get(key), |event| event.previous()))
    }

    /// The objects under a prefix in the order of their keys.
    pub fn iter(&self, prefix: &Prefix) -> impl Iterator<Item = &Arc<Object>> {
        self.iter_after(prefix, None)
    }

    /// Counts the objects of a subtree by iterating over them.
    pub fn count(&self, prefix: &Prefix) -> usize {
        self.iter(prefix).count()
    }

    /// The matching events after a revision up to this snapshot, oldest first. Callers use this to update an index whenever
    /// they read it, without a watch.
    pub fn changes<'a, 'i>(
        &'a self,
        filter: &'i EventFilter,
        after: Revision,
    ) -> Result<impl Iterator<Item = &'a Arc<Event>> + use<'a, 'i>, RevisionError> {
        self.check(&filter.prefix, after)?;
        Ok(self.history.events(filter, after))
    }

    /// A page of objects.
    pub fn list(&self, list: &List) -> Result<Page, RevisionError> {
        self.list_where(list, |_| true)
    }

    /// A page of the objects for which `wanted` returns true. The limit counts only those, so the last page may be empty.
    pub fn list_where(
        &self,
        list: &List,
        wanted: impl FnMut(&Object) -> bool,
    ) -> Result<Page, RevisionError> {
        let revision = list.at.unwrap_or(self.revision);
        self.check(&list.prefix, revision)?;
        if list.at.is_some() {
            self.check_age(revision)?;
        }
        let current = self.iter_after(&list.prefix, list.after.as_ref());
        if revision == self.revision {
            return Ok(page(revision, list.limit, current, wanted));
        }
        let mut undo: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
        let filter = EventFilter::prefix(list.prefix.clone());
        for event in self.history.events(&filter, revision) {
            let key = event.key();
            if list.after.as_ref().is_none_or(|after| key > after) {
                undo.entry(key).or_insert_with(|| event.previous());
            }
        }
        let past = Past { current: current.peekable(), undo: undo.into_iter().peekable() };
        Ok(page(revision, list.limit, past, wanted))
    }

    pub(crate) fn check(&self, prefix: &Prefix, asked: Revision) -> Result<(), RevisionError> {
        let oldest = self.oldest(prefix);
        let current = self.revision;
        if asked < oldest {
            Err(RevisionError::Compacted { asked, oldest })
        } else if asked > current {
            Err(RevisionError::Future { asked, current })
        } else {
            Ok(())
        }
    }

    /// Whether a revision has not expired.
    fn check_age(&self, asked: Revision) -> Result<(), RevisionError> {
        let oldest = self.history.expired(self.revision);
        if asked < oldest { Err(RevisionError::Compacted { asked, oldest }) } else { Ok(()) }
    }

    /// The objects of a subtree, only those after a key if one is given.
    pub fn iter_after<'a>(
        &'a self,
        prefix: &Prefix,
        after: Option<&Key>,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let root =
            self.objects.get(prefix.as_str()).filter(|object| after.is_none_or(|after| object.key > *after));
        let mut start = Bound::Unbounded;
        let mut end = Bound::Unbounded;
        let range = prefix.descendants();
        if let Some((first, beyond)) = &range {
            start = Bound::Included(first.as_str());
            end = Bound::Excluded(beyond.as_str());
        }
        let mut nothing = false;
        if let Some(after) = after {
            let after = after.as_str();
            if range.as_ref().is_none_or(|(first, _)| after >= first.as_str()) {
                start = Bound::Excluded(after);
            }
            nothing = range.as_ref().is_some_and(|(_, beyond)| after >= beyond.as_str());
        }
        let descendants =
            (!nothing).then(|| self.objects.range::<_, str>((start, end)).map(|(_, object)| object));
        root.into_iter().chain(descendants.into_iter().flatten())
    }
}

fn page<'a>(
    revision: Revision,
    limit: Option<NonZeroUsize>,
    mut all: impl Iterator<Item = &'a Arc<Object>>,
    mut wanted: impl FnMut(&Object) -> bool,
) -> Page {
    let most = limit.map_or(usize::MAX, NonZeroUsize::get);
    let objects: Vec<_> = all.by_ref().filter(|object| wanted(object)).take(most).cloned().collect();
    let remaining = all.count();
    // Objects remain only if the limit was reached, so there is a last one.
    let next = objects.last().filter(|_| remaining > 0).map(|object| object.key.clone());
    Page { revision, objects, next, remaining }
}

/// The objects at a past revision: the current ones with later changes undone. Both iterators are sorted by key.
struct Past<'a, P: Iterator<Item = &'a Arc<Object>>, U: Iterator<Item = (&'a Key, Option<&'a Arc<Object>>)>> {
    current: Peekable<P>,
    undo: Peekable<U>,
}

impl<'a, P, U> Iterator for Past<'a, P, U>
where
    P: Iterator<Item = &'a Arc<Object>>,
    U: Iterator<Item = (&'a Key, Option<&'a Arc<Object>>)>,
{
    type Item = &'a Arc<Object>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((changed, _)) = self.undo.peek() else { return self.current.next() };
            let changed = *changed;
            if let Some(object) = self.current.next_if(|object| object.key < *changed) {
                return Some(object);
            }
            self.current.next_if(|object| object.key == *changed);
            if let Some((_, Some(before))) = self.undo.next() {
                return Some(before);
            }
        }
    }
}
