//! The status manager of a pod: sends one patch of the pod's status at a time; the worker does not wait for it.
//!
//! While actions are in progress and the status is about to change, the status manager delays the patch a little, so that
//! one patch suffices. A call to the runtime may take longer than that: [`Worker::reporting_status`] patches the status while
//! the call is in progress, so that a resize shows as `InProgress`.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_resize::pod::PodResources;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{DELAYS, POD_WORKER, Parts, Worker};
use crate::lifecycle::Phase;
use crate::status::compose;
use crate::status_patch::{PatchOutcome, changes, patch_status};

/// For how long the patch of a status that is about to change is delayed. Starting a container or changing its cgroup
/// takes less.
const COALESCE_PERIOD: Duration = Duration::from_millis(20);

/// The state of the patches of one pod's status.
#[derive(Debug, Default)]
pub(super) struct StatusManager {
    pending_patch: Option<PendingPatch>,
    failures: u32,
    not_before: Option<Instant>,
    /// The last patch that was applied, and the resource version of the pod after it, until there is nothing to
    /// report. An API server whose feature gates differ drops some fields: the same patch would have no effect again.
    applied: Option<(Arc<RawValue>, Option<String>)>,
}

/// A patch that is being sent, or delayed.
#[derive(Debug)]
struct PendingPatch {
    at: Instant,
    /// The patch.
    changes: Arc<RawValue>,
    /// The task sets it when it sends the patch, the worker when it replaces the patch: the first one wins.
    claimed: Arc<AtomicBool>,
    task: JoinHandle<PatchOutcome>,
}

impl PendingPatch {
    /// Cancels the patch, if it was not sent yet.
    fn cancel(&self) -> bool {
        let is_cancelled = !self.claimed.swap(true, Ordering::AcqRel);
        if is_cancelled {
            self.task.abort();
        }
        is_cancelled
    }
}

impl StatusManager {
    /// The time until the retry of a failed patch; none while a patch is in progress, whose outcome wakes the worker.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let not_before = self.not_before.filter(|_| self.pending_patch.is_none())?;
        Some(not_before.saturating_duration_since(Instant::now()))
    }

    /// Waits for the outcome of the patch that is in progress; without one, forever. Cancel safe.
    pub(super) async fn outcome(&mut self) -> PatchOutcome {
        let Some(pending_patch) = &mut self.pending_patch else { return pending().await };
        let outcome = (&mut pending_patch.task).await;
        outcome.unwrap_or_else(|error| PatchOutcome::Failed(error.to_string()))
    }

    /// Waits for the outcome of the patch that is in progress, or until a failed one is to be retried.
    async fn outcome_or_retry(&mut self) -> Option<PatchOutcome> {
        match self.not_before {
            Some(at) if self.pending_patch.is_none() => {
                tokio::time::sleep_until(at).await;
                None
            }
            _ => Some(self.outcome().await),
        }
    }

    /// Whether a patch is in progress or has to be retried.
    pub(super) fn is_open(&self) -> bool {
        self.pending_patch.is_some() || self.not_before.is_some()
    }
}

impl Worker {
    /// Patches the pod's status if it differs, unless a patch is in progress; after a delay, if it is about to change.
    pub(super) fn sync_status(&mut self, phase: Phase, actual: &PodResources, about_to_change: bool) {
        let wait = self.status_manager.not_before.is_some_and(|at| at > Instant::now());
        if self.deletion.is_done() || wait {
            return;
        }
        let delayed_until = match self.status_manager.pending_patch.take() {
            Some(patch) if patch.cancel() => Some(patch.at),
            Some(patch) => {
                self.status_manager.pending_patch = Some(patch);
                return;
            }
            None => None,
        };
        let (health, waiting, ephemeral) = (self.health(), self.waiting(), self.ephemeral_waiting());
        let allocation = self.reported_allocation();
        let parts = Parts {
            health: &health,
            waiting: &waiting,
            ephemeral_waiting: &ephemeral,
            phase,
            actual,
            allocation: &allocation,
        };
        let status = compose(self.status_input(parts));
        let Some(changes) = changes(self.pod.status.as_ref(), &status) else {
            self.status_manager = StatusManager::default();
            return;
        };
        let changes: Arc<RawValue> = changes.into();
        let version = &self.pod.metadata.resource_version;
        let same = |(sent, after): &(Arc<RawValue>, _)| sent.get() == changes.get() && after == version;
        if self.status_manager.applied.as_ref().is_some_and(same) {
            // A patch in between may have failed: no retry is pending.
            let applied = self.status_manager.applied.take();
            self.status_manager = StatusManager { applied, ..StatusManager::default() };
            return;
        }
        // A delayed patch is not delayed for longer.
        let delay = if about_to_change { COALESCE_PERIOD } else { Duration::ZERO };
        let at = delayed_until.unwrap_or_else(|| Instant::now() + delay);
        let claimed = Arc::new(AtomicBool::new(!about_to_change));
        let (node, pod) = (self.node.clone(), self.pod.clone());
        let claim = about_to_change.then(|| claimed.clone());
        let patch = changes.clone();
        let task = tokio::spawn(async move {
            if let Some(claim) = claim {
                tokio::time::sleep_until(at).await;
                if claim.swap(true, Ordering::AcqRel) {
                    // Another patch replaces this one, and does not wait for its outcome.
                    return PatchOutcome::Failed("replaced".to_owned());
                }
            }
            let patching = Box::pin(patch_status(node.client.clone(), &node.status_limiter, &pod, &patch));
            // The worker must get an outcome, or it would never report again.
            let outcome = node.supervisor.guard(POD_WORKER, patching).await;
            outcome.unwrap_or_else(|panic| PatchOutcome::Failed(panic.to_string()))
        });
        self.status_manager.pending_patch = Some(PendingPatch { at, changes, claimed, task });
    }

    /// Awaits a call to the runtime, and meanwhile patches the status: a patch that was in progress when the call began may
    /// have had an older status, or may fail or conflict.
    pub(super) async fn reporting_status<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        loop {
            let outcome = tokio::select! {
                biased;
                result = &mut call => return result,
                outcome = self.status_manager.outcome_or_retry() => outcome,
            };
            if let Some(outcome) = outcome {
                self.handle_status_patched(outcome);
            }
            let actual = self.cgroups().resources(&self.info.shape, &self.entry.allocation.allocated);
            self.sync_status(self.phase(), &actual, true);
        }
    }

    /// Handles the outcome of a status patch.
    pub(super) fn handle_status_patched(&mut self, outcome: PatchOutcome) {
        let sent = self.status_manager.pending_patch.take().map(|patch| patch.changes);
        match outcome {
            PatchOutcome::Applied(pod) => {
                let version = pod.metadata.resource_version.clone();
                self.status_manager =
                    StatusManager { applied: sent.map(|sent| (sent, version)), ..StatusManager::default() };
                self.handle_pod((*pod).into());
                self.reconsideration_reported();
                self.count_reported();
            }
            PatchOutcome::Conflict(pod) => {
                self.status_manager = StatusManager::default();
                self.handle_pod((*pod).into());
                self.reconsideration_reported();
                self.count_reported();
            }
            PatchOutcome::NotFound => self.handle_deleted(),
            PatchOutcome::Forbidden(message) => {
                if !self.reconsideration_rejected(&message) {
                    self.report_failed(&message);
                }
            }
            PatchOutcome::Failed(error) => self.report_failed(&error),
        }
    }

    fn report_failed(&mut self, error: &str) {
        self.status_manager.failures = self.status_manager.failures.saturating_add(1);
        let wait = DELAYS.after(self.status_manager.failures);
        tracing::warn!(uid = self.uid, error, ?wait, "cannot patch a pod's status, will retry");
        self.status_manager.not_before = Some(Instant::now() + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_retry_that_is_in_progress_requeues_the_worker_by_its_outcome_and_not_at_once() {
        let due = Instant::now();
        let failed = StatusManager { failures: 1, not_before: Some(due), ..StatusManager::default() };
        assert_eq!(failed.retry_after(), Some(Duration::ZERO));
        let retried = PendingPatch {
            at: due,
            changes: RawValue::from_string("{}".to_owned()).unwrap().into(),
            claimed: Arc::default(),
            task: tokio::spawn(pending()),
        };
        let retrying = StatusManager { pending_patch: Some(retried), ..failed };
        assert_eq!(retrying.retry_after(), None);
        assert!(retrying.is_open());
    }
}
