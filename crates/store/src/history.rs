//! The recent past, bounded in bytes.

use std::sync::Arc;

use imbl::Vector;

use crate::{Event, Revision};

/// What one remembered event costs beside the version it keeps alive: the event, its place and the object's frame.
const EVENT_COST: usize = 256;

/// The events after some revision up to the present, oldest first. A copy is cheap and never changes.
#[derive(Debug, Clone)]
pub(crate) struct History {
    events: Vector<Arc<Event>>,
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
        self.events.push_back(event);
        while self.bytes > self.limit {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= cost(&oldest);
            self.compacted = oldest.revision;
        }
    }

    /// The events after a revision, oldest first. The caller has seen that it is not compacted.
    pub(crate) fn after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Event>> {
        let first = match self.events.binary_search_by(|event| event.revision.cmp(&revision)) {
            Ok(found) => found + 1,
            Err(place) => place,
        };
        self.events.focus().narrow(first..).into_iter()
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
