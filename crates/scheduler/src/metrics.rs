//! What a scheduler counts, under the names that kube-scheduler gives it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};

use crate::planner::Planner;

/// Bounds that double, in nanoseconds: from 1 ms and from 10 ms.
const FROM_1_MS: &[u64] = &doubling::<15>(1_000_000);
const FROM_10_MS: &[u64] = &doubling::<20>(10_000_000);
/// Bounds that double, in pods or attempts.
const FROM_1: &[u64] = &doubling::<7>(1);

const fn doubling<const N: usize>(first: u64) -> [u64; N] {
    let mut bounds = [first; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The pod has a node.
    Scheduled,
    /// No node will do.
    Unschedulable,
    /// Something went wrong.
    Error,
}

impl Attempt {
    const ALL: [Self; 3] = [Self::Scheduled, Self::Unschedulable, Self::Error];

    const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// The figures of a scheduler.
#[derive(Debug)]
pub struct Metrics {
    attempts: [Histogram; 3],
    decisions: Histogram,
    waited: Histogram,
    tries: Histogram,
    victims: Histogram,
    preemptions: AtomicU64,
    /// Active, backing off, parked, gated.
    pending: [AtomicUsize; 4],
    /// Nodes, pods, pods that are being bound.
    known: [AtomicUsize; 3],
    toolkit: plumb_controller::metrics::Metrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            attempts: std::array::from_fn(|_| Histogram::new(Unit::Time, FROM_1_MS)),
            decisions: Histogram::new(Unit::Time, FROM_1_MS),
            waited: Histogram::new(Unit::Time, FROM_10_MS),
            tries: Histogram::new(Unit::Number, FROM_1),
            victims: Histogram::new(Unit::Number, FROM_1),
            preemptions: AtomicU64::new(0),
            pending: Default::default(),
            known: Default::default(),
            toolkit: plumb_controller::metrics::Metrics::default(),
        }
    }
}

impl Metrics {
    /// Those of a scheduler whose event recorder and reflectors count in a registry that other components share.
    pub fn with_toolkit(toolkit: plumb_controller::metrics::Metrics) -> Self {
        Self { toolkit, ..Self::default() }
    }

    /// What the event recorder and the reflectors count. [`Metrics::render`] leaves it out, since other components may share it.
    pub fn toolkit(&self) -> &plumb_controller::metrics::Metrics {
        &self.toolkit
    }

    /// A pod was decided about in this time.
    pub(crate) fn decided(&self, took: Duration) {
        self.decisions.observe_duration(took);
    }

    /// A pod was tried, and it took this long.
    pub(crate) fn tried(&self, attempt: Attempt, took: Duration) {
        self.attempts[attempt as usize].observe_duration(took);
    }

    /// A pod has got a node after so many attempts and so long.
    pub(crate) fn scheduled(&self, attempts: u32, waited: Duration) {
        self.tries.observe(attempts.into());
        self.waited.observe_duration(waited);
    }

    /// Others were looked for who could leave, and so many were found.
    pub(crate) fn preempted(&self, victims: usize) {
        self.preemptions.fetch_add(1, Relaxed);
        if victims > 0 {
            self.victims.observe(u64::try_from(victims).unwrap_or(u64::MAX));
        }
    }

    /// How much is known, and how much waits.
    pub(crate) fn note(&self, planner: &Planner) {
        let depths = planner.depths();
        let pending = [depths.active, depths.backing_off, depths.parked, depths.gated];
        pending.into_iter().zip(&self.pending).for_each(|(now, held)| held.store(now, Relaxed));
        let (nodes, pods, binding) = planner.size();
        [nodes, pods, binding].into_iter().zip(&self.known).for_each(|(now, held)| held.store(now, Relaxed));
    }

    /// Writes all of them.
    pub fn render(&self, text: &mut Text) {
        let profile = ("profile", "default-scheduler");
        let name = "scheduler_schedule_attempts_total";
        text.counter(name, "attempts to schedule pods, by what came of them");
        for attempt in Attempt::ALL {
            let labels = [profile, ("result", attempt.name())];
            text.sample(name, &labels, self.attempts[attempt as usize].count());
        }
        let name = "scheduler_scheduling_attempt_duration_seconds";
        text.histogram(name, "seconds that an attempt took, binding included");
        for attempt in Attempt::ALL {
            let labels = [profile, ("result", attempt.name())];
            self.attempts[attempt as usize].render(text, name, &labels, |_| true);
        }
        let plain = [
            (
                "scheduler_scheduling_algorithm_duration_seconds",
                "seconds that a decision took",
                &self.decisions,
            ),
            (
                "scheduler_pod_scheduling_sli_duration_seconds",
                "seconds from when a pod could be scheduled until it was",
                &self.waited,
            ),
            ("scheduler_pod_scheduling_attempts", "attempts until a pod was scheduled", &self.tries),
            ("scheduler_preemption_victims", "pods that had to leave for another", &self.victims),
        ];
        for (name, help, histogram) in plain {
            text.histogram(name, help);
            histogram.render(text, name, &[], |_| true);
        }
        let name = "scheduler_preemption_attempts_total";
        text.counter(name, "how many times pods were looked for that could leave for another");
        text.sample(name, &[], self.preemptions.load(Relaxed));
        let name = "scheduler_pending_pods";
        text.gauge(name, "pods that wait for a node, by the queue that they are in");
        for (queue, pods) in ["active", "backoff", "unschedulable", "gated"].into_iter().zip(&self.pending) {
            text.sample(name, &[("queue", queue)], pods.load(Relaxed));
        }
        let name = "scheduler_cache_size";
        text.gauge(name, "nodes, pods and pods being bound that the scheduler knows");
        for (kind, count) in ["nodes", "pods", "assumed_pods"].into_iter().zip(&self.known) {
            text.sample(name, &[("type", kind)], count.load(Relaxed));
        }
    }
}
