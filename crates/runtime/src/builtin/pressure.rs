//! Memory pressure: notifications of containers that come near their limits.
//!
//! The kernel notifies of thresholds of usage, page cache included, and of containers that have reached their limit. The
//! [shim](crate::shim) holds the latter for a bounded time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::client;
use super::state::{ContainerEntry, State};
use crate::cgroup::{Group, Notification, Notifier, Version};
use crate::error::{Error, Result};
use crate::shim::{ShimCommand, ShimResponse, load, store};
use crate::types::{ContainerId, Event, MemoryPressure, MemoryWatch, SandboxId};

/// The file that says for how long the shim holds the container, in the directory of the container.
const RECORD: &str = "hold.json";
/// The shortest interval between two reads because of a threshold: usage may oscillate around it. A container that has
/// reached its limit is always read.
const PAUSE: Duration = Duration::from_millis(1);

/// For how long the shim holds a container. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::builtin) struct Hold {
    folder: PathBuf,
    held: Arc<Mutex<Option<Duration>>>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    milliseconds: u64,
}

impl Hold {
    /// The hold of the container of a folder, as the runtime before this one left it.
    pub(in crate::builtin) fn load(folder: &Path) -> Self {
        let record: Option<Record> = load(&folder.join(RECORD)).ok();
        let held = record.map(|record| Duration::from_millis(record.milliseconds));
        Self { folder: folder.to_owned(), held: Arc::new(Mutex::new(held)) }
    }

    /// Whether the shim holds the container: then the OOM killer is the shim's to enable.
    pub(in crate::builtin) fn is_on(&self) -> bool {
        self.held.lock().is_some()
    }

    /// Has the shim hold the container again, after the OOM killer was enabled for another reason.
    pub(in crate::builtin) fn renew(&self) {
        let Some(limit) = *self.held.lock() else { return };
        let hold = self.clone();
        tokio::spawn(async move {
            if let Err(error) = hold.send(limit).await {
                tracing::debug!(%error, "a container is not held at its memory limit");
            }
        });
    }

    /// Has the shim hold the container for this long at most, or no more.
    async fn set(&self, limit: Option<Duration>) -> Result<()> {
        let record = self.folder.join(RECORD);
        let doing = |error: io::Error| Error::io("recording the hold of a container", &error);
        if let Some(limit) = limit {
            // Recorded first: with the record, the OOM killer stays as the shim has it.
            let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            store(&record, &Record { milliseconds }, false).map_err(doing)?;
            *self.held.lock() = Some(limit);
            return self.send(limit).await;
        }
        if self.held.lock().take().is_none() {
            return Ok(());
        }
        self.send(Duration::ZERO).await?;
        match fs::remove_file(&record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(doing(error)),
            _ => Ok(()),
        }
    }

    async fn send(&self, limit: Duration) -> Result<()> {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match client::send(&self.folder, ShimCommand::Hold { milliseconds }).await {
            Ok(ShimResponse::Refused(why)) => Err(Error::Unsupported(format!("holding a container: {why}"))),
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Unavailable(format!("the shim of a container: {error}"))),
        }
    }
}

/// The containers whose memory is watched, by the numbers of their notifications.
#[derive(Debug, Default)]
pub(in crate::builtin) struct MemoryWatches(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    containers: HashMap<ContainerId, WatchedMemory>,
    numbers: HashMap<u64, ContainerId>,
}

#[derive(Debug)]
struct WatchedMemory {
    sandbox: SandboxId,
    group: Group,
    /// The numbers of the thresholds, and that of the limit.
    thresholds: [u64; 2],
    limit: u64,
    /// The lower threshold.
    least: u64,
    read_at: Option<Instant>,
}

impl MemoryWatches {
    /// Handles a notification of the kernel. False if it may be about something else as well.
    pub(in crate::builtin) fn notify(
        &self,
        notification: Notification,
        events: &broadcast::Sender<Event>,
    ) -> bool {
        let mut watched = self.0.lock();
        let watched = &mut *watched;
        let Some(id) = watched.numbers.get(&notification.0) else { return false };
        let Some(container) = watched.containers.get_mut(id) else { return false };
        let is_limit = notification.0 == container.limit;
        if !is_limit && container.read_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return true;
        }
        container.read_at = Some(Instant::now());
        // The kernel also notifies when the group is removed.
        let Ok(pressure) = container.group.memory_pressure() else { return !is_limit };
        if !pressure.held && pressure.usage < container.least {
            return !is_limit;
        }
        let _ = events.send(event(id, &container.sandbox, pressure));
        // Without a hold the kernel kills.
        pressure.held || !is_limit
    }

    fn add(&self, entry: &ContainerEntry, thresholds: [u64; 2], least: u64) {
        let id = entry.record.id.clone();
        let mut watched = self.0.lock();
        for number in thresholds.into_iter().chain([entry.notification]) {
            watched.numbers.insert(number, id.clone());
        }
        let container = WatchedMemory {
            sandbox: entry.record.sandbox.clone(),
            group: entry.group.clone(),
            thresholds,
            limit: entry.notification,
            least,
            read_at: None,
        };
        watched.containers.insert(id, container);
    }

    /// The numbers of the thresholds of a container that is watched.
    fn thresholds(&self, id: &ContainerId) -> Option<[u64; 2]> {
        self.0.lock().containers.get(id).map(|container| container.thresholds)
    }

    /// Removes a container with its notifications.
    pub(in crate::builtin) fn remove(&self, id: &ContainerId, notifier: &Notifier) {
        let mut watched = self.0.lock();
        let Some(container) = watched.containers.remove(id) else { return };
        watched.numbers.remove(&container.limit);
        for number in container.thresholds {
            watched.numbers.remove(&number);
            notifier.remove(Notification(number));
        }
    }
}

fn event(id: &ContainerId, sandbox: &SandboxId, pressure: MemoryPressure) -> Event {
    Event::MemoryPressure { sandbox: sandbox.clone(), container: id.clone(), pressure, at: Timestamp::now() }
}

impl State {
    /// Starts or stops watching the memory of a running container.
    pub(super) async fn watch_memory(
        &self,
        entry: &ContainerEntry,
        watch: Option<MemoryWatch>,
    ) -> Result<()> {
        let id = &entry.record.id;
        let Some(watch) = watch else {
            self.memory_watches.remove(id, &self.notifier);
            return entry.hold.set(None).await;
        };
        if entry.group.version() == Version::V2 {
            // Without thresholds and without a hold, notifications would come when the kernel kills already.
            return Err(Error::Unsupported(format!(
                "the memory of container {id} is not watched on cgroup v2"
            )));
        }
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {id} is not running")));
        }
        let numbers = self.memory_watches.thresholds(id).unwrap_or_else(|| {
            let (lower, upper) = self.two_notifications();
            [lower, upper]
        });
        let least = watch.thresholds.into_iter().min().unwrap_or_default();
        // Before the kernel notifies.
        self.memory_watches.add(entry, numbers, least);
        for (number, bytes) in numbers.into_iter().zip(watch.thresholds) {
            self.notifier.add_threshold(&entry.group, bytes, Notification(number))?;
        }
        let held = entry.hold.set(Some(watch.hold)).await;
        // It may be there already.
        let pressure = entry.group.memory_pressure()?;
        if pressure.held || pressure.usage >= least {
            let _ = self.events.send(event(id, &entry.record.sandbox, pressure));
        }
        match held {
            // A shim of an older version: the thresholds remain.
            Err(Error::Unsupported(why)) => {
                tracing::debug!(container = %id, why, "a container is not held at its memory limit");
                Ok(())
            }
            held => held,
        }
    }
}
