//! Telling the API how the pod stands: one report at a time, and never waited for.
//!
//! A state that is about to be replaced by another, because something is being done, is kept back for a moment: what is
//! done by then need not be told twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_resize::pod::PodResources;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{DELAYS, Message, POD_WORKER, Parts, Worker};
use crate::lifecycle::Phase;
use crate::publish::{Told, changes, tell};
use crate::status::compose;

/// For how long a state is kept back that is about to be replaced. Starting a container or changing its cgroup takes
/// less; whoever looks does not see the difference.
const MOMENT: Duration = Duration::from_millis(20);

/// How telling the API goes.
#[derive(Debug, Default)]
pub(super) struct Report {
    under_way: Option<UnderWay>,
    failures: u32,
    not_before: Option<Instant>,
}

/// A report that is being made, or kept back.
#[derive(Debug)]
struct UnderWay {
    at: Instant,
    /// Taken by whoever comes first: the report, or the one that takes its place.
    taken: Arc<AtomicBool>,
    task: AbortHandle,
}

impl UnderWay {
    /// Takes the report back, if nothing of it was sent.
    fn take_back(&self) -> bool {
        let is_mine = !self.taken.swap(true, Ordering::AcqRel);
        if is_mine {
            self.task.abort();
        }
        is_mine
    }
}

impl Report {
    /// How long until another attempt, after one that failed.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether there is something that the API has not been told, or may not have been.
    pub(super) fn is_open(&self) -> bool {
        self.under_way.is_some() || self.not_before.is_some()
    }
}

impl Worker {
    /// Tells the API what is new about the pod, unless it is being told something; in a moment, if what there is to
    /// tell is about to change.
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
        // What was kept back once is not kept back for longer.
        let moment = if about_to_change { MOMENT } else { Duration::ZERO };
        let at = kept_back.unwrap_or_else(|| Instant::now() + moment);
        let taken = Arc::new(AtomicBool::new(!about_to_change));
        let (node, pod, result) = (self.node.clone(), self.pod.clone(), self.tell.clone());
        let claim = about_to_change.then(|| taken.clone());
        let task = tokio::spawn(async move {
            if let Some(claim) = claim {
                tokio::time::sleep_until(at).await;
                if claim.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
            let telling = Box::pin(tell(node.client.clone(), &node.reports, &pod, &changes));
            // A worker that is not told what became of its report would never make another.
            let told = node.supervisor.guard(POD_WORKER, telling).await;
            let told = told.unwrap_or_else(|panic| Told::Failed(panic.to_string()));
            // A worker that has ended need not know.
            let _ = result.send(Message::Told(told));
        });
        self.report.under_way = Some(UnderWay { at, taken, task: task.abort_handle() });
    }

    /// Takes what became of a report.
    pub(super) fn take_told(&mut self, told: Told) {
        self.report.under_way = None;
        match told {
            Told::Taken(pod) | Told::Changed(pod) => {
                self.report = Report::default();
                self.take_pod((*pod).into());
                self.count_told();
            }
            Told::Gone => {
                self.deleted = true;
                self.take_ending();
            }
            Told::Failed(error) => {
                self.report.failures = self.report.failures.saturating_add(1);
                let wait = DELAYS.after(self.report.failures);
                tracing::warn!(uid = self.uid, error, ?wait, "the API was not told how a pod stands");
                self.report.not_before = Some(Instant::now() + wait);
            }
        }
    }
}
