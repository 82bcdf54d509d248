//! The status of a resize: the node's allocation, its projection into the pod's status, and how that is read.
//!
//! ```text
//!   Allocation ──project──▶ Projection ──publish──▶ PodStatus ──read──▶ Reading
//!   (the node's)            (what to show)          (the API's)         (any client's)
//! ```
//!
//! The node has an [`Allocation`] per pod. [`project`] computes from it and the actual resources what is published;
//! [`Projection::publish`] writes that into a `PodStatus`; and [`read`] reads it, for the
//! command line, the updater and the rollout, from Plumb's own nodes and from any kubelet.

mod allocation;
mod projection;
mod publish;
mod read;
mod recover;
mod resize_status;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

pub use allocation::{Allocation, Pending, PendingReason, ResizeOutcome};
pub use projection::{InProgress, Projection, project};
pub use publish::propose;
pub use read::{ContainerReading, Reading, Stage, Values, read};
pub use recover::{at_admission, recovered};
pub use resize_status::{Cause, PodResizeStatus, TRANSITIONS, transition_is_legal};

/// The condition of a resize that is deferred or infeasible.
pub const PENDING: &str = "PodResizePending";
/// The condition of an accepted resize that is not actual yet.
pub const IN_PROGRESS: &str = "PodResizeInProgress";
/// The reason of [`IN_PROGRESS`] when its actuation has failed and is retried.
pub const ERROR: &str = "Error";

/// A condition of a pod, by its type.
pub fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}
