//! Versioned objects in memory in front of a write-ahead log.
//!
//! An object is a value (encoded bytes, stored unchanged) at a [`Key`] (a path such as `pods/default/web-0`). Every
//! write gets the next [`Revision`]. Callers read and list objects at the current and at recent revisions, write them
//! under a [`Precondition`], and watch them from a revision on. The store does not decode the bytes.
//!
//! ```
//! use plumb_store::{Precondition, EventFilter, Key, List, Options, Prefix, Store, Write};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = Store::open(directory.path(), Options::default())?;
//! let key = Key::new("pods/default/web-0")?;
//!
//! let created = store.write(Write::create(key.clone(), "{}")).wait()?; // or `.await`
//! let page = store.list(&List::all(Prefix::new("pods")?))?;
//! let mut watch = store.watch(EventFilter::prefix(Prefix::new("pods/default")?), page.revision)?;
//!
//! let changed = Write::put(key, r#"{"a":1}"#).precondition(Precondition::Revision(created.revision));
//! store.write(changed).wait()?;
//! let event = watch.wait_next()?;
//! assert_eq!(event.revision, created.revision + 1);
//! assert_eq!(event.previous(), created.current());
//! # Ok(())
//! # }
//! ```
//!
//! # The path of a write
//!
//! ```text
//!  writers                       committer (one thread)                         readers, watchers
//!  ───────                       ──────────────────────                         ─────────────────
//!  check against the head  ──▶   take all pending writes as one batch
//!  (all accepted writes,         append it to the log, one sync per batch
//!  durable or not), join         publish a snapshot  ─────────────────────────▶ load it: get, list, history
//!  the batch, get a ticket ◀──   resolve the tickets
//!                                dispatch to the matching watchers  ──────────▶ their queues
//!                                start a checkpoint if the log is long
//! ```
//!
//! Three structures contain the objects. They are persistent maps, which share what they have in common: the *head*, which is
//! ahead of the disk and visible to writers only; the *current snapshot*, a [`Snapshot`] behind one atomic pointer; and older
//! snapshots that readers still use. Each snapshot has its recent history as lists of events, one for each collection of keys,
//! bounded in bytes. A past state is the current one with later events undone. Dropping old events is compaction: a read or a
//! watch at an older revision fails with [`RevisionError::Compacted`].
//!
//! # Compared with etcd
//!
//! | etcd | here |
//! |---|---|
//! | revision, `create_revision`, `mod_revision`, version | the same: [`Revision`], [`Object`] |
//! | transaction with compares | [`Store::transact`] with [`Precondition`]s |
//! | range at a revision, paging | [`List`], [`Page`] |
//! | watch from a revision, `ErrCompacted` | [`Store::watch`], [`RevisionError::Compacted`] |
//! | WAL and snapshot files | the log and its checkpoint (`log.rs`), behind the trait [`Journal`] |
//! | compaction, which an operator or the API server requests | automatic, by bytes and age: [`Options::history`], [`Recent`] |
//! | MVCC tree (treeIndex, bbolt) | persistent maps of the live objects ([`Snapshot`]), and events for the recent past |
//! | `snapshot save`, `snapshot restore` | [`Store::backup`], [`restore`] |
//! | `--quota-backend-bytes`, alarm `NOSPACE` | [`Quota`], also by namespace; [`Usage::alarm`] |
//! | encryption at rest, which the API server does | a [`Transformer`]; memory has the original values |
//! | raft, leases | none: there is one process, and Leases of Kubernetes are objects |
//! | etcd itself, for several API servers | [`Store::on`] a [`Remote`] (`crates/etcd`): this store is a watch cache then |
//!
//! The log is not an embedded database, because the objects are in memory anyway, for lists and watches: with the same batches,
//! redb does a quarter of the writes per second (`benches/throughput.rs`, `docs/store.md`).
//!
//! # Invariants
//!
//! - **A write is not observable before it is durable**, neither through a read nor a watch, nor through a conflict
//!   that it causes: every [`Ticket`] resolves after the batch from which its outcome was derived.
//! - **Readers never wait.** They load a pointer. The only locks are the head (writers, for microseconds, never during
//!   I/O) and the index of watchers.
//! - **A watch from the revision of a list has no gap and no duplicate.** A snapshot is published while no watch can
//!   start, and a starting watch reads from history exactly the events that its queue will not receive.
//! - **The store waits for no watcher.** A watcher that overflows its [`WatchBuffer`] is ended ([`WatchEnd::Lagged`]).
//! - **The cost of a write grows with its matching watchers only.** Watchers are indexed by subtree and by the
//!   attributes that the object has or had.
//! - **An acknowledged write survives** a crash of the process and a power loss. A batch is written only after the previous one
//!   is durable, so only the last one can be torn, which was never acknowledged.
//! - **Damaged data is reported, never served**: everything on disk has a checksum; see [`OpenError::Damaged`].
//! - **A failed sync is final.** The store is then read-only until it is reopened ([`WriteError::ReadOnly`]).
//!   A full disk is not: nothing was written, and the next write may succeed ([`WriteError::Full`]).
//! - **An observable revision is never assigned twice.**
//!
//! On a [`Remote`], the committer, the log and the head are unused. The remote makes writes durable and assigns revisions, and
//! the [`Cache`] publishes them; readers and watchers find no difference, except that the events of one transaction have the same
//! revision, and that another writer may be ahead of the cache ([`Store::refresh`]).
//!
//! The core is synchronous and needs no async runtime; a [`Ticket`] and a [`Watch`] can be awaited in any. The file system is
//! behind [`Disk`], the log behind [`Journal`]. The store uses no randomness, and no clock except the one that the caller passes
//! to retain recent history ([`Recent`]).

mod archive;
mod backup;
mod codec;
mod committer;
mod disk;
mod dispatcher;
mod error;
mod event;
mod head;
mod history;
mod journal;
mod key;
mod log;
mod object;
mod quota;
mod remote;
mod snapshot;
mod store;
mod ticket;
mod transformer;
mod watch;
mod write;

pub use backup::{restore, verify};
pub use disk::{Directory, Disk, DiskFile};
pub use error::{Damage, OpenError};
pub use event::{Change, Event};
pub use head::Epoch;
pub use history::Recent;
pub use journal::{Journal, JournalError, Record, Recovery, RecoveryError};
pub use key::{Key, KeyError, MAX_KEY, Prefix};
pub use log::is_store;
pub use object::{Attributes, MAX_ATTRIBUTE, MAX_ATTRIBUTES, Object};
pub use quota::{Quota, Usage};
pub use remote::{Cache, Remote};
pub use snapshot::{List, Page, RevisionError, Snapshot};
pub use store::{Options, Stats, Store, UpdateOutcome};
pub use ticket::Ticket;
pub use transformer::{FromStorage, MAX_OVERHEAD, TransformError, Transformer, TransformerError};
pub use watch::{EventFilter, Watch, WatchBuffer, WatchEnd};
pub use write::{
    Conflict, Edit, MAX_TRANSACTION, MAX_VALUE, Precondition, UpdateError, Value, Write, WriteError,
};

/// A point in the store's history: the number of writes up to it. Each write increases it by one.
pub type Revision = u64;
