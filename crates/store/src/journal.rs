//! The journal, which makes writes durable, and recovery from it.

use std::{io, sync::Arc};

use crate::{
    Change, Event, Key, Object, Revision, Snapshot, TransformError, head::apply, history::History,
    quota::Objects,
};

/// A durable sequence of events.
///
/// The store has one thread that owns the journal, and calls it with one batch at a time.
pub trait Journal: Send + 'static {
    /// Appends events. Once it returns, they survive a crash of the process and a power loss.
    fn append(&mut self, batch: &[Arc<Event>]) -> Result<(), JournalError>;

    /// The store calls this after each batch for maintenance, for example to start a checkpoint of this state. It must not
    /// block.
    ///
    /// An error means that no further append may happen; earlier appends are safe.
    fn maintain(&mut self, durable: &Snapshot) -> Result<(), JournalError> {
        let _ = durable;
        Ok(())
    }

    /// The number of bytes that the next start would have to replay.
    fn bytes(&self) -> u64 {
        0
    }
}

/// A journal that stores nothing, for stores in memory.
pub(crate) struct Memory;

impl Journal for Memory {
    fn append(&mut self, _: &[Arc<Event>]) -> Result<(), JournalError> {
        Ok(())
    }
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// No space is left, and nothing of the batch was written. The next append may succeed.
    #[error("reserve space in {file}")]
    Full {
        /// The file to be written.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A value cannot be transformed, and nothing of the batch was written. The next append may succeed.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// It is unknown how much of the batch was written. No further append may happen.
    #[error("{action} {file}")]
    Failed {
        /// What was being done.
        action: &'static str,
        /// The file to be written.
        file: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The state recovered from a journal, event by event.
#[derive(Debug)]
pub struct Recovery {
    revision: Revision,
    objects: Objects,
    history: History,
}

/// A change as a journal stores it, without the replaced version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A new version.
    Put(Object),
    /// A deletion.
    Delete(Key),
}

/// Why the records of a journal are inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// A revision is missing or duplicate.
    #[error("revision {found} follows {last}")]
    Revision {
        /// The revision before.
        last: Revision,
        /// The revision found.
        found: Revision,
    },
    /// A version is not the successor of the previous one.
    #[error("version {version} of {key} at revision {revision} does not follow from the one before")]
    Version {
        /// The key.
        key: Key,
        /// The version found.
        version: u64,
        /// Its revision.
        revision: Revision,
    },
    /// A deletion of a key that does not exist.
    #[error("{key} is deleted at revision {revision} but does not exist")]
    NothingToDelete {
        /// The key.
        key: Key,
        /// The revision of the deletion.
        revision: Revision,
    },
}

impl Recovery {
    /// Starts with an empty store at a revision, which retains at most this many bytes of history.
    pub fn new(revision: Revision, history: usize) -> Self {
        Self { revision, objects: Objects::new(), history: History::new(revision, history) }
    }

    /// Adds an object of a checkpoint.
    pub fn load(&mut self, object: Object) -> Result<(), RecoveryError> {
        let sound = object.mod_revision <= self.revision
            && object.create_revision <= object.mod_revision
            && object.create_revision > 0;
        if !sound || self.objects.contains_key(&object.key) {
            let Object { key, version, mod_revision: revision, .. } = object;
            return Err(RecoveryError::Version { key, version, revision });
        }
        self.objects.insert(Arc::new(object));
        Ok(())
    }

    /// Replays a change.
    pub fn replay(&mut self, revision: Revision, record: Record) -> Result<(), RecoveryError> {
        if Some(revision) != self.revision.checked_add(1) {
            return Err(RecoveryError::Revision { last: self.revision, found: revision });
        }
        let change = match record {
            Record::Delete(key) => match self.objects.get(&key) {
                None => return Err(RecoveryError::NothingToDelete { key, revision }),
                Some(previous) => Change::Deleted(previous.clone()),
            },
            Record::Put(object) => {
                let previous = self.objects.get(&object.key);
                let (created, version) =
                    previous.map_or((revision, 1), |before| (before.create_revision, before.version + 1));
                if (object.create_revision, object.version, object.mod_revision)
                    != (created, version, revision)
                {
                    let Object { key, version, .. } = object;
                    return Err(RecoveryError::Version { key, version, revision });
                }
                match previous.cloned() {
                    None => Change::Created(Arc::new(object)),
                    Some(previous) => {
                        let current = Arc::new(Object { key: previous.key.clone(), ..object });
                        Change::Updated { current, previous }
                    }
                }
            }
        };
        let event = Event { revision, change };
        apply(&mut self.objects, &event);
        self.history.push(Arc::new(event));
        self.revision = revision;
        Ok(())
    }

    /// The revision recovered so far.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The state recovered so far.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { revision: self.revision, objects: self.objects.clone(), history: self.history.clone() }
    }

    pub(crate) fn finish(self) -> Snapshot {
        Snapshot { revision: self.revision, objects: self.objects, history: self.history }
    }
}
