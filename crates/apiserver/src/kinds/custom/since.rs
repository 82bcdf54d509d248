//! Which custom resources were written under the current schema, and may be served without decoding them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use plumb_store::Revision;

/// What was written later than a revision was written under the schema, but for the writes of requests that began under
/// an earlier one: while there are any, nothing is known.
#[derive(Debug)]
pub(crate) struct Since {
    revision: AtomicU64,
    stale_writes: AtomicUsize,
}

impl Since {
    pub(crate) fn new(revision: Revision) -> Arc<Self> {
        Arc::new(Self { revision: AtomicU64::new(revision), stale_writes: AtomicUsize::new(0) })
    }

    /// Whether an object that was written at a revision, and has been read, was written under the schema.
    pub(crate) fn covers(&self, revision: Revision) -> bool {
        // A stale write is counted before it can be read, and no more once the revision is past it.
        self.stale_writes.load(Ordering::Acquire) == 0 && revision > self.revision.load(Ordering::Acquire)
    }

    /// Nothing up to this revision is known to be written under the schema.
    pub(crate) fn raise(&self, revision: Revision) {
        self.revision.fetch_max(revision, Ordering::AcqRel);
    }

    /// Begins a write of an object that is not complete under the schema.
    pub(crate) fn stale_write(self: &Arc<Self>) -> StaleWrite {
        self.stale_writes.fetch_add(1, Ordering::AcqRel);
        StaleWrite { since: self.clone(), revision: 0 }
    }
}

/// A write of an object that is not complete under the schema of its kind. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct StaleWrite {
    since: Arc<Since>,
    /// The revision of the write; none is later while it is not known.
    revision: Revision,
}

impl StaleWrite {
    /// The store has accepted the write, at a revision that is not known yet.
    pub(crate) fn accepted(&mut self) {
        self.revision = Revision::MAX;
    }

    /// The write is stored, at a revision that is not later than this one.
    pub(crate) fn stored(&mut self, revision: Revision) {
        self.revision = revision;
    }
}

impl Drop for StaleWrite {
    fn drop(&mut self) {
        self.since.raise(self.revision);
        self.since.stale_writes.fetch_sub(1, Ordering::AcqRel);
    }
}
