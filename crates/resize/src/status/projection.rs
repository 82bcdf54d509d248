//! From the node's state to the published status.

use super::allocation::{Allocation, Pending, PendingReason};
use super::resize_status::PodResizeStatus;
use crate::pod::PodResources;
use crate::rules::Rules;

/// The published status of a pod's resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Projection {
    /// The allocated resources.
    pub allocated: PodResources,
    /// The actual resources; for a container that does not run, the allocated ones.
    pub actual: PodResources,
    /// The condition `PodResizePending`.
    pub pending: Option<Pending>,
    /// The condition `PodResizeInProgress`.
    pub in_progress: Option<InProgress>,
    /// `status.resize`, where the rules publish it.
    pub resize_status: Option<PodResizeStatus>,
    /// Whether the sums of the containers are published for a pod without pod-level resources.
    pub totals: bool,
    /// The generation of the spec that the node has observed.
    pub observed_generation: i64,
}

/// An allocation that is being actuated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InProgress {
    /// The generation of the spec that was allocated. It stays while newer specs are deferred or infeasible.
    pub generation: i64,
    /// The error of the last attempt.
    pub error: Option<String>,
}

impl Projection {
    /// The runtime has yet to confirm the actual resources: the resize is in progress even if they are the allocated ones.
    pub fn keep_in_progress(&mut self, allocation: &Allocation, rules: &Rules) {
        if self.in_progress.is_some() || !rules.resize {
            return;
        }
        self.in_progress =
            Some(InProgress { generation: allocation.generation, error: allocation.error.clone() });
        if rules.publish_resize_status {
            self.resize_status.get_or_insert(PodResizeStatus::InProgress);
        }
    }
}

/// Computes the published status.
///
/// `desired` is the spec at `generation`, which the node has observed; `actual` is what the runtime reports.
pub fn project(
    allocation: &Allocation,
    desired: &PodResources,
    generation: i64,
    actual: &PodResources,
    rules: &Rules,
) -> Projection {
    // With the feature gate off, the node actuates no resize.
    let in_progress = (*actual != allocation.allocated && rules.resize)
        .then(|| InProgress { generation: allocation.generation, error: allocation.error.clone() });
    let untaken = *desired != allocation.allocated;
    let pending = allocation.pending.as_ref().filter(|_| untaken);
    // A condition of an older spec stays, with its generation, but `status.resize` is about the latest.
    let word = match pending.filter(|pending| pending.generation == generation) {
        Some(Pending { reason: PendingReason::Infeasible, .. }) => Some(PodResizeStatus::Infeasible),
        Some(Pending { reason: PendingReason::Deferred, .. }) => Some(PodResizeStatus::Deferred),
        None if untaken => Some(PodResizeStatus::Proposed),
        None => in_progress.is_some().then_some(PodResizeStatus::InProgress),
    };
    Projection {
        allocated: allocation.allocated.clone(),
        actual: actual.clone(),
        pending: pending.cloned(),
        in_progress,
        resize_status: word.filter(|_| rules.publish_resize_status),
        totals: rules.publish_pod_totals,
        observed_generation: generation,
    }
}
