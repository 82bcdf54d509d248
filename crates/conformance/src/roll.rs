//! Actions on a workload whose template changes, and their expected results.

use crate::case::Amounts;
use crate::scale::Resources;
use crate::step::Field;

/// What happens to a workload or to the policy of its rollouts.
#[derive(Clone, Copy, Debug)]
pub enum Roll {
    /// The template is changed: the resources of these containers and sidecars, and what this merge patch of the whole
    /// object says (`{}` is nothing).
    Edit(Resources, &'static str),
    /// The workload is changed by this merge patch.
    Patch(&'static str),
    /// The workload is scaled.
    Replicas(i32),
    /// The workload is deleted, and its pods after it.
    Delete,
    /// The `RolloutPolicy` of the workload is created with this `spec`, as JSON. `targetRef` is filled in. It is in effect
    /// when the step ends.
    CreatePolicy(&'static str),
    /// The policy's `spec` is changed by this merge patch.
    PatchPolicy(&'static str),
}

/// An expected result.
#[derive(Clone, Copy, Debug)]
pub enum Rolled {
    /// The rollout is reported to be in this phase.
    Phase(&'static str),
    /// The same, with a pod that is stuck for this reason.
    Stuck {
        /// The phase.
        phase: &'static str,
        /// The reason of a pod that is stuck.
        reason: &'static str,
    },
    /// Of the pods that there were so many run with these resources, and the others with those.
    Split {
        /// The resources of some.
        to: Resources,
        /// How many.
        pods: usize,
        /// The resources of the others.
        others: Resources,
        /// Whether it stays so until the next step: then the cgroups and processes are inspected, too.
        lasts: bool,
    },
    /// The resize of a pod is deferred.
    Deferred,
    /// Up to now no more pods than this had a resize under way at any time.
    ResizingAtMost(usize),
    /// Up to now no more pods than this were unready at any time, once they had been ready.
    UnreadyAtMost(usize),
    /// The workload has these fields.
    Has(&'static [Field]),
    /// The template of the workload has these resources.
    Template(Resources),
    /// The answer to the last change of the workload had a warning with this in it.
    Warned(&'static str),
    /// In each pod the sidecar of this name runs with this, and no pod is another one.
    Sidecar(&'static str, Amounts),
    /// No pod is left.
    Ended,
}
