//! A store on etcd: several API servers share its objects, and it survives a machine.
//!
//! ```text
//!  writers ── Store ──▶ engine: one transaction per write, compared with revisions ──▶ etcd
//!                         ▲ the ticket resolves when the cache has the revision         │
//!  readers ◀── Store ◀── Cache ◀── feed: a list, and a watch from its revision ◀────────┘
//! ```
//!
//! The embedded store's snapshot, history and dispatcher are a watch cache here ([`plumb_store::Cache`]). The revision of an object
//! is its `mod_revision` in etcd.
//!
//! - **A write** compares the revisions that it depends on, so other writers are safe. If its outcome is unknown, for example after
//!   a timeout, it says so ([`plumb_store::WriteError::Unknown`]), and is never sent again.
//! - **A read that must be up to date** asks etcd for its revision and waits until the cache has it, as KEP-2340 describes. The
//!   watch reports its progress on request. Before etcd 3.4.31 and 3.5.13 the reported progress could be ahead of events; there the
//!   engine writes a key, a *barrier*, and waits for its event.
//! - **A broken watch** is opened again from the revision of the cache: no event is missed or repeated. If etcd has compacted that
//!   revision, all objects are listed again, and our own watches end, since what they have missed is not known.
//!
//! The messages are written by hand ([`proto`]), so that the build needs no `protoc`.

mod client;
mod compaction;
mod engine;
mod feed;
mod layout;
mod open;
mod pending;
pub mod proto;
mod value;
mod version;

pub use client::{CallError, Client, ClientError, WatchStream};
pub use compaction::Compactor;
pub use layout::{DEFAULT_PREFIX, Layout};
pub use open::{Config, OpenError, open};
pub use plumb_grpc::{TlsError, TlsFiles};
pub use value::{Stamp, ValueError};
