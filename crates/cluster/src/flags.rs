//! The arguments of the commands that run, join, copy and remove clusters.

mod audit;
mod autoscaler;
mod data;
mod eviction;
mod join;
mod limits;
mod network;
mod node;
mod registry;
mod store;
mod up;
pub mod values;

pub(crate) use audit::AuditFlags;
pub(crate) use autoscaler::AutoscalerFlags;
pub use data::{Backup, Down, Restore};
pub(crate) use eviction::EvictionFlags;
pub use join::Node;
pub(crate) use limits::ServerLimits;
pub(crate) use network::ClusterNetworkFlags;
pub use node::OnNode;
#[cfg(feature = "test-hooks")]
pub(crate) use node::change;
pub(crate) use node::{
    CpuPolicy, CriFlags, DriverKind, EnforceNodeAllocatable, RuntimeDelay, RuntimeKind, ServiceProxy,
    may_run_containers,
};
pub use registry::RegistryFlags;
pub(crate) use store::StoreFlags;
pub use up::Up;
