//! The committer: one thread that makes batches durable and then visible.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};

use crate::{
    Event, Journal, JournalError, Recovery, Snapshot, WriteError,
    dispatcher::Dispatcher,
    head::{Batch, Head},
    quota::{Objects, Quota},
};

/// The state that writers, readers, watchers and the committer share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Held for the few microseconds in which a write is checked; never during I/O.
    pub(crate) head: Mutex<Head>,
    /// Notified when the batch is not empty or the store closes.
    pub(crate) work_pending: Condvar,
    /// The durable state, which readers see.
    pub(crate) current: ArcSwap<Snapshot>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) batches: AtomicU64,
    pub(crate) journal_bytes: AtomicU64,
}

impl Shared {
    pub(crate) fn new(durable: Snapshot, pending: usize, quota: Quota) -> Self {
        Self {
            head: Mutex::new(Head::new(&durable, pending, quota)),
            work_pending: Condvar::new(),
            dispatcher: Arc::new(Dispatcher::new(durable.revision)),
            current: ArcSwap::from_pointee(durable),
            batches: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
        }
    }

    /// The state of a cache, whose head is unused.
    pub(crate) fn of_cache(durable: Snapshot) -> Self {
        let unused = Recovery::new(0, 0).finish();
        Self {
            head: Mutex::new(Head::new(&unused, 0, Quota::UNLIMITED)),
            work_pending: Condvar::new(),
            dispatcher: Arc::new(Dispatcher::for_cache(durable.revision)),
            current: ArcSwap::from_pointee(durable),
            batches: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
        }
    }

    /// Runs until the store is closed and every ticket is resolved.
    pub(crate) fn commit_all(&self, mut journal: Box<dyn Journal>) {
        let work = AssertUnwindSafe(|| {
            while let Some((batch, objects)) = self.next_batch() {
                self.commit(journal.as_mut(), batch, objects);
            }
        });
        // If the journal or a waker panics, writers must not wait for ever.
        if std::panic::catch_unwind(work).is_err() {
            self.fail(WriteError::ReadOnly("the commit thread panicked".into()), true);
        }
        self.fail(WriteError::Closed, true);
        // The journal is closed before watches end: a watcher may reopen the store then.
        drop(journal);
        self.dispatcher.close();
    }

    /// Commits all pending batches on the caller's thread.
    pub(crate) fn commit_pending(&self, journal: &mut dyn Journal) {
        loop {
            let (batch, objects) = {
                let mut head = self.head.lock();
                if head.batch().is_empty() {
                    return;
                }
                head.take_batch()
            };
            self.commit(journal, batch, objects);
        }
    }

    fn next_batch(&self) -> Option<(Batch, Objects)> {
        let mut head = self.head.lock();
        while head.batch().is_empty() {
            if head.is_closing() {
                return None;
            }
            self.work_pending.wait(&mut head);
        }
        Some(head.take_batch())
    }

    fn commit(&self, journal: &mut dyn Journal, batch: Batch, objects: Objects) {
        if !batch.events.is_empty()
            && let Err(error) = journal.append(&batch.events)
        {
            let text = describe(&error).into();
            let (reason, is_final) = match error {
                JournalError::Full { .. } => (WriteError::Full(text), false),
                JournalError::Transform(_) => (WriteError::Transform(text), false),
                JournalError::Failed { .. } => (WriteError::ReadOnly(text), true),
            };
            tracing::error!(error = %reason, writes = batch.events.len(), "a batch of writes failed");
            self.fail(reason.clone(), is_final);
            batch.resolve(&Err(reason));
            return;
        }
        let current = self.publish(&batch.events, objects);
        let events = batch.resolve(&Ok(()));
        self.dispatcher.dispatch(&events);
        if !events.is_empty() {
            self.batches.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = journal.maintain(&current) {
                let reason = WriteError::ReadOnly(describe(&error).into());
                tracing::error!(error = %reason, "the journal failed");
                self.fail(reason, true);
            }
            self.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        }
    }

    pub(crate) fn publish(&self, events: &[Arc<Event>], objects: Objects) -> Arc<Snapshot> {
        let before = self.current.load_full();
        let Some(last) = events.last() else { return before };
        let mut history = before.history.clone();
        events.iter().cloned().for_each(|event| history.push(event));
        let current = Arc::new(Snapshot { revision: last.revision, objects, history });
        self.dispatcher.with_index(|_| self.current.store(current.clone()));
        current
    }

    /// Resets the head to the durable state and fails the pending tickets.
    fn fail(&self, reason: WriteError, is_final: bool) {
        let mut head = self.head.lock();
        if is_final {
            head.reject_writes(reason.clone());
        }
        let undone = head.reset(&self.current.load());
        drop(head);
        undone.resolve(&Err(reason));
    }
}

/// An error with its causes on one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
