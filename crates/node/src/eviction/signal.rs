//! The eviction signals, with the names of the kubelet.

use std::fmt;

/// What an eviction threshold is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory that the machine can give to processes without swapping.
    MemoryAvailable,
    /// Memory that pods may still use: the limit of their common cgroup less what they use.
    AllocatableMemoryAvailable,
    /// Free bytes of the file system of volumes and logs.
    NodeFsAvailable,
    /// Its free inodes.
    NodeFsInodesFree,
    /// Free bytes of the file system of images and writable layers.
    ImageFsAvailable,
    /// Its free inodes.
    ImageFsInodesFree,
    /// Process ids that the kernel can still give.
    PidAvailable,
}

impl Signal {
    /// All of them, in the order in which thresholds are acted upon: memory first, as in the kubelet.
    pub const ALL: [Self; 7] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::PidAvailable,
    ];

    /// Its name in flags and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// The condition of the node while a threshold of the signal is met.
    pub const fn condition(self) -> PressureCondition {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => PressureCondition::Memory,
            Self::NodeFsAvailable
            | Self::NodeFsInodesFree
            | Self::ImageFsAvailable
            | Self::ImageFsInodesFree => PressureCondition::Disk,
            Self::PidAvailable => PressureCondition::Pid,
        }
    }

    /// What evictions reclaim.
    pub const fn resource(self) -> StarvedResource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => StarvedResource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable => StarvedResource::EphemeralStorage,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => StarvedResource::Inodes,
            Self::PidAvailable => StarvedResource::Pids,
        }
    }

    /// Whether it is about the file system of images.
    pub(super) const fn is_of_images(self) -> bool {
        matches!(self, Self::ImageFsAvailable | Self::ImageFsInodesFree)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A pressure condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureCondition {
    /// `DiskPressure`.
    Disk,
    /// `MemoryPressure`.
    Memory,
    /// `PIDPressure`.
    Pid,
}

impl PressureCondition {
    /// Its type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "DiskPressure",
            Self::Memory => "MemoryPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

/// A resource that a node is low on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StarvedResource {
    /// Memory.
    Memory,
    /// Bytes of local storage.
    EphemeralStorage,
    /// Inodes of local storage.
    Inodes,
    /// Process ids.
    Pids,
}

impl StarvedResource {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }

    /// Whether it is on a disk, where images and containers that have ended can be removed before pods are evicted.
    pub const fn is_disk(self) -> bool {
        matches!(self, Self::EphemeralStorage | Self::Inodes)
    }
}
