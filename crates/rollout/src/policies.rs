//! The status of policies: how many workloads each binds, and which of them two policies select.
//!
//! ```text
//!   policies and workloads of a namespace ──▶ bindings ──▶ Active, Conflicting, workloads
//! ```

mod bindings;
mod run;

pub use bindings::{Binding, Conflict, SelectedWorkload, bindings};
pub use run::NAME;
pub(crate) use run::run;

/// The condition of a policy that binds a workload.
pub const ACTIVE: &str = "Active";
/// The condition of a policy that selects a workload which another policy selects, too.
pub const CONFLICTING: &str = "Conflicting";
