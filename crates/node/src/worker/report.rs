//! Reporting the pod's status: one patch at a time, and the worker does not wait for it.
//!
//! A status that is about to change, because actions are in progress, is delayed for a moment, so that one patch suffices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_resize::pod::PodResources;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{DELAYS, Message, POD_WORKER, Parts, Worker};
use crate::lifecycle::Phase;
use crate::status::compose;
use crate::status_patch::{PatchOutcome, changes, patch_status};

/// For how long a status that is about to change is delayed. Starting a container or changing its cgroup takes less.
const MOMENT: Duration = Duration::from_millis(20);

/// The state of reporting.
#[derive(Debug, Default)]
pub(super) struct Report {
    under_way: Option<UnderWay>,
    failures: u32,
    not_before: Option<Instant>,
}

/// A report that is being sent, or delayed.
#[derive(Debug)]
struct UnderWay {
    at: Instant,
    /// Set by the task when it sends, or by the worker when it replaces the report: the first one wins.
    taken: Arc<AtomicBool>,
    task: AbortHandle,
}

impl UnderWay {
    /// Cancels the report, if it was not sent yet.
    fn take_back(&self) -> bool {
        let is_mine = !self.taken.swap(true, Ordering::AcqRel);
        if is_mine {
            self.task.abort();
        }
        is_mine
    }
}

impl Report {
    /// The time until the retry of a failed patch.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether a patch is in progress or has to be retried.
    pub(super) fn is_open(&self) -> bool {
        self.under_way.is_some() || self.not_before.is_some()
    }
}

impl Worker {
    /// Patches the pod's status if it differs, unless a patch is in progress; after a delay, if it is about to change.
    pub(super) fn publish(&mut self, phase: Phase, actual: &PodResources, about_to_change: bool) {
        let wait = self.report.not_before.is_some_and(|at| at > Instant::now());
        if self.deleted || wait {
            return;
        }
        let kept_back = match self.report.under_way.take() {
            Some(report) if report.take_back() => Some(report.at),
            Some(report) => {
                self.report.under_way = Some(report);
                return;
            }
            None => None,
        };
        let (health, waiting) = (self.health(), self.waiting());
        let status = compose(self.known(Parts { health: &health, waiting: &waiting, phase, actual }));
        let Some(changes) = changes(self.pod.status.as_ref(), &status) else {
            self.report = Report::default();
            return;
        };
        // A delayed report is not delayed for longer.
        let moment = if about_to_change { MOMENT } else { Duration::ZERO };
        let at = kept_back.unwrap_or_else(|| Instant::now() + moment);
        let taken = Arc::new(AtomicBool::new(!about_to_change));
        let (node, pod, sender) = (self.node.clone(), self.pod.clone(), self.sender.clone());
        let claim = about_to_change.then(|| taken.clone());
        let task = tokio::spawn(async move {
            if let Some(claim) = claim {
                tokio::time::sleep_until(at).await;
                if claim.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
            let patching = Box::pin(patch_status(node.client.clone(), &node.status_limiter, &pod, &changes));
            // The worker must get an outcome, or it would never report again.
            let outcome = node.supervisor.guard(POD_WORKER, patching).await;
            let outcome = outcome.unwrap_or_else(|panic| PatchOutcome::Failed(panic.to_string()));
            // The worker may have ended.
            let _ = sender.send(Message::StatusPatched(outcome));
        });
        self.report.under_way = Some(UnderWay { at, taken, task: task.abort_handle() });
    }

    /// Handles the outcome of a status patch.
    pub(super) fn handle_status_patched(&mut self, outcome: PatchOutcome) {
        self.report.under_way = None;
        match outcome {
            PatchOutcome::Applied(pod) | PatchOutcome::Conflict(pod) => {
                self.report = Report::default();
                self.handle_pod((*pod).into());
                self.count_reported();
            }
            PatchOutcome::NotFound => {
                self.deleted = true;
                self.update_termination();
            }
            PatchOutcome::Failed(error) => {
                self.report.failures = self.report.failures.saturating_add(1);
                let wait = DELAYS.after(self.report.failures);
                tracing::warn!(uid = self.uid, error, ?wait, "cannot patch a pod's status, will retry");
                self.report.not_before = Some(Instant::now() + wait);
            }
        }
    }
}
