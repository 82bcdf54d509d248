//! Where a resize stands: what the node knows, how it is shown, and how what is shown is read.
//!
//! ```text
//!   Allocation ──project──▶ Projection ──publish──▶ PodStatus ──read──▶ Reading
//!   (the node's)            (what to show)          (the API's)         (any client's)
//! ```
//!
//! The node keeps an [`Allocation`] per pod. [`project`] turns it, with what is in force, into what is to be
//! shown; [`Projection::publish`] writes that into a `PodStatus`; and [`read`] gets it back out, for the
//! command line, the updater and the rollout, from Plumb's own nodes and from any kubelet.

mod allocation;
mod projection;
mod publish;
mod read;
mod word;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

pub use allocation::{Allocation, Outcome, Pending, Refusal};
pub use projection::{InProgress, Projection, project};
pub use publish::propose;
pub use read::{ContainerReading, Reading, Stage, Values, read};
pub use word::{Cause, ResizeWord, TRANSITIONS, transition_is_legal};

/// The condition that says that what is desired has not been taken.
pub const PENDING: &str = "PodResizePending";
/// The condition that says that what was taken is not yet in force.
pub const IN_PROGRESS: &str = "PodResizeInProgress";
/// The reason of [`IN_PROGRESS`] when carrying it out has failed and is tried again.
pub const ERROR: &str = "Error";

/// A condition of a pod, by its type.
pub fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}
