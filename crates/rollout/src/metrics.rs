//! Metrics of rollouts.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use plumb_metrics::{CounterVec, Histogram, Text, Unit};

use crate::engine::{Refusal, RolloutOutcome, StuckReason, UpdateResult};

/// From a tenth of a second to a day, in nanoseconds.
const BOUNDS: &[u64] = &seconds([1, 5, 10, 50, 100, 300, 600, 3_000, 6_000, 36_000, 864_000]);

const fn seconds<const N: usize>(mut tenths: [u64; N]) -> [u64; N] {
    let mut at = 0;
    while at < N {
        tenths[at] *= 100_000_000;
        at += 1;
    }
    tenths
}

/// The metrics of rollouts. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RolloutMetrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    resizes: CounterVec<1>,
    stuck: CounterVec<1>,
    finished: CounterVec<1>,
    evictions: CounterVec<0>,
    duration: Histogram,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            resizes: CounterVec::default(),
            stuck: CounterVec::default(),
            finished: CounterVec::default(),
            evictions: CounterVec::default(),
            duration: Histogram::new(Unit::Time, BOUNDS),
        }
    }
}

impl RolloutMetrics {
    /// Counts the result of the writes of a pod.
    pub(crate) fn updated(&self, result: &UpdateResult) {
        let label = match &result.error {
            Some(Refusal::Refused(reason, _)) => reason.name(),
            Some(_) => "Failed",
            None if result.vertical => "Accepted",
            None => return,
        };
        self.0.resizes.inc([label.into()]);
    }

    /// Counts a pod that is stuck.
    pub(crate) fn stuck(&self, reason: StuckReason) {
        self.0.stuck.inc([reason.name().into()]);
    }

    /// Counts an eviction.
    pub(crate) fn evicted(&self) {
        self.0.evictions.inc([]);
    }

    /// Counts a rollout that ended.
    pub(crate) fn finished(&self, outcome: RolloutOutcome, took: SignedDuration) {
        self.0.finished.inc([format!("{outcome:?}").into()]);
        self.0.duration.observe_duration(Duration::try_from(took).unwrap_or_default());
    }

    /// Writes all of them.
    pub fn render(&self, text: &mut Text) {
        let families = &*self.0;
        let help = "resizes that were sent to the API server, by what it answered";
        families.resizes.render(text, "plumb_rollout_resizes_total", help, ["result"]);
        let help = "pods that did not follow their template, by reason";
        families.stuck.render(text, "plumb_rollout_stuck_pods_total", help, ["reason"]);
        let help = "rollouts that ended, by outcome";
        families.finished.render(text, "plumb_rollout_finished_total", help, ["outcome"]);
        let help = "pods that were evicted because they could not be resized";
        families.evictions.render(text, "plumb_rollout_evictions_total", help, []);
        let name = "plumb_rollout_duration_seconds";
        text.histogram(name, "time from the edit of a template to the end of its rollout");
        families.duration.render(text, name, &[], |_| true);
    }
}
