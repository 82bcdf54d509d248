//! What is counted of a pod's resizes.

use plumb_resize::admission::Verdict;
use plumb_resize::pod::PodResources;
use plumb_resize::resource::{Declared, Requirements, Resource};
use plumb_resize::status::{IN_PROGRESS, Outcome, Refusal, condition};
use tokio::time::Instant;

use super::Worker;
use crate::allocation_manager::Trigger;
use crate::allocator::AllocationResult;
use crate::journal::Entry;
use crate::metrics::{Metrics, Pending};

/// Where a pod's resize stands, as far as it is counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// When its node learnt of it.
    learnt: Option<Instant>,
    /// It is in force, and the API is to be told so.
    in_force: bool,
    pending: Option<Pending>,
    in_progress: bool,
}

impl Worker {
    /// Counts a wish.
    pub(super) fn count_wish(&mut self, old: &PodResources, new: &PodResources) {
        for (old, new) in old.containers.iter().zip(&new.containers) {
            count_changes(&self.node.metrics, old, new);
        }
        self.counted.learnt = Some(Instant::now());
        self.counted.in_force = false;
    }

    /// Counts the result of a resize request.
    pub(super) fn count_allocation(&self, result: &AllocationResult, trigger: Option<Trigger>) {
        if let (Some(Verdict::Infeasible(why)), Outcome::Refused(_)) = (&result.verdict, result.outcome) {
            self.node.metrics.infeasible(why.label());
        }
        if let (Outcome::Started, Some(trigger)) = (result.outcome, trigger) {
            self.node.metrics.deferred_accepted(trigger.name());
        }
    }

    /// Keeps the gauges at what is so.
    pub(super) fn count_standing(&mut self) {
        let pending = pending(&self.entry).filter(|_| !self.over && !self.buried);
        self.node.metrics.pending(self.counted.pending, pending);
        self.counted.pending = pending;
        let in_progress = self.resizing.is_some() && !self.over && !self.buried;
        if in_progress != self.counted.in_progress {
            self.node.metrics.in_progress(in_progress);
            self.counted.in_progress = in_progress;
        }
    }

    /// Notes that what was wished for is in force.
    pub(super) fn count_in_force(&mut self) {
        self.counted.in_force = true;
    }

    /// Notes that the API was told how the pod stands.
    pub(super) fn count_told(&mut self) {
        let shown = self.pod.status.as_ref().is_some_and(|status| condition(status, IN_PROGRESS).is_none());
        if let Some(learnt) = self.counted.learnt.filter(|_| shown && self.counted.in_force) {
            self.node.metrics.end_to_end(learnt.elapsed());
            self.counted.learnt = None;
        }
    }
}

fn pending(entry: &Entry) -> Option<Pending> {
    Some(match entry.allocation.pending.as_ref()?.refusal {
        Refusal::Deferred => Pending::Deferred,
        Refusal::Infeasible => Pending::Infeasible,
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
