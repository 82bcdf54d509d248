//! What happened to a key.

use std::sync::Arc;

use crate::{Key, Object, Revision};

/// One change of one key, at a revision of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When: no other event has it.
    pub revision: Revision,
    /// What.
    pub change: Change,
}

/// What an event did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key had no object before.
    Created(Arc<Object>),
    /// A new version took the place of another.
    Updated {
        /// The version since this event.
        current: Arc<Object>,
        /// The version until this event.
        previous: Arc<Object>,
    },
    /// The object is gone; this was its last version.
    Deleted(Arc<Object>),
}

impl Event {
    /// The key it happened to.
    pub fn key(&self) -> &Key {
        match &self.change {
            Change::Created(object) | Change::Updated { current: object, .. } | Change::Deleted(object) => {
                &object.key
            }
        }
    }

    /// The object since this event; none if it was deleted.
    pub fn current(&self) -> Option<&Arc<Object>> {
        match &self.change {
            Change::Created(object) | Change::Updated { current: object, .. } => Some(object),
            Change::Deleted(_) => None,
        }
    }

    /// The object until this event; none if it was created.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        match &self.change {
            Change::Created(_) => None,
            Change::Updated { previous, .. } | Change::Deleted(previous) => Some(previous),
        }
    }
}
