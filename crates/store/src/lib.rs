//! Versioned objects in memory in front of a durable log.

mod archive;
mod backup;
mod codec;
mod committer;
mod disk;
mod error;
mod event;
mod head;
mod history;
mod hub;
mod journal;
mod key;
mod log;
mod object;
mod snapshot;
mod store;
mod ticket;
mod watch;
mod write;

pub use backup::restore;
pub use disk::{Directory, Disk, DiskFile};
pub use error::{Damage, OpenError};
pub use event::{Change, Event};
pub use journal::{Journal, JournalError, Record, Recovery, RecoveryError};
pub use key::{Key, KeyError, MAX_KEY, Prefix};
pub use object::{Attributes, MAX_ATTRIBUTE, MAX_ATTRIBUTES, Object};
pub use snapshot::{List, Page, RevisionError, Snapshot};
pub use store::{Options, Stats, Store, Updated};
pub use ticket::Ticket;
pub use watch::{Interest, Patience, Watch, WatchEnd};
pub use write::{Conflict, Edit, Expect, MAX_TRANSACTION, MAX_VALUE, UpdateError, Value, Write, WriteError};

/// A moment in the life of the store: the number of writes up to it. It grows by one with each write.
pub type Revision = u64;
