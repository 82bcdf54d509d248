//! The usage of pods and containers.

use std::fs;

use jiff::Timestamp;

use super::state::{ContainerEntry, SandboxEntry, State};
use crate::error::Result;
use crate::types::{ContainerStats, InterfaceUsage, SandboxStats};

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
