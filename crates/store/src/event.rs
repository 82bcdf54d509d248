//! Changes of keys.

use std::sync::Arc;

use crate::{Key, Object, Revision};

/// One change of one key, at a revision of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision, which is unique to the event.
    pub revision: Revision,
    /// The change.
    pub change: Change,
}

/// The change of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key had no object before.
    Created(Arc<Object>),
    /// A new version replaced the previous one.
    Updated {
        /// The version after the event.
        current: Arc<Object>,
        /// The version before the event.
        previous: Arc<Object>,
    },
    /// The object was deleted; this was its last version.
    Deleted(Arc<Object>),
}

impl Event {
    /// The key that changed.
    pub fn key(&self) -> &Key {
        match &self.change {
            Change::Created(object) | Change::Updated { current: object, .. } | Change::Deleted(object) => {
                &object.key
            }
        }
    }

    /// The object after this event; `None` if it was deleted.
    pub fn current(&self) -> Option<&Arc<Object>> {
        match &self.change {
            Change::Created(object) | Change::Updated { current: object, .. } => Some(object),
            Change::Deleted(_) => None,
        }
    }

    /// The object before this event; `None` if it was created.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        match &self.change {
            Change::Created(_) => None,
            Change::Updated { previous, .. } | Change::Deleted(previous) => Some(previous),
        }
    }
}
