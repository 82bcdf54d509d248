//! Metrics of a pod's resizes.

use plumb_resize::admission::Verdict;
use plumb_resize::pod::PodResources;
use plumb_resize::resource::{Declared, Requirements, Resource};
use plumb_resize::status::{IN_PROGRESS, PendingReason, ResizeOutcome, condition};
use tokio::time::Instant;

use super::Worker;
use crate::allocation_manager::Trigger;
use crate::allocator::AllocationResult;
use crate::journal::Entry;
use crate::metrics::{Metrics, Pending};

/// The state of a pod's resize in the metrics.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// When the node received it.
    received_at: Option<Instant>,
    /// It is completed, but not reported yet.
    completed: bool,
    pending: Option<Pending>,
    in_progress: bool,
}

impl Worker {
    /// Counts a change of the desired resources.
    pub(super) fn count_desired(&mut self, old: &PodResources, new: &PodResources) {
        for (old, new) in old.containers.iter().zip(&new.containers) {
            count_changes(&self.node.metrics, old, new);
        }
        self.counted.received_at = Some(Instant::now());
        self.counted.completed = false;
    }

    /// Counts the result of a resize request.
    pub(super) fn count_allocation(&self, result: &AllocationResult, trigger: Option<Trigger>) {
        if let (Some(Verdict::Infeasible(why)), ResizeOutcome::Pending(_)) = (&result.verdict, result.outcome)
        {
            self.node.metrics.infeasible(why.label());
        }
        if let (ResizeOutcome::Started, Some(trigger)) = (result.outcome, trigger) {
            self.node.metrics.deferred_accepted(trigger.name());
        }
    }

    /// Updates the gauges.
    pub(super) fn update_gauges(&mut self) {
        let pending = pending(&self.entry).filter(|_| self.state.holds_allocation());
        self.node.metrics.pending(self.counted.pending, pending);
        self.counted.pending = pending;
        let in_progress = self.actuation.generation.is_some() && self.state.holds_allocation();
        if in_progress != self.counted.in_progress {
            self.node.metrics.in_progress(in_progress);
            self.counted.in_progress = in_progress;
        }
    }

    /// The resize is completed.
    pub(super) fn count_completed(&mut self) {
        self.counted.completed = true;
    }

    /// The pod's status was reported.
    pub(super) fn count_reported(&mut self) {
        let shown = self.pod.status.as_ref().is_some_and(|status| condition(status, IN_PROGRESS).is_none());
        if let Some(received_at) = self.counted.received_at.filter(|_| shown && self.counted.completed) {
            self.node.metrics.end_to_end(received_at.elapsed());
            self.counted.received_at = None;
        }
    }
}

fn pending(entry: &Entry) -> Option<Pending> {
    Some(match entry.allocation.pending.as_ref()?.reason {
        PendingReason::Deferred => Pending::Deferred,
        PendingReason::Infeasible => Pending::Infeasible,
    })
}

fn count_changes(metrics: &Metrics, old: &Requirements, new: &Requirements) {
    let lists: [(&str, Declared, Declared); 2] =
        [("requests", old.requests, new.requests), ("limits", old.limits, new.limits)];
    for (requirement, old, new) in lists {
        for resource in Resource::ALL {
            let operation = match (old[resource], new[resource]) {
                (None, Some(_)) => "add",
                (Some(_), None) => "remove",
                (Some(old), Some(new)) if new > old => "increase",
                (Some(old), Some(new)) if new < old => "decrease",
                _ => continue,
            };
            metrics.requested(resource.name(), requirement, operation);
        }
    }
}
