//! What happens in a runtime.

use jiff::Timestamp;

use super::{ContainerId, SandboxId};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A container entered another part of its life.
    Container {
        /// The container.
        id: ContainerId,
        /// Its sandbox.
        sandbox: SandboxId,
        /// What happened to it.
        change: ContainerChange,
        /// When.
        at: Timestamp,
    },
    /// A memory limit that was lowered a moment ago is what it was before: what it holds was about to outgrow it.
    LimitTakenBack {
        /// The pod.
        sandbox: SandboxId,
        /// The container; none if the limit is the pod's as a whole.
        container: Option<ContainerId>,
        /// When.
        at: Timestamp,
    },
    /// The reader was too slow, and this many events are lost: list again.
    Missed(u64),
}

/// What happened to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerChange {
    /// It was made.
    Created,
    /// It was started.
    Started,
    /// It has ended.
    Stopped,
    /// It was removed.
    Deleted,
    /// Something in it was killed for want of memory. The container may run on.
    OutOfMemory,
}
