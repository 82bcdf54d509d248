//! Events of a runtime.

use jiff::Timestamp;

use super::{ContainerId, MemoryPressure, SandboxId};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A container changed its state.
    Container {
        /// The container.
        id: ContainerId,
        /// Its sandbox.
        sandbox: SandboxId,
        /// Its change.
        change: ContainerChange,
        /// When.
        at: Timestamp,
    },
    /// The runtime restored a memory limit that was lowered a moment ago, because usage was about to exceed it.
    LimitRestored {
        /// The pod.
        sandbox: SandboxId,
        /// The container; none if the limit is the pod's as a whole.
        container: Option<ContainerId>,
        /// When.
        at: Timestamp,
    },
    /// A container whose memory is watched has come near its limit, or has reached it.
    MemoryPressure {
        /// The pod.
        sandbox: SandboxId,
        /// The container.
        container: ContainerId,
        /// How near.
        pressure: MemoryPressure,
        /// When.
        at: Timestamp,
    },
    /// The update of a container's resources, which were applied already, is final, was refused and rolled back, or is
    /// retried: see [`Runtime::confirmation`](crate::Runtime::confirmation).
    UpdateFinished {
        /// The pod.
        sandbox: SandboxId,
        /// The container.
        container: ContainerId,
    },
    /// The reader was too slow and lost this many events: it must list again.
    Missed(u64),
}

/// The change of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerChange {
    /// It was created.
    Created,
    /// It was started.
    Started,
    /// It has exited.
    Stopped,
    /// It was removed.
    Deleted,
    /// A process in it was OOM killed. The container may still run.
    OutOfMemory,
}
