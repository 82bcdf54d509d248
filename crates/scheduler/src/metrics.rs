//! The metrics of the scheduler, with the names of kube-scheduler.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};

use crate::planner::Planner;

/// Bounds of buckets that double, in nanoseconds: from 1 ms and from 10 ms.
const FROM_1_MS: &[u64] = &doubling::<15>(1_000_000);
const FROM_10_MS: &[u64] = &doubling::<20>(10_000_000);
/// Bounds of buckets that double, in pods or attempts.
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

/// The result of a scheduling attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The pod is bound.
    Scheduled,
    /// No node is feasible.
    Unschedulable,
    /// The binding failed.
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

/// The metrics of a scheduler.
#[derive(Debug)]
pub struct Metrics {
    attempts: [Histogram; 3],
    algorithm_duration: Histogram,
    sli_duration: Histogram,
    attempts_per_pod: Histogram,
    victims: Histogram,
    preemptions: AtomicU64,
    set_aside: AtomicU64,
    /// Active, backing off, unschedulable, gated.
    pending: [AtomicUsize; 4],
    /// Nodes, pods, assumed pods.
    cache_size: [AtomicUsize; 3],
    toolkit: plumb_controller_runtime::metrics::Metrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            attempts: std::array::from_fn(|_| Histogram::new(Unit::Time, FROM_1_MS)),
            algorithm_duration: Histogram::new(Unit::Time, FROM_1_MS),
            sli_duration: Histogram::new(Unit::Time, FROM_10_MS),
            attempts_per_pod: Histogram::new(Unit::Number, FROM_1),
            victims: Histogram::new(Unit::Number, FROM_1),
            preemptions: AtomicU64::new(0),
            set_aside: AtomicU64::new(0),
            pending: Default::default(),
            cache_size: Default::default(),
            toolkit: plumb_controller_runtime::metrics::Metrics::default(),
        }
    }
}

impl Metrics {
    /// The metrics of a scheduler whose event recorder and reflectors count in a registry that other components share.
    pub fn with_toolkit(toolkit: plumb_controller_runtime::metrics::Metrics) -> Self {
        Self { toolkit, ..Self::default() }
    }

    /// What the event recorder and the reflectors count. [`Metrics::render`] leaves it out, since other components may share it.
    pub fn toolkit(&self) -> &plumb_controller_runtime::metrics::Metrics {
        &self.toolkit
    }

    /// Observes the duration of a decision.
    pub(crate) fn observe_algorithm(&self, took: Duration) {
        self.algorithm_duration.observe_duration(took);
    }

    /// Observes the duration of an attempt.
    pub(crate) fn observe_attempt(&self, attempt: Attempt, took: Duration) {
        self.attempts[attempt as usize].observe_duration(took);
    }

    /// Observes a pod that was bound: its attempts, and the time since it was added to the queue.
    pub(crate) fn observe_scheduled(&self, attempts: u32, sli_duration: Duration) {
        self.attempts_per_pod.observe(attempts.into());
        self.sli_duration.observe_duration(sli_duration);
    }

    /// Observes an attempt to preempt pods.
    pub(crate) fn observe_preemption(&self, victims: usize) {
        self.preemptions.fetch_add(1, Relaxed);
        if victims > 0 {
            self.victims.observe(u64::try_from(victims).unwrap_or(u64::MAX));
        }
    }

    /// Counts a pod that is set aside after a panic.
    pub(crate) fn count_set_aside(&self) {
        self.set_aside.fetch_add(1, Relaxed);
    }

    /// Updates the sizes of queue and cache.
    pub(crate) fn update_gauges(&self, planner: &Planner) {
        let depths = planner.depths();
        let pending = [depths.active, depths.backing_off, depths.unschedulable, depths.gated];
        pending.into_iter().zip(&self.pending).for_each(|(value, gauge)| gauge.store(value, Relaxed));
        let (nodes, pods, binding) = planner.size();
        [nodes, pods, binding]
            .into_iter()
            .zip(&self.cache_size)
            .for_each(|(value, gauge)| gauge.store(value, Relaxed));
    }

    /// Renders all metrics.
    pub fn render(&self, text: &mut Text) {
        let profile = ("profile", "default-scheduler");
        let name = "scheduler_schedule_attempts_total";
        text.counter(name, "attempts to schedule pods, by result");
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
                &self.algorithm_duration,
            ),
            (
                "scheduler_pod_scheduling_sli_duration_seconds",
                "seconds from when a pod could be scheduled until it was",
                &self.sli_duration,
            ),
            (
                "scheduler_pod_scheduling_attempts",
                "attempts until a pod was scheduled",
                &self.attempts_per_pod,
            ),
            ("scheduler_preemption_victims", "victims of a preemption", &self.victims),
        ];
        for (name, help, histogram) in plain {
            text.histogram(name, help);
            histogram.render(text, name, &[], |_| true);
        }
        let name = "scheduler_preemption_attempts_total";
        text.counter(name, "attempts to preempt pods");
        text.sample(name, &[], self.preemptions.load(Relaxed));
        let name = "plumb_scheduler_pods_set_aside_total";
        text.counter(name, "pods that were set aside because the scheduler panicked at them");
        text.sample(name, &[], self.set_aside.load(Relaxed));
        let name = "scheduler_pending_pods";
        text.gauge(name, "pending pods, by queue");
        for (queue, pods) in ["active", "backoff", "unschedulable", "gated"].into_iter().zip(&self.pending) {
            text.sample(name, &[("queue", queue)], pods.load(Relaxed));
        }
        let name = "scheduler_cache_size";
        text.gauge(name, "nodes, pods and assumed pods in the scheduler cache");
        for (kind, count) in ["nodes", "pods", "assumed_pods"].into_iter().zip(&self.cache_size) {
            text.sample(name, &[("type", kind)], count.load(Relaxed));
        }
    }
}
