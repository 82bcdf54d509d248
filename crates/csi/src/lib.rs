//! A client of storage drivers that speak CSI v1: the part of the kubelet that knows their sockets.
//!
//! ```text
//!   plugins_registry/NAME-reg.sock ──▶ GetInfo ──▶ endpoint ──▶ NodeGetInfo ──▶ NotifyRegistrationStatus
//!                                                     │
//!                                 NodeStage ▸ NodePublish ▸ … ▸ NodeUnpublish ▸ NodeUnstage, NodeExpand
//! ```
//!
//! It keeps no state: which volumes are staged and published is the node agent's to know. Each call has a deadline, and what
//! a driver answers is checked before it becomes a path or the name of an object: a driver is a program of someone else.

pub mod api;
mod driver;
mod names;
mod registration;

pub use driver::{AccessType, Driver, DriverError, NodeInfo, PublishRequest, StageRequest, access_mode};
pub use names::{attachment_name, inline_handle, is_driver_name, staging_directory, unique_name};
pub use registration::{PluginInfo, RegistrationError, get_info, notify};

use std::time::Duration;

/// How long a call to a driver may take, as the kubelet's.
pub const TIMEOUT: Duration = Duration::from_mins(2);
