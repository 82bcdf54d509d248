//! The head: the state with all accepted writes, durable or not, and the batch that is written to the log next.
//!
//! Writes are checked against this state, so that many writers of one key can share one batch. It is not observable before it
//! is durable: every ticket, also that of a conflict, resolves after the batch from which its outcome was derived.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    Attributes, Change, Conflict, Edit, Event, Key, MAX_TRANSACTION, MAX_VALUE, Object, Revision, Write,
    WriteError,
    quota::{Objects, Quota, Usage},
    snapshot::Snapshot,
    ticket::CommitResult,
    write::Limit,
};

/// The fixed cost of a write, for the bound on pending bytes.
const WRITE_COST: usize = 128;

/// Accepted writes, and the tickets that resolve when they are durable.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) tickets: Vec<oneshot::Sender<CommitResult>>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.tickets.is_empty()
    }

    /// Resolves the tickets, and returns the events.
    pub(crate) fn resolve(self, result: &CommitResult) -> Vec<Arc<Event>> {
        for ticket in self.tickets {
            // The ticket may have been dropped.
            let _ = ticket.send(result.clone());
        }
        self.events
    }
}

#[derive(Debug)]
pub(crate) struct Head {
    objects: Objects,
    revision: Revision,
    batch: Batch,
    /// The bytes of the batch.
    bytes: usize,
    limit: usize,
    quota: Quota,
    /// The number of writes that were rejected for the quota.
    quota_rejections: u64,
    /// Why the store accepts no further writes.
    rejection: Option<WriteError>,
    /// Whether the store is closing: the committer ends after the last batch.
    closing: bool,
    epoch: Epoch,
}

/// A number that changes whenever accepted writes are rolled back because the disk was full. Their revisions are then assigned
/// to other writes, so a revision that was read before its write was durable is meaningless in another epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Epoch(u64);

impl Head {
    pub(crate) fn new(durable: &Snapshot, limit: usize, quota: Quota) -> Self {
        Self {
            objects: durable.objects.clone(),
            revision: durable.revision,
            batch: Batch::default(),
            bytes: 0,
            limit,
            quota,
            quota_rejections: 0,
            rejection: None,
            closing: false,
            epoch: Epoch::default(),
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Rejects further writes; the accepted ones still become durable.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.reject_writes(WriteError::Closed);
    }

    /// Accepts one write, or returns why it is rejected.
    pub(crate) fn write(&mut self, write: Write) -> Result<Arc<Event>, WriteError> {
        self.check_accepts()?;
        let decided = decide(&self.objects, self.revision + 1, self.quota, write);
        let event = decided.inspect_err(|error| self.count_rejection(error))?;
        apply(&mut self.objects, &event);
        self.push(event.clone());
        Ok(event)
    }

    /// Accepts all writes, or none.
    pub(crate) fn transact(&mut self, writes: Vec<Write>) -> Result<Vec<Arc<Event>>, WriteError> {
        self.check_accepts()?;
        let mut objects = self.objects.clone();
        let mut events = Vec::with_capacity(writes.len());
        for (revision, write) in (self.revision + 1..).zip(writes) {
            let decided = decide(&objects, revision, self.quota, write);
            let event = decided.inspect_err(|error| self.count_rejection(error))?;
            apply(&mut objects, &event);
            events.push(event);
        }
        let size = events.iter().filter_map(|event| event.current()).map(|object| object.size()).sum();
        if size > MAX_TRANSACTION {
            return Err(WriteError::TransactionTooLarge(size));
        }
        self.objects = objects;
        events.iter().cloned().for_each(|event| self.push(event));
        Ok(events)
    }

    /// Adds a ticket to the batch.
    pub(crate) fn add_ticket(&mut self) -> oneshot::Receiver<CommitResult> {
        let (ticket, committed) = oneshot::channel();
        self.batch.tickets.push(ticket);
        committed
    }

    /// Takes the pending batch, with the state after it.
    pub(crate) fn take_batch(&mut self) -> (Batch, Objects) {
        self.bytes = 0;
        (std::mem::take(&mut self.batch), self.objects.clone())
    }

    /// Resets to the durable state after a batch failed, on which all later ones depend. Returns the pending batch.
    pub(crate) fn reset(&mut self, durable: &Snapshot) -> Batch {
        self.objects = durable.objects.clone();
        self.revision = durable.revision;
        self.epoch.0 += 1;
        self.bytes = 0;
        std::mem::take(&mut self.batch)
    }

    /// Rejects all further writes; the first reason is retained.
    pub(crate) fn reject_writes(&mut self, reason: WriteError) {
        self.rejection.get_or_insert(reason);
    }

    /// Whether the store accepts writes, without regard to how many are pending.
    pub(crate) fn writable(&self) -> Result<(), WriteError> {
        self.rejection.clone().map_or(Ok(()), Err)
    }

    /// The number of writes that were rejected for the quota since the start.
    pub(crate) fn quota_rejections(&self) -> u64 {
        self.quota_rejections
    }

    fn count_rejection(&mut self, error: &WriteError) {
        let is_quota =
            matches!(error, WriteError::QuotaExceeded { .. } | WriteError::NamespaceQuotaExceeded { .. });
        self.quota_rejections += u64::from(is_quota);
    }

    /// The bytes of the objects, with all accepted writes.
    pub(crate) fn usage(&self) -> Usage {
        Usage { bytes: self.objects.bytes(), quota: self.quota }
    }

    fn check_accepts(&self) -> Result<(), WriteError> {
        self.writable()?;
        if self.bytes > self.limit { Err(WriteError::Busy) } else { Ok(()) }
    }

    fn push(&mut self, event: Arc<Event>) {
        self.revision = event.revision;
        self.bytes += WRITE_COST + event.current().map_or(0, |object| object.size());
        self.batch.events.push(event);
    }
}

/// Decides the event that a write results in.
fn decide(
    objects: &Objects,
    revision: Revision,
    quota: Quota,
    write: Write,
) -> Result<Arc<Event>, WriteError> {
    let Write { key, precondition, edit, limit } = write;
    let current = objects.get(&key).cloned();
    let change = match (precondition.holds(current.as_deref()), edit, current) {
        (true, Edit::Delete, Some(previous)) => Change::Deleted(previous),
        (true, Edit::Put { value, attributes }, None) => {
            Change::Created(version(key, value.encode(revision), attributes, revision, None)?)
        }
        (true, Edit::Put { value, attributes }, Some(previous)) => {
            let current = version(key, value.encode(revision), attributes, revision, Some(&previous))?;
            Change::Updated { current, previous }
        }
        // Deleting a missing object is a conflict with any precondition.
        (false, _, current) | (true, Edit::Delete, current @ None) => {
            return Err(Conflict { key, expected: precondition, current }.into());
        }
    };
    let event = Event { revision, change };
    match limit {
        Limit::None => {}
        Limit::Quota => objects.check(&event, quota)?,
        Limit::Margin => objects.check(&event, quota.with_margin())?,
    }
    Ok(Arc::new(event))
}

fn version(
    key: Key,
    value: Bytes,
    attributes: Attributes,
    revision: Revision,
    previous: Option<&Object>,
) -> Result<Arc<Object>, WriteError> {
    check_size(&key, &value, &attributes)?;
    Ok(Arc::new(Object {
        // All versions share the allocation of the key.
        key: previous.map_or(key, |object| object.key.clone()),
        value,
        attributes,
        create_revision: previous.map_or(revision, |object| object.create_revision),
        mod_revision: revision,
        version: previous.map_or(1, |object| object.version + 1),
    }))
}

/// Rejects a version that is too large.
pub(crate) fn check_size(key: &Key, value: &Bytes, attributes: &Attributes) -> Result<(), WriteError> {
    if value.len() > MAX_VALUE {
        return Err(WriteError::TooLarge { key: key.clone(), size: value.len() });
    }
    if !attributes.fit() {
        return Err(WriteError::Attributes(key.clone()));
    }
    Ok(())
}

pub(crate) fn apply(objects: &mut Objects, event: &Event) {
    match event.current() {
        Some(object) => objects.insert(object.clone()),
        None => objects.remove(event.key()),
    }
}
