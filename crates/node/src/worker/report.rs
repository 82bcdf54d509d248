//! Telling the API how the pod stands: one report at a time, and never waited for.

use std::time::Duration;

use plumb_resize::pod::PodResources;
use tokio::time::Instant;

use super::{Message, Parts, Worker, wait_after};
use crate::lifecycle::Phase;
use crate::publish::{Told, changes, tell};
use crate::status::compose;

/// How telling the API goes.
#[derive(Debug, Default)]
pub(super) struct Report {
    under_way: bool,
    failures: u32,
    not_before: Option<Instant>,
}

impl Report {
    /// How long until another attempt, after one that failed.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether there is something that the API has not been told, or may not have been.
    pub(super) fn is_open(&self) -> bool {
        self.under_way || self.not_before.is_some()
    }
}

impl Worker {
    /// Tells the API what is new about the pod, unless it is being told something.
    pub(super) fn publish(&mut self, phase: Phase, actual: &PodResources) {
        let wait = self.report.not_before.is_some_and(|at| at > Instant::now());
        if self.report.under_way || self.deleted || wait {
            return;
        }
        let (health, waiting) = (self.health(), self.waiting());
        let status = compose(self.known(Parts { health: &health, waiting: &waiting, phase, actual }));
        let Some(changes) = changes(self.pod.status.as_ref(), &status) else {
            self.report = Report::default();
            return;
        };
        self.report.under_way = true;
        let (client, pod, answer) = (self.node.client.clone(), self.pod.clone(), self.tell.clone());
        tokio::spawn(async move {
            let told = tell(client, &pod, changes).await;
            // A worker that has ended need not know.
            let _ = answer.send(Message::Told(told));
        });
    }

    /// Takes what became of a report.
    pub(super) fn take_told(&mut self, told: Told) {
        self.report.under_way = false;
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
                let wait = wait_after(self.report.failures);
                tracing::warn!(uid = self.uid, error, ?wait, "the API was not told how a pod stands");
                self.report.not_before = Some(Instant::now() + wait);
            }
        }
    }
}
