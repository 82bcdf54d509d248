//! Requesting the allocation of the resources in the pod's spec.
//!
//! A resize that the node had found infeasible is reconsidered when it has become possible, because the node has grown for
//! example. Quotas do not count the desired resources of an infeasible resize: other pods may use them by now. So the node
//! first reports that the resize is not infeasible any more; the API server charges the quotas again, or rejects the report.
//! Only then does the node request the resize.

use std::borrow::Cow;

use plumb_resize::accounting::is_refused;
use plumb_resize::admission::Verdict;
use plumb_resize::status::{Allocation, Pending, PendingReason, ResizeOutcome};

use super::Worker;
use super::error::SyncError;
use crate::allocation_manager::Trigger;
use crate::allocator::{AllocationResult, PodInfo};
use crate::events::Kind;
use crate::resized;

/// How far the request for the resources in the pod's spec is.
///
/// ```text
///   Outstanding ────────── the allocation manager decides ──────────▶ Decided
///     │      ▲                                                         │   ▲
///     │      └── the spec changes, or the manager requests a retry ────┘   │
///     │ it was infeasible                                                  │
///     │ and is possible now                                                │
///     ▼                                                                    │
///   Reconsidered ── the API server rejects the report: infeasible again ───┘
///     │
///     └── the API server accepts the report, or rejects it after the spec has changed ──▶ Outstanding
/// ```
#[derive(Debug, Default)]
pub(super) enum ResizeRequest {
    /// The allocation manager has yet to decide.
    #[default]
    Outstanding,
    /// The resize was infeasible, for this reason, and has become feasible; the API server has yet to accept a report
    /// of that.
    Reconsidered(Pending),
    /// The allocation manager has decided, or will request a retry once it can.
    Decided,
}

impl ResizeRequest {
    /// The last decision does not apply any more.
    pub(super) fn reopen(&mut self) {
        if matches!(self, Self::Decided) {
            *self = Self::Outstanding;
        }
    }

    /// The API server has rejected a report. If a resize was being reconsidered, it stays infeasible, and this returns it. The
    /// rejection does not decide on a spec that is newer than it.
    fn reject(&mut self, message: &str, generation: i64) -> Option<Pending> {
        let Self::Reconsidered(pending) = self else { return None };
        let rejected = Pending { message: message.to_owned(), ..pending.clone() };
        *self = if rejected.generation == generation { Self::Decided } else { Self::Outstanding };
        Some(rejected)
    }
}

impl Worker {
    /// Requests the resources in the spec, unless the allocation manager has decided on them.
    pub(super) async fn request_resize(&mut self) -> Result<(), SyncError> {
        if !self.state.is_syncing() {
            return Ok(());
        }
        match self.request {
            ResizeRequest::Outstanding => {}
            ResizeRequest::Reconsidered(_) | ResizeRequest::Decided => return Ok(()),
        }
        if let Some(pending) = self.reconsider() {
            self.request = ResizeRequest::Reconsidered(pending);
            return Ok(());
        }
        let PodInfo { desired, generation, .. } = &self.info;
        let result = self.node.allocations.request_resize(&self.uid, desired.clone(), *generation).await;
        if let Some(result) = result? {
            self.handle_allocation(result, None);
        }
        self.request = ResizeRequest::Decided;
        Ok(())
    }

    /// Handles the result of a resize request. The result of a retry may have waited in the inbox while the worker changed the
    /// entry, or requested a newer spec: then the newer result stands.
    pub(super) fn handle_allocation(&mut self, result: AllocationResult, trigger: Option<Trigger>) {
        self.count_allocation(&result, trigger);
        let entry = self.node.allocations.entry(&self.uid).unwrap_or_else(|| result.entry.clone());
        if is_current(&result, &entry.allocation, self.info.generation) {
            resized::emit_allocation(&self.node.events, &self.pod, &self.info, &result);
            if matches!(result.outcome, ResizeOutcome::Pending(_))
                && let Some(wait) = self.node.allocations.explain_wait(&self.uid)
            {
                let (events, message) = (&self.node.events, wait.to_string());
                events.pod(&self.pod, Kind::Warning, "ResizeWaits", message);
            }
            if result.outcome == ResizeOutcome::Started {
                self.actuation.start(result.entry.allocation.generation);
            }
        }
        self.entry = entry;
        self.refresh_volumes();
    }

    /// The pending resize, if it is infeasible in the status and possible now.
    fn reconsider(&self) -> Option<Pending> {
        let desired = &self.info.desired;
        if !is_refused(&self.pod) || *desired == self.entry.allocation.allocated {
            return None;
        }
        let verdict = self.node.allocations.verdict(&self.uid, desired)?;
        if matches!(verdict, Verdict::Infeasible(_)) {
            return None;
        }
        let generation = self.info.generation;
        let pending = self.entry.allocation.pending.clone();
        let unknown = || Pending { reason: PendingReason::Infeasible, message: String::new(), generation };
        // The report is about the spec as it is now.
        Some(Pending { generation, ..pending.unwrap_or_else(unknown) })
    }

    /// The allocation as the status reports it: without the infeasible resize that is being reconsidered.
    pub(super) fn reported_allocation(&self) -> Cow<'_, Allocation> {
        match self.request {
            ResizeRequest::Reconsidered(_) => {
                Cow::Owned(Allocation { pending: None, ..self.entry.allocation.clone() })
            }
            ResizeRequest::Outstanding | ResizeRequest::Decided => Cow::Borrowed(&self.entry.allocation),
        }
    }

    /// The API server has accepted a report: if it no longer reports the resize as infeasible, the resize is
    /// requested next.
    pub(super) fn reconsideration_reported(&mut self) {
        if matches!(self.request, ResizeRequest::Reconsidered(_)) && !is_refused(&self.pod) {
            self.request = ResizeRequest::Outstanding;
        }
    }

    /// The API server has rejected a report. If a resize was being reconsidered, it stays infeasible, and this returns true.
    pub(super) fn reconsideration_rejected(&mut self, message: &str) -> bool {
        let Some(pending) = self.request.reject(message, self.info.generation) else { return false };
        tracing::info!(
            uid = self.uid,
            message,
            "a resize that was infeasible is possible, but was not charged"
        );
        self.entry.allocation.pending = Some(pending);
        true
    }
}

/// Whether an allocation is still the one that a result has decided on, and a pending resize also that of the spec.
fn is_current(result: &AllocationResult, allocation: &Allocation, generation: i64) -> bool {
    let decided = &result.entry.allocation;
    let pending = |allocation: &Allocation| allocation.pending.as_ref().map(|pending| pending.generation);
    match result.outcome {
        ResizeOutcome::Started => decided.generation == allocation.generation,
        ResizeOutcome::Pending(_) => {
            pending(decided) == Some(generation) && pending(allocation) == Some(generation)
        }
        ResizeOutcome::Withdrawn | ResizeOutcome::Unchanged => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_report_decides_on_its_own_spec_and_not_on_a_newer_one() {
        let infeasible =
            Pending { reason: PendingReason::Infeasible, message: "before".to_owned(), generation: 2 };
        let rejected = Pending { message: "exceeded quota".to_owned(), ..infeasible.clone() };
        let mut request = ResizeRequest::Reconsidered(infeasible.clone());
        assert_eq!(request.reject("exceeded quota", 2), Some(rejected.clone()));
        assert!(matches!(request, ResizeRequest::Decided));
        assert_eq!(request.reject("exceeded quota", 2), None);

        let mut request = ResizeRequest::Reconsidered(infeasible);
        // The spec changes while the report is in progress.
        request.reopen();
        assert_eq!(request.reject("exceeded quota", 3), Some(rejected));
        assert!(matches!(request, ResizeRequest::Outstanding), "the newer spec is requested");
    }
}
