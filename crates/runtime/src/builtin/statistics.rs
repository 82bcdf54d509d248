//! The usage of pods and containers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use jiff::Timestamp;

use super::state::{ContainerEntry, SandboxEntry, State};
use crate::error::Result;
use crate::types::{ContainerStats, FilesystemUsage, InterfaceUsage, SandboxStats};

impl ContainerEntry {
    pub(super) fn stats(&self) -> Result<ContainerStats> {
        let (usage, at) = (self.group.usage()?, Timestamp::now());
        Ok(ContainerStats {
            id: self.record.id.clone(),
            sandbox: self.record.sandbox.clone(),
            meta: self.record.config.meta.clone(),
            labels: self.record.config.labels.clone(),
            created_at: self.record.created_at,
            cpu: usage.of_cpu(at),
            memory: usage.of_memory(at),
            tasks: usage.tasks,
            writable_layer: None,
        })
    }
}

impl State {
    pub(super) fn sandbox_stats_of(&self, entry: &SandboxEntry) -> Result<SandboxStats> {
        let (usage, at) = (entry.group.usage()?, Timestamp::now());
        let sandbox = entry.sandbox();
        let containers = self.containers_of(&sandbox.id);
        let running = containers.iter().filter(|container| container.life.borrow().is_running());
        let network = entry.record.lock().address.map(|_| self.naming.veth(sandbox.id.as_str()));
        Ok(SandboxStats {
            // A container that exits meanwhile has no stats.
            containers: running.filter_map(|container| container.stats().ok()).collect(),
            id: sandbox.id,
            meta: sandbox.meta,
            labels: sandbox.labels,
            cpu: usage.of_cpu(at),
            memory: usage.of_memory(at),
            tasks: usage.tasks,
            network: network.and_then(|veth| interface(&veth)).into_iter().collect(),
        })
    }
}

/// The traffic of the host's end of a veth pair: bytes that it received were sent by the pod.
fn interface(veth: &str) -> Option<InterfaceUsage> {
    let counter = |name: &str| -> Option<u64> {
        let path = format!("/sys/class/net/{veth}/statistics/{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some(InterfaceUsage {
        name: "eth0".to_owned(),
        rx_bytes: counter("tx_bytes")?,
        rx_errors: counter("tx_errors")?,
        tx_bytes: counter("rx_bytes")?,
        tx_errors: counter("rx_errors")?,
    })
}

/// How many files of a folder are counted at most, and how many bytes the paths of folders may take that are yet to be
/// looked into: containers make as many of them as they like.
const MOST_INODES: u64 = 1 << 22;
const MOST_PENDING: usize = 16 << 20;

/// The disk usage of a directory.
pub(super) fn folder_usage(folder: &Path) -> FilesystemUsage {
    let (mut bytes, mut inodes) = (0, 0);
    let mut left = vec![folder.to_owned()];
    let mut pending = folder.as_os_str().len();
    while let Some(path) = left.pop() {
        pending = pending.saturating_sub(path.as_os_str().len());
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            if inodes == MOST_INODES {
                left.clear();
                break;
            }
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.blocks() * 512;
            inodes += 1;
            if found.is_dir() {
                let path = entry.path();
                if pending + path.as_os_str().len() <= MOST_PENDING {
                    pending += path.as_os_str().len();
                    left.push(path);
                }
            }
        }
    }
    FilesystemUsage {
        at: Timestamp::now(),
        mountpoint: folder.to_owned(),
        used_bytes: bytes,
        inodes_used: inodes,
    }
}
