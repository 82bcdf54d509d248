//! Reconsidering a resize that the node had found infeasible.
//!
//! Quotas do not count the desired resources of such a pod: others may have used what it had been charged. When the resize
//! has become possible, because the node has grown for example, the node first reports that it is not infeasible any more.
//! The API server charges the quotas again, or rejects the report; only then is the resize decided.

use plumb_resize::accounting::is_refused;
use plumb_resize::admission::Verdict;
use plumb_resize::status::{Pending, PendingReason};

use super::Worker;

impl Worker {
    /// Whether the resize in the pod's spec has to be charged again before it is decided.
    pub(super) fn reconsiders(&mut self) -> bool {
        if self.reconsidered.is_some() {
            return true;
        }
        let desired = &self.info.desired;
        if !is_refused(&self.pod) || *desired == self.entry.allocation.allocated {
            return false;
        }
        let verdict = self.node.allocations.verdict(&self.uid, desired);
        if verdict.is_none_or(|verdict| matches!(verdict, Verdict::Infeasible(_))) {
            return false;
        }
        let generation = self.info.generation;
        let pending = self.entry.allocation.pending.take();
        let unknown = || Pending { reason: PendingReason::Infeasible, message: String::new(), generation };
        self.reconsidered = Some(pending.unwrap_or_else(unknown));
        true
    }

    /// The API server has accepted a report: if the pod is not infeasible any more in it, its resize is decided next.
    pub(super) fn reconsideration_reported(&mut self) {
        if !is_refused(&self.pod) {
            self.reconsidered = None;
        }
    }

    /// The API server has rejected a report. If a resize was being reconsidered, it stays infeasible, and this returns true.
    pub(super) fn reconsideration_rejected(&mut self, message: &str) -> bool {
        let Some(pending) = self.reconsidered.take() else { return false };
        tracing::info!(
            uid = self.uid,
            message,
            "a resize that was infeasible is possible, but was not charged"
        );
        let message = message.to_owned();
        self.entry.allocation.pending = Some(Pending { message, ..pending });
        self.asked = true;
        true
    }
}
