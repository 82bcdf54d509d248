//! Memory pressure of a container.

use std::time::Duration;

/// When a runtime notifies that a container comes near its memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryWatch {
    /// The usages at which it notifies, in bytes.
    pub thresholds: [u64; 2],
    /// For how long at most a container that reaches its limit is held, so that the limit can be raised, before it is OOM
    /// killed. The kernel or the shim keeps this deadline, also while no runtime runs.
    pub hold: Duration,
}

/// How near a container is to its memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPressure {
    /// Usage that the kernel cannot reclaim, in bytes.
    pub usage: u64,
    /// The limit that is applied; none is unlimited.
    pub limit: Option<u64>,
    /// A process has reached the limit, and is held.
    pub held: bool,
}
