//! The node agent: runs the pods that are bound to it, and resizes them while they run.
//!
//! ```text
//!   watch ▸ book (admit, promise) ▸ journal ▸ decide ▸ runtime ▸ read back ▸ status
//! ```
//!
//! One [`book::Book`] decides for all pods of the node, one after the other; what it promises is in the
//! [`journal::Journal`] before anything is touched. What is done about a pod is decided by pure functions over
//! what was seen ([`lifecycle`] and `plumb_resize::plan`), so that an agent that died at any instruction goes
//! on from what it finds.

mod agent;
mod allocated;
mod anybody;
pub mod api_proxy;
pub mod book;
pub mod cpus;
mod desk;
pub(crate) mod downward;
pub mod env;
mod events;
mod hook;
pub mod join;
pub mod journal;
pub mod last_words;
pub mod lifecycle;
pub(crate) mod log_line;
mod look;
pub mod metrics;
mod node;
pub mod objects;
pub mod probe;
mod publish;
pub mod readback;
pub mod register;
mod resized;
mod runtime_class;
pub mod server;
pub mod specify;
mod status;
pub mod sysctls;
mod unsupported;
pub mod usage;
pub mod volumes;
mod worker;

use std::sync::Arc;

use jiff::Timestamp;

pub use agent::{Agent, Config, StartError};
pub use publish::Reports;

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
