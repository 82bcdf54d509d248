//! Versioned objects in memory in front of a durable log.
//!
//! An object is a value (encoded bytes, kept as they are) at a [`Key`] (a path such as `pods/default/web-0`). Every
//! write gets the next [`Revision`]. Objects can be read and listed now and at recent revisions, written if they are
//! as expected, and watched from a revision on. The store knows nothing of what the bytes mean.
//!
//! ```
//! use plumb_store::{Expect, Interest, Key, List, Options, Prefix, Store, Write};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = Store::open(directory.path(), Options::default())?;
//! let key = Key::new("pods/default/web-0")?;
//!
//! let created = store.write(Write::create(key.clone(), "{}")).wait()?; // or `.await`
//! let page = store.list(&List::all(Prefix::new("pods")?))?;
//! let mut watch = store.watch(Interest::prefix(Prefix::new("pods/default")?), page.revision)?;
//!
//! let changed = Write::put(key, r#"{"a":1}"#).expect(Expect::Revision(created.revision));
//! store.write(changed).wait()?;
//! let event = watch.wait_next()?;
//! assert_eq!(event.revision, created.revision + 1);
//! assert_eq!(event.previous(), created.current());
//! # Ok(())
//! # }
//! ```
//!
//! # The way of a write
//!
//! ```text
//!  writers                       committer (one thread)                         readers, watchers
//!  ───────                       ──────────────────────                         ─────────────────
//!  check against the head  ──▶   take all that waits as one batch
//!  (all accepted writes,         append it to the log, sync (one for all)
//!  durable or not), join         publish a snapshot  ─────────────────────────▶ load it: get, list, history
//!  the batch, get a ticket ◀──   answer the tickets
//!                                tell the watchers concerned  ────────────────▶ their queues
//!                                begin a checkpoint if the log is long
//! ```
//!
//! Three structures hold the same objects, and share all but what changed between them (persistent maps): the *head*,
//! which runs ahead of the disk and which only writers see; the *present*, a [`Snapshot`] behind one atomic pointer;
//! and what readers still hold of the past. The recent past is a list of events in each snapshot, bounded in bytes:
//! an older state is the present with later events undone.
//!
//! # Invariants
//!
//! - **Nobody learns of a write before it is durable**, neither from a read nor from a watch, nor from the refusal of
//!   another write that it caused: every [`Ticket`] waits behind the batch that its answer was drawn from.
//! - **Readers never wait.** They load a pointer. The only locks are the head (writers, for microseconds, never during
//!   input or output) and the index of watchers.
//! - **A watch from the revision of a list has no gap and no duplicate.** A snapshot is published while no watch can
//!   begin, and a beginning watch takes from history exactly what its queue will not be told.
//! - **The store waits for no watcher.** Whoever falls behind its [`Patience`] is cut off ([`WatchEnd::Lagged`]).
//! - **A write costs what those concerned cost.** Watchers are found by the few subtrees that hold the key and by the
//!   attributes that the object has or had.
//! - **An acknowledged write survives** the end of the process and the loss of power. A batch is written only when the
//!   one before it is durable, so that at most the last one can be cut short; that one was never acknowledged.
//! - **Damage is told, never served**: everything on disk is under a checksum; see [`OpenError::Damaged`].
//! - **A failed sync is final.** The store then is read-only until it is opened anew ([`WriteError::ReadOnly`]).
//!   A full disk is not: nothing was written, and the next write may succeed ([`WriteError::Full`]).
//! - **A revision is never given twice** to anything that anybody saw.
//!
//! The core is synchronous and needs no runtime; a [`Ticket`] and a [`Watch`] can be awaited in any.
//! The file system is behind [`Disk`], the log behind [`Journal`]. There is no clock and no randomness.

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

pub use backup::{restore, verify};
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
