//! What containers and pods use.

use jiff::Timestamp;

use super::{ContainerId, ContainerMeta, FilesystemUsage, Pairs, PodMeta, SandboxId};

/// What a container uses.
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
    /// Cpu.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
    /// How many tasks it has.
    pub tasks: Option<u64>,
    /// What it wrote to its root file system.
    pub writable_layer: Option<FilesystemUsage>,
}

/// What a pod uses.
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
    /// What went over its network, unless that is the machine's.
    pub network: Vec<InterfaceUsage>,
    /// Its running containers.
    pub containers: Vec<ContainerStats>,
}

/// Cpu that was used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// When this was so.
    pub at: Timestamp,
    /// Cpu time since the start, in nanoseconds.
    pub usage_nanos: u64,
    /// How it was held back by its quota.
    pub throttling: Option<Throttling>,
    /// How long it waited for cpu.
    pub pressure: Option<Pressure>,
}

/// How a quota held something back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which it wanted to run.
    pub periods: u64,
    /// Those of them in which it was held back.
    pub throttled_periods: u64,
    /// For how long altogether, in nanoseconds.
    pub throttled_nanos: u64,
}

/// Memory in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// When this was so.
    pub at: Timestamp,
    /// All of it, page cache included, in bytes.
    pub usage: u64,
    /// Usage without file pages that have not been used for a while: what an eviction decides by.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// The limit less the working set; `None` without a limit.
    pub available: Option<u64>,
    /// Swap in use.
    pub swap: Option<u64>,
    /// Page faults since the start.
    pub page_faults: u64,
    /// Those of them that went to a disk.
    pub major_page_faults: u64,
    /// How often something of it was killed for want of memory.
    pub oom_kills: u64,
    /// How long it waited for memory.
    pub pressure: Option<Pressure>,
}

/// Pressure stall information: the time in which work waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: PressureFigures,
    /// All tasks waited.
    pub full: PressureFigures,
}

/// Waiting, in hundredths of a percent of the time, and altogether.
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

/// What went over one interface.
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

/// Whose usage. All that is given must hold; an empty filter lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsFilter {
    /// This container's.
    pub id: Option<ContainerId>,
    /// Those of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Those with these labels.
    pub labels: Pairs,
}
