//! The state of the runtime.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};

use super::gate::PodGate;
use super::guard::{GroupGuard, GuardContext, Wakers};
use super::life::Life;
use super::naming::Naming;
use super::nat::Nat;
use super::network::Addresses;
use super::pressure::{Hold, MemoryWatches};
use super::program::ShimProgram;
use super::pulls::Pulls;
use super::source_guard::{HardwareAddress, SourceGuard};
use crate::cgroup::{Group, Notifier, Tree};
use crate::image::Images;
use crate::shim::is_running;
use crate::types::{
    Container, ContainerChange, ContainerConfig, ContainerId, Event, Sandbox, SandboxConfig, SandboxId,
    SandboxState,
};

/// How many events a slow reader may be behind.
pub(super) const EVENTS: usize = 4096;

#[derive(Debug)]
pub(super) struct State {
    pub(super) folder: PathBuf,
    pub(super) naming: Naming,
    pub(super) tree: Tree,
    pub(super) images: Arc<Images>,
    pub(super) pulls: Pulls,
    pub(super) shim: ShimProgram,
    pub(super) pods: Mutex<Pods>,
    pub(super) addresses: Mutex<Addresses>,
    /// The bridge's number, once it is known to be there.
    pub(super) bridge: Mutex<Option<u32>>,
    /// The MTU of the interfaces of pods.
    pub(super) mtu: Option<u32>,
    /// The address translation of pods.
    pub(super) nat: Nat,
    /// Keeps pods from sending with the addresses of others.
    pub(super) source_guard: Arc<SourceGuard>,
    /// Makes the rules that pods wait for.
    pub(super) gate: OnceLock<Arc<dyn PodGate>>,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) notifier: Arc<Notifier>,
    /// Containers by the number under which the kernel speaks of them.
    pub(super) watched: Arc<Mutex<HashMap<u64, WatchedContainer>>>,
    /// The wakers of cgroups whose memory limits were lowered a moment ago.
    pub(super) wakers: Arc<Wakers>,
    /// The containers whose memory is watched.
    pub(super) memory_watches: Arc<MemoryWatches>,
    /// How long after that they are guarded.
    pub(super) guard_window: Duration,
    pub(super) next: AtomicU64,
    pub(super) warned_about_oom_score: std::sync::Once,
}

/// Sandboxes and containers.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pub(super) sandboxes: BTreeMap<SandboxId, Arc<SandboxEntry>>,
    pub(super) containers: BTreeMap<ContainerId, Arc<ContainerEntry>>,
}

#[derive(Debug)]
pub(super) struct WatchedContainer {
    pub(super) id: ContainerId,
    pub(super) sandbox: SandboxId,
    pub(super) group: Group,
    pub(super) kills: u64,
}

/// A sandbox, as it is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxRecord {
    pub(super) id: SandboxId,
    pub(super) config: SandboxConfig,
    pub(super) created_at: Timestamp,
    pub(super) address: Option<Ipv4Addr>,
    /// The hardware address of its interface. A record of an older version has none.
    #[serde(default)]
    pub(super) hardware: Option<HardwareAddress>,
    /// Whether it sends what is for other pods of the node to the machine. Those of an older version sent it to the pod.
    #[serde(default)]
    pub(super) routed: bool,
    pub(super) state: SandboxState,
    /// Everything of the sandbox was created.
    pub(super) complete: bool,
    /// The process that holds a process namespace for all of its containers.
    #[serde(default)]
    pub(super) pause: Option<(i32, u64)>,
}

impl SandboxRecord {
    /// Whether the process that held the process namespace of the pod is gone. The kernel has killed all processes of the
    /// namespace with it, and no container can join it any more.
    pub(super) fn has_lost_processes(&self) -> bool {
        self.pause.is_some_and(|pause| !is_running(pause))
    }
}

#[derive(Debug)]
pub(super) struct SandboxEntry {
    pub(super) folder: PathBuf,
    pub(super) group: Group,
    pub(super) record: Mutex<SandboxRecord>,
    pub(super) guard: Arc<GroupGuard>,
    /// One thing at a time is done to a sandbox as a whole.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl SandboxEntry {
    pub(super) fn sandbox(&self) -> Sandbox {
        let record = self.record.lock();
        Sandbox {
            id: record.id.clone(),
            meta: record.config.meta.clone(),
            state: if record.has_lost_processes() { SandboxState::NotReady } else { record.state },
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        }
    }

    pub(super) fn ips(&self) -> Vec<IpAddr> {
        self.record.lock().address.map(IpAddr::V4).into_iter().collect()
    }
}

/// A container, as it is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerRecord {
    pub(super) id: ContainerId,
    pub(super) sandbox: SandboxId,
    pub(super) config: ContainerConfig,
    pub(super) image_id: String,
    /// The images that are mounted into it.
    #[serde(default)]
    pub(super) image_volumes: Vec<String>,
    pub(super) created_at: Timestamp,
    pub(super) log_path: Option<PathBuf>,
    pub(super) stop_signal: String,
}

impl ContainerRecord {
    /// Whether it needs the image of this id.
    pub(super) fn uses(&self, id: &str) -> bool {
        self.image_id == id || self.image_volumes.iter().any(|volume| volume == id)
    }
}

#[derive(Debug)]
pub(super) struct ContainerEntry {
    pub(super) folder: PathBuf,
    pub(super) group: Group,
    pub(super) record: ContainerRecord,
    pub(super) life: watch::Sender<Life>,
    pub(super) notification: u64,
    pub(super) guard: Arc<GroupGuard>,
    /// For how long the shim holds it at its memory limit.
    pub(super) hold: Hold,
    /// One thing at a time is done to it.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl ContainerEntry {
    pub(super) fn container(&self) -> Container {
        let record = &self.record;
        Container {
            id: record.id.clone(),
            sandbox: record.sandbox.clone(),
            meta: record.config.meta.clone(),
            image: record.config.image.clone(),
            image_id: record.image_id.clone(),
            state: self.life.borrow().state(),
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        }
    }
}

impl State {
    pub(super) fn sandbox(&self, id: &SandboxId) -> Option<Arc<SandboxEntry>> {
        self.pods.lock().sandboxes.get(id).cloned()
    }

    pub(super) fn container(&self, id: &ContainerId) -> Option<Arc<ContainerEntry>> {
        self.pods.lock().containers.get(id).cloned()
    }

    pub(super) fn containers_of(&self, sandbox: &SandboxId) -> Vec<Arc<ContainerEntry>> {
        let pods = self.pods.lock();
        pods.containers.values().filter(|entry| entry.record.sandbox == *sandbox).cloned().collect()
    }

    /// Numbers for the kernel to speak of a group by.
    pub(super) fn two_notifications(&self) -> (u64, u64) {
        let first = self.next.fetch_add(2, Ordering::Relaxed);
        (first, first + 1)
    }

    /// The context that the guards of this runtime share.
    pub(super) fn context(&self) -> GuardContext {
        GuardContext {
            notifier: Arc::downgrade(&self.notifier),
            wakers: self.wakers.clone(),
            events: self.events.downgrade(),
            guard_window: self.guard_window,
        }
    }

    pub(super) fn emit(&self, entry: &ContainerEntry, change: ContainerChange) {
        // It is fine if there is no receiver.
        let _ = self.events.send(Event::Container {
            id: entry.record.id.clone(),
            sandbox: entry.record.sandbox.clone(),
            change,
            at: Timestamp::now(),
        });
    }
}
