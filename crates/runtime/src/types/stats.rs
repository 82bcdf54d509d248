//! Resource usage of containers and pods.

use jiff::Timestamp;

use super::{ContainerId, ContainerMeta, FilesystemUsage, Pairs, PodMeta, SandboxId};

/// The resource usage of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStats {
    /// Its id.
    pub id: ContainerId,
    /// The sandbox it is in.
    pub sandbox: SandboxId,
    /// Which container of the pod it is.
    pub meta: ContainerMeta,
    /// Its labels.
    pub labels: Pairs,
    /// When it was created.
    pub created_at: Timestamp,
    /// Cpu.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
    /// How many tasks it has.
    pub tasks: Option<u64>,
    /// The usage of its writable layer.
    pub writable_layer: Option<FilesystemUsage>,
}

/// The resource usage of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStats {
    /// Its sandbox.
    pub id: SandboxId,
    /// The pod.
    pub meta: PodMeta,
    /// Its labels.
    pub labels: Pairs,
    /// Cpu, of the pod as a whole.
    pub cpu: CpuUsage,
    /// Memory, of the pod as a whole.
    pub memory: MemoryUsage,
    /// How many tasks it has.
    pub tasks: Option<u64>,
    /// The traffic of its network interfaces, unless it uses the host network.
    pub network: Vec<InterfaceUsage>,
    /// Its running containers.
    pub containers: Vec<ContainerStats>,
}

/// CPU usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time since the start, in nanoseconds.
    pub usage_nanos: u64,
    /// Throttling by its quota.
    pub throttling: Option<Throttling>,
    /// CPU pressure.
    pub pressure: Option<Pressure>,
}

/// Throttling by a CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Enforcement periods with runnable tasks.
    pub periods: u64,
    /// Those of them that were throttled.
    pub throttled_periods: u64,
    /// The total throttled time in nanoseconds.
    pub throttled_nanos: u64,
}

/// Memory in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// When it was measured.
    pub at: Timestamp,
    /// All memory in use, page cache included, in bytes.
    pub usage: u64,
    /// Usage without inactive file pages: evictions are based on it.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// The limit less the working set; `None` without a limit.
    pub available: Option<u64>,
    /// Swap in use.
    pub swap: Option<u64>,
    /// Page faults since the start.
    pub page_faults: u64,
    /// Major page faults since the start.
    pub major_page_faults: u64,
    /// OOM kills since the start.
    pub oom_kills: u64,
    /// Memory pressure.
    pub pressure: Option<Pressure>,
}

/// Pressure stall information (PSI): the share of time in which tasks waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: PressureFigures,
    /// All tasks waited.
    pub full: PressureFigures,
}

/// Averages in hundredths of a percent, and the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureFigures {
    /// Over 10 seconds.
    pub avg10: u32,
    /// Over 60 seconds.
    pub avg60: u32,
    /// Over 300 seconds.
    pub avg300: u32,
    /// Since the start, in microseconds.
    pub total: u64,
}

/// The traffic of one network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceUsage {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Errors in receiving.
    pub rx_errors: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Errors in sending.
    pub tx_errors: u64,
}

/// Selects containers. All fields that are set must match; an empty filter matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsFilter {
    /// The container with this id.
    pub id: Option<ContainerId>,
    /// In this sandbox.
    pub sandbox: Option<SandboxId>,
    /// With these labels.
    pub labels: Pairs,
}
