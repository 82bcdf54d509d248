//! Metrics of a reflector, as in client-go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};

use super::registered::Family;

/// Bounds of durations, in nanoseconds: 1 ms to 1000 s.
const DURATIONS: &[u64] =
    &[1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000, 1_000_000_000_000];
/// Bounds of numbers of objects.
const ITEMS: &[u64] = &[0, 1, 10, 100, 1_000, 10_000, 100_000];
/// A watch that ends within this time without any event is short: something ends watches that should continue.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// The metrics of one reflector.
#[derive(Debug)]
pub struct ReflectorMetrics {
    listed: Histogram,
    items_per_list: Histogram,
    watched: Histogram,
    items_per_watch: Histogram,
    lists: AtomicU64,
    watches: AtomicU64,
    short_watches: AtomicU64,
    last_resource_version: AtomicU64,
}

impl Default for ReflectorMetrics {
    fn default() -> Self {
        Self {
            listed: Histogram::new(Unit::Time, DURATIONS),
            items_per_list: Histogram::new(Unit::Number, ITEMS),
            watched: Histogram::new(Unit::Time, DURATIONS),
            items_per_watch: Histogram::new(Unit::Number, ITEMS),
            lists: AtomicU64::default(),
            watches: AtomicU64::default(),
            short_watches: AtomicU64::default(),
            last_resource_version: AtomicU64::default(),
        }
    }
}

impl ReflectorMetrics {
    /// Counts a requested list, whatever its result.
    pub fn listing(&self) {
        self.lists.fetch_add(1, Relaxed);
    }

    /// Counts a list that succeeded, all pages together.
    pub fn listed(&self, took: Duration, items: usize) {
        self.listed.observe_duration(took);
        self.items_per_list.observe(items as u64);
    }

    /// Counts a requested watch, whatever its result.
    pub fn watching(&self) {
        self.watches.fetch_add(1, Relaxed);
    }

    /// Counts a watch that ended after this many events.
    pub fn watched(&self, took: Duration, items: usize) {
        self.watched.observe_duration(took);
        self.items_per_watch.observe(items as u64);
        if took < SHORT_WATCH && items == 0 {
            self.short_watches.fetch_add(1, Relaxed);
        }
    }

    /// Sets the resource version that the reflector is at. One that is no number is none.
    pub fn set_last_resource_version(&self, version: &str) {
        self.last_resource_version.store(version.parse().unwrap_or_default(), Relaxed);
    }

    /// How many lists were requested.
    pub fn lists(&self) -> u64 {
        self.lists.load(Relaxed)
    }

    /// How many watches were requested.
    pub fn watches(&self) -> u64 {
        self.watches.load(Relaxed)
    }
}

pub(super) fn render(reflectors: &[(String, Arc<ReflectorMetrics>)], text: &mut Text) {
    if reflectors.is_empty() {
        return;
    }
    let counters: [Family<ReflectorMetrics, AtomicU64>; 3] = [
        ("reflector_lists_total", "lists that were requested", |metrics| &metrics.lists),
        ("reflector_watches_total", "watches that were requested", |metrics| &metrics.watches),
        (
            "reflector_short_watches_total",
            "watches that ended within a second without any event",
            |metrics| &metrics.short_watches,
        ),
    ];
    for (name, help, counter) in counters {
        text.counter(name, help);
        for (reflector, metrics) in reflectors {
            text.sample(name, &[("name", reflector)], counter(metrics).load(Relaxed));
        }
    }
    let histograms: [Family<ReflectorMetrics, Histogram>; 4] = [
        ("reflector_list_duration_seconds", "seconds that a list takes", |metrics| &metrics.listed),
        ("reflector_items_per_list", "objects that a list returns", |metrics| &metrics.items_per_list),
        ("reflector_watch_duration_seconds", "seconds that a watch lasts", |metrics| &metrics.watched),
        ("reflector_items_per_watch", "events that a watch returns", |metrics| &metrics.items_per_watch),
    ];
    for (name, help, histogram) in histograms {
        text.histogram(name, help);
        for (reflector, metrics) in reflectors {
            histogram(metrics).render(text, name, &[("name", reflector)], |_| true);
        }
    }
    let name = "reflector_last_resource_version";
    text.gauge(name, "resource version of the last object or bookmark that the reflector received");
    for (reflector, metrics) in reflectors {
        text.sample(name, &[("name", reflector)], metrics.last_resource_version.load(Relaxed));
    }
}
