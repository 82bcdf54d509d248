//! Resources of containers and sandboxes.

use super::Map;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainerResources {
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
    #[prost(int64, tag = "5")]
    pub oom_score_adj: i64,
    #[prost(string, tag = "6")]
    pub cpuset_cpus: String,
    #[prost(string, tag = "7")]
    pub cpuset_mems: String,
    #[prost(message, repeated, tag = "8")]
    pub hugepage_limits: Vec<HugepageLimit>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub unified: Map,
    #[prost(int64, tag = "10")]
    pub memory_swap_limit_in_bytes: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HugepageLimit {
    #[prost(string, tag = "1")]
    pub page_size: String,
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WindowsContainerResources {
    #[prost(int64, tag = "1")]
    pub cpu_shares: i64,
    #[prost(int64, tag = "2")]
    pub cpu_count: i64,
    #[prost(int64, tag = "3")]
    pub cpu_maximum: i64,
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
    #[prost(int64, tag = "5")]
    pub rootfs_size_in_bytes: i64,
    #[prost(message, repeated, tag = "6")]
    pub affinity_cpus: Vec<WindowsCpuGroupAffinity>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WindowsCpuGroupAffinity {
    #[prost(uint64, tag = "1")]
    pub cpu_mask: u64,
    #[prost(uint32, tag = "2")]
    pub cpu_group: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerResources {
    #[prost(message, optional, tag = "1")]
    pub linux: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "2")]
    pub windows: Option<WindowsContainerResources>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateContainerResourcesRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "3")]
    pub windows: Option<WindowsContainerResources>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdatePodSandboxResourcesRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub overhead: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxContainerResources>,
}
