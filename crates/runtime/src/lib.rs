//! Container runtimes for the node agent, behind one trait.
//!
//! [`Runtime`] has the calls of the CRI v1, and two more that the agent can do without, in plain types ([`types`]). A client of a
//! CRI socket implements it (`plumb_cri`, for containerd) as well as the runtimes of this crate do. [`fault::Faulty`] wraps any of them for tests and makes chosen calls
//! fail, wait, or lose their response.
//!
//! ```text
//!   node agent ──▶ dyn Runtime ──▶ (in tests: Faulty ──▶) Builtin, Virtual or plumb_cri
//! ```

pub mod builtin;
pub mod cgroup;
pub mod descriptors;
pub mod disk_usage;
mod error;
mod execution;
pub mod fault;
mod hosts;
pub mod image;
pub mod load;
mod log_rotation;
mod mountinfo;
mod rootfs;
mod runtime;
pub mod service_nat;
pub mod shape;
pub mod shim;
mod sys;
pub mod sysctl;
pub mod types;
pub mod untrusted;
mod r#virtual;

pub use error::{Error, Result};
pub use execution::{
    AttachRequest, Connection, Duplex, ExecRequest, Execution, Resizer, Streaming, TerminalSize,
};
pub use hosts::hosts_file;
pub use log_rotation::move_aside;
pub use mountinfo::mounts_below;
pub use runtime::{Confirmation, Events, Runtime};
pub use r#virtual::{MODEL, Virtual, VirtualConfig};
