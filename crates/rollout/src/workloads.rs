//! Deployments, `StatefulSets` and `DaemonSets`: how their native controllers are held while pods are resized.
//!
//! ```text
//!   a user edits the resources of a template
//!     ──▶ admission: hold, in the same write     Deployment: paused │ StatefulSet: partition │ DaemonSet: OnDelete
//! ```
//!
//! The native controllers run unchanged. The hold is in the same write as the edit, because a native controller may act on
//! an edit as soon as it is stored: a webhook adds it. Where no webhook answers, pods are recreated as they always were.

mod admission;
mod kind;
mod record;

pub use admission::{AdmissionContext, Admitted, admit};
pub use kind::WorkloadKind;
pub use record::{Hold, TemplateResources, WorkloadRecord, revision_of};

/// The annotation of a workload that opts in (`"true"`) or out (`"false"`), whatever policies select it.
pub const IN_PLACE_ANNOTATION: &str = "rollout.plumb.dev/in-place";
/// The annotation of a workload that has its [`WorkloadRecord`].
pub const RECORD_ANNOTATION: &str = "rollout.plumb.dev/rollout";
/// The annotation of a workload that has its [`RolloutStatus`](crate::engine::RolloutStatus).
pub const STATUS_ANNOTATION: &str = "rollout.plumb.dev/status";
