//! Recent events, bounded in bytes. Dropping the oldest ones is compaction.

use std::{
    cmp::Ordering,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    iter::Peekable,
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use imbl::{OrdMap, Vector};

use crate::{Attributes, Event, EventFilter, Prefix, Revision, key::COLLECTION_SEGMENTS};

/// The number of collections above which one without events is dropped.
const MAX_COLLECTIONS: usize = 1024;

/// The cost of one event in addition to the version that it retains: the event, its entry and the object's header.
const EVENT_COST: usize = 256;

/// An event with a Bloom filter that lets a search skip it without dereferencing it.
#[derive(Debug, Clone)]
struct Entry {
    revision: Revision,
    /// The time at which it was added.
    at: Duration,
    bloom: BloomFilter,
    event: Arc<Event>,
}

/// A Bloom filter with two bits for each subtree and attribute of an event. A watch that resumes examines only the events that
/// have all the bits of its filter: all that match, and few others.
#[derive(Debug, Clone, Copy)]
struct BloomFilter(u64);

impl BloomFilter {
    fn for_event(event: &Event) -> Self {
        let subtrees = event.key().ancestors().map(Self::for_subtree);
        let objects = [event.current(), event.previous()].into_iter().flatten();
        let attributes = objects.flat_map(|object| Attributes::iter(&object.attributes));
        let attributes = attributes.map(|(name, value)| Self::for_attribute(name, value));
        Self(subtrees.chain(attributes).fold(0, |all, bloom| all | bloom.0))
    }

    fn for_filter(filter: &EventFilter) -> Self {
        let attribute =
            filter.attribute.as_ref().map_or(0, |(name, value)| Self::for_attribute(name, value).0);
        Self(Self::for_subtree(filter.prefix.as_str()).0 | attribute)
    }

    fn for_subtree(path: &str) -> Self {
        Self::from_hash_of(path)
    }

    fn for_attribute(name: &str, value: &str) -> Self {
        Self::from_hash_of((name, value))
    }

    fn from_hash_of(what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let hash = hasher.finish();
        Self(1 << (hash % 64) | 1 << (hash / 64 % 64))
    }

    fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }
}

/// For how long events are retained beyond [`Options::history`](crate::Options::history), and when revisions expire.
#[derive(Clone)]
pub struct Recent {
    /// Events that are younger than this are retained, unless they exceed `bytes`. A revision expires after once to twice this
    /// time, as with kube-apiserver, which compacts etcd every five minutes to the revision of five minutes ago: lists at an
    /// expired revision fail. Watches may still resume from it while its events are retained, as from upstream's watch cache.
    pub age: Duration,
    /// The maximum bytes of events of any age.
    pub bytes: usize,
    /// The time since some fixed moment. It must be monotonic.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { age, bytes, .. } = self;
        f.debug_struct("Recent").field("age", age).field("bytes", bytes).finish_non_exhaustive()
    }
}

/// The recent events of one collection, oldest first.
#[derive(Debug, Clone)]
struct Collection {
    events: Vector<Entry>,
    bytes: usize,
    /// The revision up to which events are dropped.
    compacted: Revision,
}

/// The events after some revision up to the current one. A clone is cheap and immutable.
///
/// Each collection of keys (`Key::collection`) has its own events. If they are too many, the largest collection loses its
/// oldest event. So a collection that is written often does not shorten the history of the others.
#[derive(Debug, Clone)]
pub(crate) struct History {
    collections: OrdMap<Arc<str>, Collection>,
    bytes: usize,
    len: usize,
    limit: usize,
    recent: Option<Recent>,
    /// A recent revision, and the time at which it was the current one.
    mark: (Duration, Revision),
    /// Lists at revisions before this one have expired.
    expired: Revision,
    /// The revision up to which collections without an entry are compacted.
    base: Revision,
}

impl History {
    pub(crate) fn new(base: Revision, limit: usize) -> Self {
        Self {
            collections: OrdMap::new(),
            bytes: 0,
            len: 0,
            limit,
            recent: None,
            mark: (Duration::ZERO, base),
            expired: base,
            base,
        }
    }

    /// Retains recent events too, and expires revisions by their age. The age of existing events starts now.
    pub(crate) fn retain(&mut self, current: Revision, recent: Option<Recent>) {
        self.mark = (recent.as_ref().map_or(Duration::ZERO, |recent| (recent.clock)()), current);
        self.recent = recent;
    }

    /// The oldest revision at which lists are allowed, given the current revision.
    pub(crate) fn expired(&self, current: Revision) -> Revision {
        self.recent.as_ref().map_or(self.expired, |recent| self.expired_at(recent, (recent.clock)(), current))
    }

    /// The oldest revision at which lists are allowed. If two periods have passed since the mark, the current revision is older
    /// than one period too, since each event after one period moves the mark.
    fn expired_at(&self, recent: &Recent, now: Duration, current: Revision) -> Revision {
        let (marked, revision) = self.mark;
        let passed = now.saturating_sub(marked);
        if passed >= recent.age * 2 {
            current
        } else if passed >= recent.age {
            revision
        } else {
            self.expired
        }
    }

    /// Expires old revisions, before an event changes the current one.
    fn expire(&mut self, now: Duration, current: Revision) {
        let Some(recent) = &self.recent else { return };
        self.expired = self.expired_at(recent, now, current);
        if now.saturating_sub(self.mark.0) >= recent.age {
            self.mark = (now, current);
        }
    }

    /// Adds an event, and drops the oldest ones while there are too many.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        let now = self.recent.as_ref().map_or(Duration::ZERO, |recent| (recent.clock)());
        self.expire(now, event.revision.saturating_sub(1));
        let name = event.key().collection();
        if !self.collections.contains_key(name) {
            let empty = Collection { events: Vector::new(), bytes: 0, compacted: self.base };
            self.collections.insert(name.into(), empty);
        }
        let Some(collection) = self.collections.get_mut(name) else { return };
        let size = cost(&event);
        collection.bytes += size;
        self.bytes += size;
        self.len += 1;
        let bloom = BloomFilter::for_event(&event);
        collection.events.push_back(Entry { revision: event.revision, at: now, bloom, event });
        while self.bytes > self.limit && self.drop_oldest(now) {}
    }

    /// Drops the oldest event of the largest collection; false if it must be retained.
    fn drop_oldest(&mut self, now: Duration) -> bool {
        let largest = self.collections.iter().max_by_key(|(_, collection)| collection.bytes);
        let Some((name, collection)) = largest else { return false };
        let Some(oldest) = collection.events.front() else { return false };
        let is_recent =
            |recent: &Recent| self.bytes <= recent.bytes && now.saturating_sub(oldest.at) < recent.age;
        if self.recent.as_ref().is_some_and(is_recent) {
            return false;
        }
        let name = name.clone();
        let Some(collection) = self.collections.get_mut(&name) else { return false };
        let Some(oldest) = collection.events.pop_front() else { return false };
        let size = cost(&oldest.event);
        collection.compacted = oldest.revision;
        collection.bytes -= size;
        self.bytes -= size;
        self.len -= 1;
        self.drop_empty_collection();
        true
    }

    /// Drops a collection without events, if there are too many collections. Its compacted revision is merged into the base.
    fn drop_empty_collection(&mut self) {
        if self.collections.len() <= MAX_COLLECTIONS {
            return;
        }
        let empty = self.collections.iter().find(|(_, collection)| collection.events.is_empty());
        let Some(name) = empty.map(|(name, _)| name.clone()) else { return };
        if let Some(dropped) = self.collections.remove(&name) {
            self.base = self.base.max(dropped.compacted);
        }
    }

    /// The matching events after a revision, oldest first. The caller has checked that the revision is not compacted.
    pub(crate) fn events<'a, 'i>(
        &'a self,
        filter: &'i EventFilter,
        after: Revision,
    ) -> impl Iterator<Item = &'a Arc<Event>> + use<'a, 'i> {
        let bloom = BloomFilter::for_filter(filter);
        let mut iterators = Vec::new();
        for (_, collection) in self.collections_of(&filter.prefix) {
            // Never equal: a transaction elsewhere has several events with one revision.
            let is_after = |entry: &Entry| {
                if entry.revision > after { Ordering::Greater } else { Ordering::Less }
            };
            let first = collection.events.binary_search_by(is_after).unwrap_or_else(|first| first);
            if first < collection.events.len() {
                iterators.push(collection.events.focus().narrow(first..).into_iter().peekable());
            }
        }
        let next = move || {
            // Most prefixes match one collection, whose events need no merging.
            if let [only] = iterators.as_mut_slice() {
                return only.next();
            }
            let revision = |iterator: &mut Peekable<_>| iterator.peek().map(|entry: &&Entry| entry.revision);
            let firsts =
                iterators.iter_mut().enumerate().filter_map(|(at, iterator)| Some((revision(iterator)?, at)));
            let (_, at) = firsts.min()?;
            iterators[at].next()
        };
        std::iter::from_fn(next)
            .filter(move |entry| entry.bloom.has(bloom))
            .map(|entry| &entry.event)
            .filter(|event| filter.matches(event))
    }

    /// The revision up to which a subtree is compacted.
    pub(crate) fn compacted(&self, prefix: &Prefix) -> Revision {
        // Collections without an entry are compacted up to the base.
        self.collections_of(prefix).map(|(_, collection)| collection.compacted).fold(self.base, Revision::max)
    }

    /// The collections with keys of a subtree: those inside it, and those that contain it.
    fn collections_of(&self, prefix: &Prefix) -> impl Iterator<Item = (&Arc<str>, &Collection)> {
        let path = prefix.as_str();
        let start = (Bound::Included(path), Bound::Unbounded);
        let inside = self.collections.range::<_, str>(start);
        let inside = inside.take_while(move |(name, _)| name.starts_with(path));
        let inside = inside.filter(move |(name, _)| within(name, path));
        let ancestors = [0].into_iter().chain(path.match_indices('/').map(|(at, _)| at));
        let ancestors = ancestors.filter(|end| *end < path.len()).take(COLLECTION_SEGMENTS + 1);
        let around = ancestors.filter_map(|end| self.collections.get_key_value(&path[..end]));
        around.chain(inside)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Whether a path is that of a subtree or in it.
fn within(path: &str, subtree: &str) -> bool {
    subtree.is_empty()
        || path.strip_prefix(subtree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The bytes that an event is accounted for. The new version is referenced elsewhere, as the current one or by a later event, so
/// an event accounts only for the version that it replaced.
fn cost(event: &Event) -> usize {
    EVENT_COST + event.previous().map_or(0, |object| object.size())
}
