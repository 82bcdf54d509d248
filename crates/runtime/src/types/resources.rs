//! Resources of containers and pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The resources of a container, by operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resources {
    /// Linux: cgroups.
    Linux(LinuxResources),
    /// Windows: job objects.
    Windows(WindowsResources),
}

impl Resources {
    /// The Linux resources; `None` if these are for Windows.
    pub fn linux(&self) -> Option<&LinuxResources> {
        match self {
            Self::Linux(resources) => Some(resources),
            Self::Windows(_) => None,
        }
    }
}

impl Default for Resources {
    fn default() -> Self {
        Self::Linux(LinuxResources::default())
    }
}

impl From<LinuxResources> for Resources {
    fn from(resources: LinuxResources) -> Self {
        Self::Linux(resources)
    }
}

/// The resources of a Linux container or pod, in the units of cgroup v1, whichever version is in use. In a request
/// `None` means unchanged; in a response, that the kernel does not have the setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LinuxResources {
    /// The period that the quota refers to, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_period: Option<u64>,
    /// The CPU time per period, in microseconds; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<i64>,
    /// The weight relative to sibling cgroups; 1024 is one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
    /// The memory limit in bytes; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<i64>,
    /// Memory and swap together in bytes; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap_limit: Option<i64>,
    /// `memory.high`: above this many bytes the kernel reclaims memory and throttles the cgroup, but kills nothing; -1
    /// is unlimited. Cgroup v2 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<i64>,
    /// The OOM score adjustment, -1000 to 1000. Applied when a container starts; an update does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// The CPUs it may run on, such as `0-2,7`; empty is all of its parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset_cpus: Option<String>,
    /// The memory nodes it may use; empty is all of its parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset_mems: Option<String>,
    /// The maximum number of tasks; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// Limits for huge pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Cgroup v2 files and their contents, for settings without a field here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
}

/// A limit for huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HugepageLimit {
    /// The page size as in the kernel's file names, such as `2MB`.
    pub page_size: String,
    /// The limit in bytes.
    pub limit: u64,
}

/// The resources of a Windows container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowsResources {
    /// The weight relative to other containers.
    pub cpu_shares: Option<i64>,
    /// The number of CPUs.
    pub cpu_count: Option<i64>,
    /// The share of CPU cycles, in hundredths of a percent.
    pub cpu_maximum: Option<i64>,
    /// The memory limit in bytes.
    pub memory_limit: Option<i64>,
    /// The size of its root file system in bytes.
    pub rootfs_size: Option<i64>,
    /// CPU affinity: a mask for each processor group.
    pub affinity_cpus: Vec<(u64, u32)>,
}
