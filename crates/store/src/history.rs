//! The recent past, bounded in bytes.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use imbl::Vector;

use crate::{Attributes, Event, Interest, Revision};

/// What one remembered event costs beside the version it keeps alive: the event, its place and the object's frame.
const EVENT_COST: usize = 256;

/// An event with what is needed to pass it by without looking at it.
#[derive(Debug, Clone)]
struct Entry {
    revision: Revision,
    marks: Marks,
    event: Arc<Event>,
}

/// A few bits for each subtree and attribute of an event. A watch that resumes looks only at events that have all
/// the bits of its interest: nearly all of those that concern it, and few others.
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

    fn of_interest(interest: &Interest) -> Self {
        let attribute =
            interest.attribute.as_ref().map_or(0, |(name, value)| Self::of_attribute(name, value).0);
        Self(Self::of_subtree(interest.prefix.as_str()).0 | attribute)
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

/// The events after some revision up to the present, oldest first. A copy is cheap and never changes.
#[derive(Debug, Clone)]
pub(crate) struct History {
    events: Vector<Entry>,
    bytes: usize,
    limit: usize,
    /// Events at or before this revision are forgotten.
    compacted: Revision,
}

impl History {
    pub(crate) fn new(compacted: Revision, limit: usize) -> Self {
        Self { events: Vector::new(), bytes: 0, limit, compacted }
    }

    /// Remembers an event, and forgets the oldest while the limit is exceeded.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += cost(&event);
        self.events.push_back(Entry { revision: event.revision, marks: Marks::of_event(&event), event });
        while self.bytes > self.limit {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= cost(&oldest.event);
            self.compacted = oldest.revision;
        }
    }

    /// The events of interest after a revision, oldest first. The caller has seen that it is not compacted.
    pub(crate) fn of<'a, 'i>(
        &'a self,
        interest: &'i Interest,
        after: Revision,
    ) -> impl Iterator<Item = &'a Arc<Event>> + use<'a, 'i> {
        let first = match self.events.binary_search_by(|entry| entry.revision.cmp(&after)) {
            Ok(found) => found + 1,
            Err(place) => place,
        };
        let marks = Marks::of_interest(interest);
        let near =
            self.events.focus().narrow(first..).into_iter().filter(move |entry| entry.marks.has(marks));
        near.map(|entry| &entry.event).filter(|event| interest.covers(event))
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

/// The new version is alive elsewhere (as the present, or as what a later event replaced), so an event keeps only
/// the version that it replaced.
fn cost(event: &Event) -> usize {
    EVENT_COST + event.previous().map_or(0, |object| object.size())
}
