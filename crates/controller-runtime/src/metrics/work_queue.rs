//! Metrics of a work queue, as in client-go's `workqueue`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use plumb_metrics::{Histogram, Text, Unit, nanoseconds, seconds};
use tokio::time::Instant;

/// client-go's bounds, in nanoseconds: 10 ns to 10 s.
const BOUNDS: &[u64] =
    &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// The metrics of one work queue.
#[derive(Debug)]
pub struct WorkQueueMetrics {
    depth: AtomicUsize,
    adds: AtomicU64,
    retries: AtomicU64,
    queued: Histogram,
    worked: Histogram,
    processing: Mutex<BTreeMap<u64, Instant>>,
    last: AtomicU64,
}

impl Default for WorkQueueMetrics {
    fn default() -> Self {
        Self {
            depth: AtomicUsize::default(),
            adds: AtomicU64::default(),
            retries: AtomicU64::default(),
            queued: Histogram::new(Unit::Time, BOUNDS),
            worked: Histogram::new(Unit::Time, BOUNDS),
            processing: Mutex::default(),
            last: AtomicU64::default(),
        }
    }
}

impl WorkQueueMetrics {
    /// Counts an item that was added and was not queued yet; so many are queued now.
    pub fn added(&self, depth: usize) {
        self.adds.fetch_add(1, Relaxed);
        self.depth.store(depth, Relaxed);
    }

    /// Counts an item that was requeued with a rate limit.
    pub fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Counts an item that a worker took after it was queued for so long; so many are queued now. The item is processed
    /// until what is returned is dropped.
    pub fn started(self: &Arc<Self>, queued: Duration, depth: usize) -> Processing {
        self.depth.store(depth, Relaxed);
        self.queued.observe_duration(queued);
        let (id, started) = (self.last.fetch_add(1, Relaxed), Instant::now());
        self.processing.lock().insert(id, started);
        Processing { metrics: self.clone(), id, started }
    }

    /// How long the items that are processed are processed already: the sum, and the longest.
    fn unfinished(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let processing = self.processing.lock();
        let each = processing.values().map(|started| now.saturating_duration_since(*started));
        each.fold(Default::default(), |(sum, longest): (Duration, Duration), one| {
            (sum.saturating_add(one), longest.max(one))
        })
    }
}

/// An item that a worker processes.
#[derive(Debug)]
#[must_use = "the item counts as processed when this is dropped"]
pub struct Processing {
    metrics: Arc<WorkQueueMetrics>,
    id: u64,
    started: Instant,
}

impl Drop for Processing {
    fn drop(&mut self) {
        self.metrics.processing.lock().remove(&self.id);
        self.metrics.worked.observe_duration(self.started.elapsed());
    }
}

pub(super) fn render(queues: &[(String, Arc<WorkQueueMetrics>)], text: &mut Text) {
    if queues.is_empty() {
        return;
    }
    let name = "workqueue_depth";
    text.gauge(name, "items that are queued");
    for (queue, metrics) in queues {
        text.sample(name, &[("name", queue)], metrics.depth.load(Relaxed));
    }
    let name = "workqueue_adds_total";
    text.counter(name, "items that were added");
    for (queue, metrics) in queues {
        text.sample(name, &[("name", queue)], metrics.adds.load(Relaxed));
    }
    let name = "workqueue_retries_total";
    text.counter(name, "items that were requeued with a rate limit");
    for (queue, metrics) in queues {
        text.sample(name, &[("name", queue)], metrics.retries.load(Relaxed));
    }
    let name = "workqueue_queue_duration_seconds";
    text.histogram(name, "seconds that an item is queued before a worker takes it");
    for (queue, metrics) in queues {
        metrics.queued.render(text, name, &[("name", queue)], |_| true);
    }
    let name = "workqueue_work_duration_seconds";
    text.histogram(name, "seconds that a worker takes to process an item");
    for (queue, metrics) in queues {
        metrics.worked.render(text, name, &[("name", queue)], |_| true);
    }
    let unfinished: Vec<_> = queues.iter().map(|(queue, metrics)| (queue, metrics.unfinished())).collect();
    let name = "workqueue_unfinished_work_seconds";
    text.gauge(name, "seconds that workers have spent on items that they still process");
    for (queue, (sum, _)) in &unfinished {
        text.sample(name, &[("name", queue)], seconds(nanoseconds(*sum)));
    }
    let name = "workqueue_longest_running_processor_seconds";
    text.gauge(name, "seconds that the slowest worker has spent on the item that it processes");
    for (queue, (_, longest)) in &unfinished {
        text.sample(name, &[("name", queue)], seconds(nanoseconds(*longest)));
    }
}
