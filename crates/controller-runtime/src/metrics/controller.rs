//! Metrics of the reconciles of a controller, as in controller-runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use plumb_metrics::{Histogram, Text, Unit};
use tokio::time::Instant;

use super::registered::Family;

/// controller-runtime's bounds, in milliseconds.
const MILLISECONDS: [u64; 35] = [
    5, 10, 25, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1_000, 1_250, 1_500,
    1_750, 2_000, 2_500, 3_000, 3_500, 4_000, 4_500, 5_000, 6_000, 7_000, 8_000, 9_000, 10_000, 30_000,
    60_000,
];
/// The same in nanoseconds.
const BOUNDS: &[u64] = &{
    let mut bounds = MILLISECONDS;
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] *= 1_000_000;
        at += 1;
    }
    bounds
};

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// No reconcile is needed until something changes.
    Success,
    /// It is requeued with a rate limit though it did not fail.
    Requeue,
    /// It is requeued for a certain time.
    RequeueAfter,
    /// It failed and is requeued with a rate limit.
    Error,
    /// It failed in a way that no retry helps against.
    TerminalError,
    /// It panicked.
    Panic,
}

/// The results as metrics name them. An error that no retry helps against, and a panic, are errors.
const RESULTS: [&str; 4] = ["success", "requeue", "requeue_after", "error"];

impl ReconcileResult {
    const fn index(self) -> usize {
        match self {
            Self::Success => 0,
            Self::Requeue => 1,
            Self::RequeueAfter => 2,
            Self::Error | Self::TerminalError | Self::Panic => 3,
        }
    }
}

/// The metrics of one controller.
#[derive(Debug)]
pub struct ControllerMetrics {
    results: [AtomicU64; RESULTS.len()],
    terminal_errors: AtomicU64,
    panics: AtomicU64,
    active_workers: AtomicUsize,
    max_concurrent: AtomicUsize,
    took: Histogram,
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self {
            results: Default::default(),
            terminal_errors: AtomicU64::default(),
            panics: AtomicU64::default(),
            active_workers: AtomicUsize::default(),
            max_concurrent: AtomicUsize::default(),
            took: Histogram::new(Unit::Time, BOUNDS),
        }
    }
}

impl ControllerMetrics {
    /// Sets how many objects are reconciled at once at most.
    pub fn set_max_concurrent_reconciles(&self, workers: usize) {
        self.max_concurrent.store(workers, Relaxed);
    }

    /// Counts a worker as active until the reconcile is finished, or what is returned is dropped.
    pub fn reconciling(self: &Arc<Self>) -> Reconciling {
        self.active_workers.fetch_add(1, Relaxed);
        Reconciling { metrics: self.clone(), started: Instant::now() }
    }

    /// How often reconciles ended with this result, or with one that counts as the same.
    pub fn count(&self, result: ReconcileResult) -> u64 {
        self.results[result.index()].load(Relaxed)
    }

    /// How many reconciles panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}

/// A reconcile that runs. If it is cancelled it has no result.
#[derive(Debug)]
#[must_use = "the worker counts as active until this is dropped"]
pub struct Reconciling {
    metrics: Arc<ControllerMetrics>,
    started: Instant,
}

impl Reconciling {
    /// Counts how the reconcile ended.
    pub fn finish(self, result: ReconcileResult) {
        let metrics = &self.metrics;
        metrics.results[result.index()].fetch_add(1, Relaxed);
        metrics.terminal_errors.fetch_add((result == ReconcileResult::TerminalError).into(), Relaxed);
        metrics.panics.fetch_add((result == ReconcileResult::Panic).into(), Relaxed);
        metrics.took.observe_duration(self.started.elapsed());
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        self.metrics.active_workers.fetch_sub(1, Relaxed);
    }
}

pub(super) fn render(controllers: &[(String, Arc<ControllerMetrics>)], text: &mut Text) {
    if controllers.is_empty() {
        return;
    }
    let name = "controller_runtime_reconcile_total";
    text.counter(name, "reconciles by result");
    for (controller, metrics) in controllers {
        for (result, count) in RESULTS.into_iter().zip(&metrics.results) {
            text.sample(name, &[("controller", controller), ("result", result)], count.load(Relaxed));
        }
    }
    let counters: [Family<ControllerMetrics, AtomicU64>; 3] = [
        ("controller_runtime_reconcile_errors_total", "reconciles that failed", |metrics| {
            &metrics.results[ReconcileResult::Error.index()]
        }),
        (
            "controller_runtime_terminal_reconcile_errors_total",
            "reconciles that failed in a way that no retry helps against",
            |metrics| &metrics.terminal_errors,
        ),
        ("controller_runtime_reconcile_panics_total", "reconciles that panicked", |metrics| &metrics.panics),
    ];
    for (name, help, counter) in counters {
        text.counter(name, help);
        for (controller, metrics) in controllers {
            text.sample(name, &[("controller", controller)], counter(metrics).load(Relaxed));
        }
    }
    let name = "controller_runtime_reconcile_time_seconds";
    text.histogram(name, "seconds that a reconcile takes");
    for (controller, metrics) in controllers {
        metrics.took.render(text, name, &[("controller", controller)], |_| true);
    }
    let name = "controller_runtime_max_concurrent_reconciles";
    text.gauge(name, "objects that are reconciled at once at most");
    for (controller, metrics) in controllers {
        text.sample(name, &[("controller", controller)], metrics.max_concurrent.load(Relaxed));
    }
    let name = "controller_runtime_active_workers";
    text.gauge(name, "workers that reconcile");
    for (controller, metrics) in controllers {
        text.sample(name, &[("controller", controller)], metrics.active_workers.load(Relaxed));
    }
}
