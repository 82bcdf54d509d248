//! The node agent: runs the pods that are bound to it, and resizes them while they run.
//!
//! ```text
//!   watch ▸ admit, allocate ▸ journal ▸ decide ▸ runtime ▸ read back ▸ status
//! ```
//!
//! One [`allocator::Allocator`] admits and allocates for all pods of the node, one after the other; an allocation is in the
//! [`journal::Journal`] before it is actuated. Pure functions over the observed state ([`lifecycle`] and
//! `plumb_resize::plan`) decide the actions for a pod, so that an agent that crashed at any instruction continues
//! from the state that it observes.

mod agent;
mod allocated;
mod allocation_manager;
pub mod allocator;
pub mod api_proxy;
pub mod cpus;
pub mod cri_config;
pub(crate) mod downward;
pub mod env;
mod ephemeral_storage;
mod events;
pub mod eviction;
mod file_changes;
pub mod holders;
mod hook;
pub mod image_gc;
pub mod image_pulls;
mod insecure_tls;
pub mod join;
pub mod journal;
mod kernel_files;
pub mod lifecycle;
pub(crate) mod log_line;
pub mod metrics;
mod node;
pub mod objects;
mod observe;
mod pod_files;
pub mod predicates;
mod preemption;
pub mod probe;
pub mod pull_secrets;
pub mod readback;
pub mod register;
mod resized;
mod runtime_class;
pub mod server;
pub mod services;
pub mod shutdown;
pub mod static_pods;
mod status;
mod status_patch;
pub mod sysctls;
pub mod termination_message;
mod unsupported;
pub mod usage;
pub mod volumes;
mod worker;

use std::sync::Arc;

use jiff::Timestamp;

pub use agent::{Agent, Config, StartError, VolumeDirectories};
pub use status_patch::StatusLimiter;

/// The clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
