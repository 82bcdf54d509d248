//! Resource usage of the node and its pods.

mod cadvisor;
mod resource;
mod types;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plumb_runtime::Error;
use plumb_runtime::types::{
    self as runtime, ContainerStats as RuntimeContainer, SandboxFilter, SandboxState, SandboxStats,
};

use super::ServerConfig;
use crate::cri_config::identity;
use crate::usage::{Rates, machine_usage};
use types::{
    ContainerStats, Cpu, Fs, Interface, Memory, Network, NodeStats, PodReference, PodStats, Processes,
    RuntimeStats, Swap,
};

pub(super) use cadvisor::cadvisor_metrics;
pub(super) use resource::resource_metrics;
pub(super) use types::Summary;

/// The measurements, and when they started.
#[derive(Debug)]
pub(super) struct Stats {
    since: Timestamp,
    rates: Mutex<Rates>,
}

impl Stats {
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, rates: Mutex::default() }
    }

    /// The current usage. Rates are those since the last call.
    pub(super) async fn summary(&self, config: &ServerConfig) -> Result<Summary, Error> {
        let ready = SandboxFilter { state: Some(SandboxState::Ready), ..SandboxFilter::default() };
        let measured = config.runtime.list_sandbox_stats(&ready).await?;
        let images = config.runtime.image_fs_info().await?;
        let pods = config.pods.pods();
        let known: HashMap<&str, &Arc<Pod>> = pods.iter().map(|pod| (identity(pod).2, pod)).collect();
        let mut rates = self.rates.lock();
        rates.begin();
        let mut all = Vec::new();
        let mut total = runtime::CpuUsage { at: (config.clock)(), ..runtime::CpuUsage::default() };
        let mut memory = runtime::MemoryUsage { at: total.at, ..runtime::MemoryUsage::default() };
        for sandbox in &measured {
            // Drop what does not belong to the node any more.
            let Some(pod) = known.get(sandbox.meta.uid.as_str()) else { continue };
            total.usage_nanos = total.usage_nanos.saturating_add(sandbox.cpu.usage_nanos);
            memory.usage = memory.usage.saturating_add(sandbox.memory.usage);
            memory.working_set = memory.working_set.saturating_add(sandbox.memory.working_set);
            memory.rss = memory.rss.saturating_add(sandbox.memory.rss);
            all.push(pod_stats(pod, sandbox, &mut rates));
        }
        let root = config.machine.as_deref();
        let fs = root.and_then(|root| Fs::of(root, total.at).ok());
        let of_machine = root.and_then(|root| machine_usage(root, total.at).ok());
        let (cpu, memory) = of_machine.unwrap_or((total, memory));
        let node = NodeStats {
            node_name: config.node.clone(),
            start_time: self.since,
            cpu: Some(cpu_stats("", None, &cpu, &mut rates)),
            swap: swap(&memory),
            memory: Some(memory_stats(memory)),
            runtime: images.first().map(|image| RuntimeStats { image_fs: Fs::used(image) }),
            fs,
        };
        rates.end();
        Ok(Summary { node, pods: all })
    }
}

fn pod_stats(pod: &Pod, sandbox: &SandboxStats, rates: &mut Rates) -> PodStats {
    let (namespace, name, uid) = identity(pod);
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let interfaces: Vec<Interface> = sandbox.network.iter().map(Interface::of).collect();
    PodStats {
        pod_ref: PodReference { name: name.to_owned(), namespace: namespace.to_owned(), uid: uid.to_owned() },
        start_time: started.map_or(sandbox.cpu.at, |time| time.0),
        containers: sandbox.containers.iter().map(|one| container_stats(pod, one, rates)).collect(),
        cpu: Some(cpu_stats(sandbox.id.as_str(), None, &sandbox.cpu, rates)),
        swap: swap(&sandbox.memory),
        memory: Some(memory_stats(sandbox.memory.clone())),
        network: (!interfaces.is_empty()).then(|| Network {
            time: sandbox.cpu.at,
            default: interfaces.iter().find(|one| one.name == "eth0").cloned().unwrap_or_default(),
            interfaces,
        }),
        process_stats: sandbox.tasks.map(|process_count| Processes { process_count }),
    }
}

fn container_stats(pod: &Pod, measured: &RuntimeContainer, rates: &mut Rates) -> ContainerStats {
    let status = pod.status.as_ref();
    let all = status.map(|status| [&status.container_statuses, &status.init_container_statuses]);
    let mut all = all.into_iter().flatten().flatten().flatten();
    let own = all.find(|status| status.name == measured.meta.name);
    let running = own.and_then(|status| status.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    ContainerStats {
        name: measured.meta.name.clone(),
        start_time: running.map_or(measured.cpu.at, |time| time.0),
        cpu: Some(cpu_stats(measured.id.as_str(), Some(measured.created_at), &measured.cpu, rates)),
        swap: swap(&measured.memory),
        memory: Some(memory_stats(measured.memory.clone())),
        rootfs: measured.writable_layer.as_ref().map(Fs::used),
    }
}

fn cpu_stats(of: &str, created: Option<Timestamp>, cpu: &runtime::CpuUsage, rates: &mut Rates) -> Cpu {
    Cpu {
        time: cpu.at,
        usage_nano_cores: rates.rate(of, created, cpu.at, cpu.usage_nanos).map(|rate| rate.nano_cores),
        usage_core_nano_seconds: cpu.usage_nanos,
        psi: cpu.pressure.map(types::Psi::of),
    }
}

fn memory_stats(memory: runtime::MemoryUsage) -> Memory {
    Memory {
        time: memory.at,
        available_bytes: memory.available,
        usage_bytes: memory.usage,
        working_set_bytes: memory.working_set,
        rss_bytes: memory.rss,
        page_faults: memory.page_faults,
        major_page_faults: memory.major_page_faults,
        psi: memory.pressure.map(types::Psi::of),
    }
}

fn swap(memory: &runtime::MemoryUsage) -> Option<Swap> {
    memory.swap.map(|bytes| Swap { time: memory.at, swap_usage_bytes: bytes })
}
