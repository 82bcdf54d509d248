//! How long the steps of the recommender's loop take.

use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};
use tokio::time::Instant;

use super::RecommenderMetrics;

/// Upstream's bounds, in nanoseconds.
const BOUNDS: &[u64] = &milliseconds([
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000,
    80_000, 90_000, 100_000, 120_000, 150_000, 240_000, 300_000,
]);

/// The same numbers in nanoseconds.
pub(super) const fn milliseconds<const N: usize>(mut bounds: [u64; N]) -> [u64; N] {
    let mut at = 0;
    while at < N {
        bounds[at] *= 1_000_000;
        at += 1;
    }
    bounds
}

/// A step of the loop, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// VPAs and their targets.
    LoadVpas,
    /// Pods.
    LoadPods,
    /// Samples of usage and OOM kills.
    LoadMetrics,
    /// Pods that were deleted since the last run.
    DeleteRemovedPods,
    /// Recommendations, and the status of VPAs.
    UpdateVpas,
    /// Checkpoints.
    MaintainCheckpoints,
    /// Aggregates that have expired.
    GarbageCollect,
    /// All of them together.
    Total,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::LoadVpas,
        Self::LoadPods,
        Self::LoadMetrics,
        Self::DeleteRemovedPods,
        Self::UpdateVpas,
        Self::MaintainCheckpoints,
        Self::GarbageCollect,
        Self::Total,
    ];

    /// The value of the label `step`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoadVpas => "LoadVPAs",
            Self::LoadPods => "LoadPods",
            Self::LoadMetrics => "LoadMetrics",
            Self::DeleteRemovedPods => "DeleteRemovedPods",
            Self::UpdateVpas => "UpdateVPAs",
            Self::MaintainCheckpoints => "MaintainCheckpoints",
            Self::GarbageCollect => "GarbageCollect",
            Self::Total => "total",
        }
    }
}

#[derive(Debug)]
pub(super) struct StepMetrics([Histogram; Step::ALL.len()]);

impl Default for StepMetrics {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(Unit::Time, BOUNDS)))
    }
}

impl StepMetrics {
    fn observe(&self, step: Step, took: Duration) {
        self.0[step as usize].observe_duration(took);
    }

    pub(super) fn render(&self, text: &mut Text) {
        let name = "vpa_recommender_execution_latency_seconds";
        text.histogram(name, "time that the steps of the recommender's loop take");
        for (step, histogram) in Step::ALL.into_iter().zip(&self.0) {
            histogram.render(text, name, &[("step", step.name())], |_| true);
        }
    }
}

/// Measures the steps of one run.
#[derive(Debug)]
pub struct StepTimer {
    metrics: RecommenderMetrics,
    started: Instant,
    last: Instant,
}

impl StepTimer {
    pub(super) fn new(metrics: RecommenderMetrics) -> Self {
        let now = Instant::now();
        Self { metrics, started: now, last: now }
    }

    /// Counts the time since the step before as the time of this one.
    pub fn step(&mut self, step: Step) {
        let now = Instant::now();
        self.metrics.steps().observe(step, now - self.last);
        self.last = now;
    }

    /// Counts the whole run.
    pub fn finish(self) {
        self.metrics.steps().observe(Step::Total, self.started.elapsed());
    }
}
