//! Reporting the pod's status: one patch at a time, and the worker does not wait for it.
//!
//! A status that is about to change, because actions are in progress, is delayed for a moment, so that one patch suffices.
//! A call to the runtime may take longer than that: [`Worker::reporting`] reports while it is in progress, so that a resize
//! shows as `InProgress`.

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

/// For how long a status that is about to change is delayed. Starting a container or changing its cgroup takes less.
const MOMENT: Duration = Duration::from_millis(20);

/// The state of reporting.
#[derive(Debug, Default)]
pub(super) struct Report {
    under_way: Option<UnderWay>,
    failures: u32,
    not_before: Option<Instant>,
    /// The last patch that was applied, and the resource version of the pod after it, until nothing is left to report. An
    /// API server whose feature gates differ drops some fields: the same patch would have no effect again.
    applied: Option<(Arc<RawValue>, Option<String>)>,
}

/// A report that is being sent, or delayed.
#[derive(Debug)]
struct UnderWay {
    at: Instant,
    /// The patch.
    changes: Arc<RawValue>,
    /// Set by the task when it sends, or by the worker when it replaces the report: the first one wins.
    taken: Arc<AtomicBool>,
    task: JoinHandle<PatchOutcome>,
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

    /// Waits for the outcome of the patch that is in progress; without one, forever. Cancel safe.
    pub(super) async fn outcome(&mut self) -> PatchOutcome {
        let Some(under_way) = &mut self.under_way else { return pending().await };
        let outcome = (&mut under_way.task).await;
        outcome.unwrap_or_else(|error| PatchOutcome::Failed(error.to_string()))
    }

    /// Waits for the outcome of the patch that is in progress, or until a failed one is to be retried.
    async fn outcome_or_retry(&mut self) -> Option<PatchOutcome> {
        match self.not_before {
            Some(at) if self.under_way.is_none() => {
                tokio::time::sleep_until(at).await;
                None
            }
            _ => Some(self.outcome().await),
        }
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
        if self.deletion.is_done() || wait {
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
        let (health, waiting, ephemeral) = (self.health(), self.waiting(), self.ephemeral_waiting());
        let parts =
            Parts { health: &health, waiting: &waiting, ephemeral_waiting: &ephemeral, phase, actual };
        let status = compose(self.status_input(parts));
        let Some(changes) = changes(self.pod.status.as_ref(), &status) else {
            self.report = Report::default();
            return;
        };
        let changes: Arc<RawValue> = changes.into();
        let version = &self.pod.metadata.resource_version;
        let same = |(sent, after): &(Arc<RawValue>, _)| sent.get() == changes.get() && after == version;
        if self.report.applied.as_ref().is_some_and(same) {
            // A report in between may have failed: there is nothing left to retry.
            self.report = Report { applied: self.report.applied.take(), ..Report::default() };
            return;
        }
        // A delayed report is not delayed for longer.
        let moment = if about_to_change { MOMENT } else { Duration::ZERO };
        let at = kept_back.unwrap_or_else(|| Instant::now() + moment);
        let taken = Arc::new(AtomicBool::new(!about_to_change));
        let (node, pod) = (self.node.clone(), self.pod.clone());
        let claim = about_to_change.then(|| taken.clone());
        let patch = changes.clone();
        let task = tokio::spawn(async move {
            if let Some(claim) = claim {
                tokio::time::sleep_until(at).await;
                if claim.swap(true, Ordering::AcqRel) {
                    // Another report replaces this one, and does not wait for its outcome.
                    return PatchOutcome::Failed("replaced".to_owned());
                }
            }
            let patching = Box::pin(patch_status(node.client.clone(), &node.status_limiter, &pod, &patch));
            // The worker must get an outcome, or it would never report again.
            let outcome = node.supervisor.guard(POD_WORKER, patching).await;
            outcome.unwrap_or_else(|panic| PatchOutcome::Failed(panic.to_string()))
        });
        self.report.under_way = Some(UnderWay { at, changes, taken, task });
    }

    /// Awaits a call to the runtime, and meanwhile reports the status: a report that was in progress when the call began may
    /// have been of an older status, or may fail or conflict.
    pub(super) async fn reporting<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        loop {
            let outcome = tokio::select! {
                biased;
                result = &mut call => return result,
                outcome = self.report.outcome_or_retry() => outcome,
            };
            if let Some(outcome) = outcome {
                self.handle_status_patched(outcome);
            }
            let actual = self.cgroups().resources(&self.info.shape, &self.entry.allocation.allocated);
            self.publish(self.phase(), &actual, true);
        }
    }

    /// Handles the outcome of a status patch.
    pub(super) fn handle_status_patched(&mut self, outcome: PatchOutcome) {
        let sent = self.report.under_way.take().map(|report| report.changes);
        match outcome {
            PatchOutcome::Applied(pod) => {
                let version = pod.metadata.resource_version.clone();
                self.report = Report { applied: sent.map(|sent| (sent, version)), ..Report::default() };
                self.handle_pod((*pod).into());
                self.reconsideration_reported();
                self.count_reported();
            }
            PatchOutcome::Conflict(pod) => {
                self.report = Report::default();
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
        self.report.failures = self.report.failures.saturating_add(1);
        let wait = DELAYS.after(self.report.failures);
        tracing::warn!(uid = self.uid, error, ?wait, "cannot patch a pod's status, will retry");
        self.report.not_before = Some(Instant::now() + wait);
    }
}
