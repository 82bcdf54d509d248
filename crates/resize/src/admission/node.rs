//! The facts of a node that decide about resizes.

use crate::qos::QosClass;
use crate::resource::Requirements;

/// The facts of a node that decide about resizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeFacts {
    /// Its operating system.
    pub os: Os,
    /// The policy of its cpu manager.
    pub cpu_manager: CpuManager,
    /// The policy of its memory manager.
    pub memory_manager: MemoryManager,
    /// Whether its containers may swap.
    pub swap: Swap,
}

/// An operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Os {
    /// Linux.
    #[default]
    Linux,
    /// Windows.
    Windows {
        /// Whether the container runtime can change the resources of a running container.
        runtime_resizes: bool,
    },
    /// Anything else.
    Other,
}

/// The CPU manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CpuManager {
    /// `none`.
    #[default]
    None,
    /// `static`: exclusive CPUs for Guaranteed pods with integer requests.
    Static,
}

/// The memory manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryManager {
    /// `None`.
    #[default]
    None,
    /// `Static`: NUMA nodes for Guaranteed pods.
    Static,
}

/// Whether containers may swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swap {
    /// None may.
    #[default]
    None,
    /// Burstable ones may, in proportion to the memory they request.
    Limited,
}

impl Swap {
    /// Whether a container with these resources, in a pod of this class, may swap.
    pub fn used_by(self, qos: QosClass, resources: &Requirements) -> bool {
        let (request, limit) = (resources.requests.memory, resources.limits.memory);
        self == Self::Limited
            && qos == QosClass::Burstable
            && request.is_some_and(|request| request > 0)
            && request != limit
    }
}
