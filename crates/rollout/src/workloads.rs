//! Deployments, `StatefulSets` and `DaemonSets`, also those of OpenKruise: how their own controllers are held while pods are
//! resized.
//!
//! ```text
//!   a user edits the resources of a template
//!     ──▶ admission: hold, in the same write     Deployment: paused │ StatefulSet, DaemonSet: OnDelete │
//!                                                those of OpenKruise: rollingUpdate.paused
//!     ──▶ run: resize the pods at the pace of the policy
//!     ──▶ make the live revision match           ReplicaSet: its template │ others: the label of each pod
//!     ──▶ release: the native controller has no change left to make
//! ```
//!
//! The native controllers run unchanged. The hold is in the same write as the edit, because a native controller may act on
//! an edit as soon as it is stored: a webhook adds it. Where no webhook answers, pods are recreated as they always were.
//!
//! While a Deployment is held its ReplicaSet has the new resources, so that new pods come up with them, and an annotation
//! in its template, so that it does not equal the Deployment's: `kubectl rollout status` waits until it is removed at the
//! end. A ReplicaSet without pods has the template and revision from before, for `kubectl rollout undo`.

mod admission;
mod condition;
mod held;
mod informers;
mod kind;
mod object;
mod pod_writes;
mod prepare;
mod reconcile;
mod record;
mod release;
mod replica_sets;
mod report;
mod run;
mod state;
mod tracker;
mod write;

pub use crate::engine::CONDITION;
pub use admission::{AdmissionContext, Admitted, admit};
pub use held::{HeldError, held};
pub use kind::WorkloadKind;
pub use record::{Hold, TemplateResources, WorkloadRecord, revision_of};
pub use replica_sets::{HELD_ANNOTATION, Live, Step, next_step, release_step};
pub use run::NAME;
pub(crate) use run::{release_all, run};
pub use tracker::Key;
pub(crate) use write::{recording, template_patch};

/// The annotation of a workload that opts in (`"true"`) or out (`"false"`), whatever policies select it.
pub const IN_PLACE_ANNOTATION: &str = "rollout.plumb.dev/in-place";
/// The annotation of a workload that has its [`WorkloadRecord`].
pub const RECORD_ANNOTATION: &str = "rollout.plumb.dev/rollout";
/// The annotation of a workload that has its [`RolloutStatus`](crate::engine::RolloutStatus).
pub const STATUS_ANNOTATION: &str = "rollout.plumb.dev/status";
