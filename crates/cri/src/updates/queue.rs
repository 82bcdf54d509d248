//! The records of all containers, and the queue of containers with unconfirmed updates.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_runtime::Confirmation;
use plumb_runtime::types::{ContainerId, SandboxId};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::journal::Journal;
use super::record::Record;

/// The maximum number of concurrent updates in the runtime. Each executes a program, and none is urgent.
const AT_ONCE: usize = 2;

/// The updates of all containers.
#[derive(Debug)]
pub(crate) struct Updates {
    records: Mutex<HashMap<ContainerId, Arc<Record>>>,
    queue: Mutex<VecDeque<ContainerId>>,
    queued: Notify,
    permits: Semaphore,
    journal: Journal,
}

impl Updates {
    /// Creates the updates of a cluster whose journal is in this directory, with the unconfirmed ones in the journal.
    pub(crate) fn new(folder: &Path) -> Self {
        let journal = Journal::new(folder);
        let mut records: HashMap<ContainerId, Arc<Record>> = HashMap::new();
        for (id, entry) in journal.read() {
            records.entry(id).or_default().resume(entry);
        }
        Self {
            records: Mutex::new(records),
            queue: Mutex::default(),
            queued: Notify::new(),
            permits: Semaphore::new(AT_ONCE),
            journal,
        }
    }

    /// The journal of unconfirmed updates.
    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Marks the updates of a container as confirmed.
    pub(super) fn confirm(&self, id: &ContainerId, record: &Record) {
        record.confirm();
        self.journal.remove(id);
    }

    /// The record of a container, which is created if there is none.
    pub(super) fn record(&self, id: &ContainerId) -> Arc<Record> {
        self.records.lock().entry(id.clone()).or_default().clone()
    }

    /// The record of a container.
    pub(super) fn get(&self, id: &ContainerId) -> Option<Arc<Record>> {
        self.records.lock().get(id).cloned()
    }

    /// Whether the runtime has confirmed the last update of a container.
    pub(crate) fn confirmation(&self, id: &ContainerId) -> Confirmation {
        self.get(id).map(|record| record.confirmation()).unwrap_or_default()
    }

    /// Forgets a container that was removed.
    pub(crate) fn remove(&self, id: &ContainerId) {
        self.records.lock().remove(id);
        self.journal.remove(id);
    }

    /// Forgets the containers of a sandbox that was removed.
    pub(crate) fn remove_sandbox(&self, id: &SandboxId) {
        self.records.lock().retain(|container, record| {
            let stays = record.sandbox() != *id;
            if !stays {
                self.journal.remove(container);
            }
            stays
        });
    }

    /// Queues a container with an update to confirm.
    pub(super) fn queue(&self, id: ContainerId) {
        self.queue.lock().push_back(id);
        self.queued.notify_one();
    }

    /// Queues all containers with updates to confirm.
    pub(super) fn queue_unconfirmed(&self) {
        let records = self.records.lock();
        let unconfirmed = records.iter().filter(|(_, record)| record.unconfirmed().is_some());
        *self.queue.lock() = unconfirmed.map(|(id, _)| id.clone()).collect();
    }

    /// The next container of the queue. Cancel safe.
    pub(super) async fn next(&self) -> ContainerId {
        loop {
            if let Some(id) = self.queue.lock().pop_front() {
                return id;
            }
            self.queued.notified().await;
        }
    }

    /// Waits until the runtime may be sent another update.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.permits.acquire().await.ok()
    }
}
