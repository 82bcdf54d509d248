//! What a container or pod may use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a container may use, on the system that it runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resources {
    /// Linux: cgroups.
    Linux(LinuxResources),
    /// Windows: job objects.
    Windows(WindowsResources),
}

impl Resources {
    /// The Linux ones, if they are that.
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

/// What a Linux container or pod may use, in the terms of cgroup v1, whichever version is in use. In a request
/// `None` means that it stays; in an answer, that the kernel offers no such thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LinuxResources {
    /// The period that the quota refers to, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_period: Option<u64>,
    /// The cpu time per period, in microseconds; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<i64>,
    /// The weight against its siblings; 1024 is one core's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
    /// The memory limit in bytes; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<i64>,
    /// Memory and swap together in bytes; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap_limit: Option<i64>,
    /// Above this many bytes memory is reclaimed and the group slowed down, but nothing is killed; -1 is never.
    /// Cgroup v2 alone has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<i64>,
    /// How readily the kernel kills it when the machine runs short, -1000 to 1000. Given when a container
    /// starts; an update does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// The cpus it may run on, such as `0-2,7`; empty is all of its parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset_cpus: Option<String>,
    /// The memory nodes it may use; empty is all of its parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset_mems: Option<String>,
    /// How many tasks it may have; -1 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// Limits for huge pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Cgroup v2 files and what to write into them, for what has no field here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
}

/// A limit for huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HugepageLimit {
    /// The size as the kernel spells it in file names, such as `2MB`.
    pub page_size: String,
    /// The limit in bytes.
    pub limit: u64,
}

/// What a Windows container may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowsResources {
    /// The weight against other containers.
    pub cpu_shares: Option<i64>,
    /// How many cpus it has.
    pub cpu_count: Option<i64>,
    /// The part of the cpus' cycles that it may use, in hundredths of a percent.
    pub cpu_maximum: Option<i64>,
    /// The memory limit in bytes.
    pub memory_limit: Option<i64>,
    /// The size of its root file system in bytes.
    pub rootfs_size: Option<i64>,
    /// The cpus it is bound to: a mask for each processor group.
    pub affinity_cpus: Vec<(u64, u32)>,
}
