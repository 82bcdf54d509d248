//! Recent events, bounded in bytes.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use imbl::Vector;

use crate::{Attributes, Event, EventFilter, Revision};

/// The cost of one event beside the version that it retains: the event, its entry and the object's header.
const EVENT_COST: usize = 256;

/// An event with what is needed to skip it without dereferencing it.
#[derive(Debug, Clone)]
struct Entry {
    revision: Revision,
    marks: Marks,
    event: Arc<Event>,
}

/// A Bloom filter with a few bits for each subtree and attribute of an event. A watch that resumes examines only the
/// events that have all the bits of its filter: all that match, and few others.
#[derive(Debug, Clone, Copy)]
struct Marks(u64);

impl Marks {
    fn of_event(event: &Event) -> Self {
        let subtrees = event.key().ancestors().map(Self::of_subtree);
        let objects = [event.current(), event.previous()].into_iter().flatten();
        let attributes = objects.flat_map(|object| Attributes::iter(&object.attributes));
        let attributes = attributes.map(|(name, value)| Self::of_attribute(name, value));
        Self(subtrees.chain(attributes).fold(0, |all, marks| all | marks.0))
    }

    fn of_filter(filter: &EventFilter) -> Self {
        let attribute =
            filter.attribute.as_ref().map_or(0, |(name, value)| Self::of_attribute(name, value).0);
        Self(Self::of_subtree(filter.prefix.as_str()).0 | attribute)
    }

    fn of_subtree(path: &str) -> Self {
        Self::pick(path)
    }

    fn of_attribute(name: &str, value: &str) -> Self {
        Self::pick((name, value))
    }

    fn pick(what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let hash = hasher.finish();
        Self(1 << (hash % 64) | 1 << (hash / 64 % 64))
    }

    fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }
}

/// The events after some revision up to the current one, oldest first. A clone is cheap and immutable.
#[derive(Debug, Clone)]
pub(crate) struct History {
    events: Vector<Entry>,
    bytes: usize,
    limit: usize,
    /// Events at or before this revision are dropped.
    compacted: Revision,
}

impl History {
    pub(crate) fn new(compacted: Revision, limit: usize) -> Self {
        Self { events: Vector::new(), bytes: 0, limit, compacted }
    }

    /// Adds an event, and drops the oldest while the limit is exceeded.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += cost(&event);
        self.events.push_back(Entry { revision: event.revision, marks: Marks::of_event(&event), event });
        while self.bytes > self.limit {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= cost(&oldest.event);
            self.compacted = oldest.revision;
        }
    }

    /// The matching events after a revision, oldest first. The caller has checked that it is not compacted.
    pub(crate) fn of<'a, 'i>(
        &'a self,
        filter: &'i EventFilter,
        after: Revision,
    ) -> impl Iterator<Item = &'a Arc<Event>> + use<'a, 'i> {
        let first = match self.events.binary_search_by(|entry| entry.revision.cmp(&after)) {
            Ok(found) => found + 1,
            Err(place) => place,
        };
        let marks = Marks::of_filter(filter);
        let near =
            self.events.focus().narrow(first..).into_iter().filter(move |entry| entry.marks.has(marks));
        near.map(|entry| &entry.event).filter(|event| filter.matches(event))
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}

/// The new version is referenced elsewhere (as the current one, or as the one that a later event replaced), so an event
/// accounts for the replaced version only.
fn cost(event: &Event) -> usize {
    EVENT_COST + event.previous().map_or(0, |object| object.size())
}
