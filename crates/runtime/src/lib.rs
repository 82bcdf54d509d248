//! What the node agent drives: pods and containers behind one trait.
//!
//! [`Runtime`] has the shape of the CRI v1, in plain types ([`types`]), so that a client of a CRI socket maps
//! onto it as well as the bodies that live here do. [`fault::Faulty`] stands in front of any of them and makes
//! chosen calls fail, wait, or lose their answer.
//!
//! ```text
//!   node agent ──▶ dyn Runtime ──▶ Faulty (tests) ──▶ a body
//! ```

pub mod builtin;
pub mod cgroup;
pub mod descriptors;
mod error;
mod execution;
pub mod fault;
mod hex;
pub mod image;
pub mod load;
mod mountinfo;
mod place;
mod runtime;
pub mod shape;
pub mod shim;
mod sys;
pub mod sysctl;
pub mod types;
pub mod untrusted;
mod r#virtual;

pub use error::{Error, Result};
pub use execution::{ExecRequest, Execution, Resizer, TerminalSize};
pub use mountinfo::mounts_below;
pub use runtime::{Events, Runtime};
pub use r#virtual::{MODEL, Virtual, VirtualConfig};
