//! Metrics of the updater, under upstream's names, and the durations of resizes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use plumb_controller_runtime::ObjectRef;
use plumb_metrics::{CounterVec, Histogram, Text, Unit};

/// The steps of a reconcile that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Finding the pods that are due.
    FilterPods,
    /// Asking whether the admission controller is alive.
    AdmissionInit,
    /// Changing pods.
    EvictPods,
    /// All of it.
    Total,
}

const STEPS: [(Step, &str); 4] = [
    (Step::FilterPods, "FilterPods"),
    (Step::AdmissionInit, "AdmissionInit"),
    (Step::EvictPods, "EvictPods"),
    (Step::Total, "total"),
];

/// Bounds of durations, in nanoseconds: from 100 µs for work in memory to 5 minutes.
const BOUNDS: &[u64] = &[
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
];

/// All metrics of an updater. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct UpdaterMetrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    vpas: Mutex<BTreeMap<ObjectRef, Series>>,
    status_invalid: CounterVec<1>,
    steps: [Histogram; STEPS.len()],
    resizes: Histogram,
    boosted_pods: AtomicUsize,
    boosted_restarts: AtomicU64,
    unboosted: CounterVec<1>,
    failed_unboosts: CounterVec<1>,
    unboost_delays: Histogram,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            vpas: Mutex::default(),
            status_invalid: CounterVec::default(),
            steps: std::array::from_fn(|_| Histogram::new(Unit::Time, BOUNDS)),
            resizes: Histogram::new(Unit::Time, BOUNDS),
            boosted_pods: AtomicUsize::default(),
            boosted_restarts: AtomicU64::default(),
            unboosted: CounterVec::default(),
            failed_unboosts: CounterVec::default(),
            unboost_delays: Histogram::new(Unit::Time, BOUNDS),
        }
    }
}

/// The metrics of a VPA. Its series end with it.
#[derive(Debug, Default)]
struct Series {
    gauges: Gauges,
    evicted: u64,
    updated: u64,
    skipped: u64,
    failed_evictions: BTreeMap<&'static str, u64>,
    failed_updates: BTreeMap<&'static str, u64>,
}

/// How the pods of a VPA stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// The update mode.
    pub mode: String,
    /// How many live pods there are.
    pub controlled: usize,
    /// How many of them are due in a mode that may evict.
    pub evictable: usize,
    /// How many of them are due in a mode that resizes in place.
    pub in_place_updatable: usize,
    /// How many wait, by the reason.
    pub waiting: BTreeMap<&'static str, usize>,
}

impl UpdaterMetrics {
    /// Sets how the pods of a VPA stand.
    pub fn set_vpa(&self, vpa: &ObjectRef, gauges: Gauges) {
        self.0.vpas.lock().entry(vpa.clone()).or_default().gauges = gauges;
    }

    /// Forgets a VPA.
    pub fn remove_vpa(&self, vpa: &ObjectRef) {
        self.0.vpas.lock().remove(vpa);
    }

    /// A pod was evicted.
    pub fn evicted(&self, vpa: &ObjectRef) {
        self.0.vpas.lock().entry(vpa.clone()).or_default().evicted += 1;
    }

    /// A pod was resized.
    pub fn updated(&self, vpa: &ObjectRef) {
        self.0.vpas.lock().entry(vpa.clone()).or_default().updated += 1;
    }

    /// A pod is not resized because its node cannot hold the recommendation.
    pub fn skipped(&self, vpa: &ObjectRef) {
        self.0.vpas.lock().entry(vpa.clone()).or_default().skipped += 1;
    }

    /// An eviction was refused.
    pub fn eviction_failed(&self, vpa: &ObjectRef, reason: &'static str) {
        *self.0.vpas.lock().entry(vpa.clone()).or_default().failed_evictions.entry(reason).or_default() += 1;
    }

    /// A resize was refused.
    pub fn update_failed(&self, vpa: &ObjectRef, reason: &'static str) {
        *self.0.vpas.lock().entry(vpa.clone()).or_default().failed_updates.entry(reason).or_default() += 1;
    }

    /// The lease of the admission controller could not be read, or was not renewed in time.
    pub fn admission_status_invalid(&self, reason: &'static str) {
        self.0.status_invalid.inc([reason.into()]);
    }

    /// A step took so long.
    pub fn step(&self, step: Step, took: Duration) {
        let at = STEPS.iter().position(|(one, _)| *one == step).unwrap_or_default();
        self.0.steps[at].observe_duration(took);
    }

    /// A resize was applied so long after it was sent.
    pub fn resized(&self, after: Duration) {
        self.0.resizes.observe_duration(after);
    }

    /// Sets the number of pods with a CPU start-up boost.
    pub fn set_boosted_pods(&self, count: usize) {
        self.0.boosted_pods.store(count, Relaxed);
    }

    /// A pod with a container that restarts was boosted.
    pub fn boosted_restart(&self) {
        self.0.boosted_restarts.fetch_add(1, Relaxed);
    }

    /// A pod was unboosted, so long after that was due because of `Ready` or `Deadline`.
    pub fn unboosted(&self, because: &'static str, after: Duration) {
        self.0.unboosted.inc([because.into()]);
        self.0.unboost_delays.observe_duration(after);
    }

    /// A boost could not be ended.
    pub fn unboost_failed(&self, reason: &'static str) {
        self.0.failed_unboosts.inc([reason.into()]);
    }

    /// How many pods of a VPA were resized and evicted.
    pub fn counts(&self, vpa: &ObjectRef) -> (u64, u64) {
        self.0.vpas.lock().get(vpa).map_or((0, 0), |series| (series.updated, series.evicted))
    }

    /// Writes all of them.
    pub fn render(&self, text: &mut Text) {
        self.render_gauges(text);
        self.render_counters(text);
        let families = &*self.0;
        let name = "vpa_updater_admission_controller_status_invalid_total";
        families.status_invalid.render(
            text,
            name,
            "how often the admission controller was not known to be alive, by reason",
            ["reason"],
        );
        let name = "vpa_updater_execution_latency_seconds";
        text.histogram(name, "seconds that the steps of a reconcile take");
        for ((_, step), histogram) in STEPS.iter().zip(&families.steps) {
            histogram.render(text, name, &[("step", step)], |_| true);
        }
        let name = "vpa_updater_resize_duration_seconds";
        text.histogram(name, "seconds from the patch of a pod until its node reports the resize as applied");
        families.resizes.render(text, name, &[], |_| true);
        self.render_boosts(text);
    }

    fn render_boosts(&self, text: &mut Text) {
        let families = &*self.0;
        let name = "vpa_updater_startup_boosted_pods";
        text.gauge(name, "pods with a CPU start-up boost");
        text.sample(name, &[], families.boosted_pods.load(Relaxed));
        let name = "vpa_updater_startup_boosted_restarts_total";
        text.counter(name, "pods with a container that was boosted because it restarted");
        text.sample(name, &[], families.boosted_restarts.load(Relaxed));
        let (name, help) =
            ("vpa_updater_unboosted_pods_total", "pods whose boost was ended, by what ended it");
        families.unboosted.render(text, name, help, ["reason"]);
        let name = "vpa_updater_failed_unboost_attempts_total";
        families.failed_unboosts.render(
            text,
            name,
            "boosts that could not be ended yet, by reason",
            ["reason"],
        );
        let name = "vpa_updater_unboost_delay_seconds";
        text.histogram(name, "seconds from when a boost was to end until the API server accepted the resize");
        families.unboost_delays.render(text, name, &[], |_| true);
    }

    fn render_gauges(&self, text: &mut Text) {
        let vpas = self.0.vpas.lock();
        let mut by_size_and_mode: BTreeMap<(u32, &str), [usize; 4]> = BTreeMap::new();
        let mut by_size: BTreeMap<u32, [usize; 3]> = BTreeMap::new();
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        for series in vpas.values() {
            let Gauges { mode, controlled, evictable, in_place_updatable, .. } = &series.gauges;
            let size = size_log2(*controlled);
            let sums = by_size_and_mode.entry((size, mode)).or_default();
            let one = |holds: bool| usize::from(holds);
            let own = [*controlled, *evictable, one(*evictable > 0), one(series.evicted > 0)];
            for (sum, own) in sums.iter_mut().zip(own) {
                *sum += own;
            }
            let own = [*in_place_updatable, one(*in_place_updatable > 0), one(series.updated > 0)];
            for (sum, own) in by_size.entry(size).or_default().iter_mut().zip(own) {
                *sum += own;
            }
            for (reason, count) in &series.gauges.waiting {
                *waiting.entry(reason).or_default() += count;
            }
        }
        let families = [
            ("vpa_updater_controlled_pods_total", "pods that a VPA controls"),
            ("vpa_updater_evictable_pods_total", "pods that are due in a mode that may evict"),
            (
                "vpa_updater_vpas_with_evictable_pods_total",
                "VPAs with pods that are due in a mode that may evict",
            ),
            ("vpa_updater_vpas_with_evicted_pods_total", "VPAs of which a pod was evicted"),
        ];
        for (at, (name, help)) in families.into_iter().enumerate() {
            text.gauge(name, help);
            for ((size, mode), sums) in &by_size_and_mode {
                text.sample(name, &[("vpa_size_log2", &size.to_string()), ("update_mode", mode)], sums[at]);
            }
        }
        let families = [
            (
                "vpa_updater_in_place_updatable_pods_total",
                "pods that are due in a mode that resizes in place",
            ),
            (
                "vpa_updater_vpas_with_in_place_updatable_pods_total",
                "VPAs with pods that are due in a mode that resizes in place",
            ),
            ("vpa_updater_vpas_with_in_place_updated_pods_total", "VPAs of which a pod was resized"),
        ];
        for (at, (name, help)) in families.into_iter().enumerate() {
            text.gauge(name, help);
            for (size, sums) in &by_size {
                text.sample(name, &[("vpa_size_log2", &size.to_string())], sums[at]);
            }
        }
        let name = "vpa_updater_waiting_pods";
        text.gauge(name, "pods that wait for an update, by what they wait for");
        for (reason, count) in waiting {
            text.sample(name, &[("reason", reason)], count);
        }
    }

    fn render_counters(&self, text: &mut Text) {
        let vpas = self.0.vpas.lock();
        let families: [Counter; 3] = [
            ("vpa_updater_evicted_pods_total", "pods that were evicted", |series| series.evicted, true),
            (
                "vpa_updater_in_place_updated_pods_total",
                "pods that were resized",
                |series| series.updated,
                false,
            ),
            (
                "vpa_updater_in_place_infeasible_skip_pods_total",
                "pods that were not resized because their node cannot hold the recommendation",
                |series| series.skipped,
                false,
            ),
        ];
        for (name, help, count, has_mode) in families {
            text.counter(name, help);
            for (vpa, series) in vpas.iter() {
                let size = size_log2(series.gauges.controlled).to_string();
                text.sample(name, &labels(vpa, series, &size, has_mode), count(series));
            }
        }
        let families: [Failures; 2] = [
            (
                "vpa_updater_failed_eviction_attempts_total",
                "evictions that were refused, by reason",
                |series| &series.failed_evictions,
                true,
            ),
            (
                "vpa_updater_failed_in_place_update_attempts_total",
                "resizes that were refused, by reason",
                |series| &series.failed_updates,
                false,
            ),
        ];
        for (name, help, failures, has_mode) in families {
            text.counter(name, help);
            for (vpa, series) in vpas.iter() {
                let size = size_log2(series.gauges.controlled).to_string();
                let labels = labels(vpa, series, &size, has_mode);
                for (reason, count) in failures(series) {
                    let labels = [&labels[..], &[("reason", *reason)]].concat();
                    text.sample(name, &labels, count);
                }
            }
        }
    }
}

/// The name of a family of counters, its help text, the counter of a VPA, and whether it is by update mode.
type Counter = (&'static str, &'static str, fn(&Series) -> u64, bool);
/// The name of a family of failures, what it means, where a VPA counts them by reason, and whether it is by update mode.
type Failures = (&'static str, &'static str, fn(&Series) -> &BTreeMap<&'static str, u64>, bool);

/// The labels of the counters of a VPA.
fn labels<'a>(
    vpa: &'a ObjectRef,
    series: &'a Series,
    size: &'a str,
    has_mode: bool,
) -> Vec<(&'static str, &'a str)> {
    let mode = has_mode.then_some(("update_mode", &*series.gauges.mode));
    let size = [("vpa_size_log2", size)].into_iter();
    size.chain(mode).chain([("vpa_name", &*vpa.name), ("vpa_namespace", &*vpa.namespace)]).collect()
}

/// The logarithm of a number of pods to the base two, rounded down.
fn size_log2(pods: usize) -> u32 {
    pods.checked_ilog2().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_vpa_have_the_labels_that_upstream_gives_them() {
        let (metrics, vpa) = (UpdaterMetrics::default(), ObjectRef::namespaced("shop", "web"));
        let gauges = Gauges { mode: "Recreate".to_owned(), controlled: 4, ..Gauges::default() };
        metrics.set_vpa(&vpa, gauges);
        metrics.evicted(&vpa);
        metrics.updated(&vpa);
        metrics.skipped(&vpa);
        metrics.eviction_failed(&vpa, "EvictionError");
        metrics.update_failed(&vpa, "InPlaceUpdateError");
        let mut text = Text::default();
        metrics.render(&mut text);
        let text = text.finish();
        let (size, mode) = (r#"vpa_size_log2="2""#, r#"update_mode="Recreate""#);
        let of = r#"vpa_name="web",vpa_namespace="shop""#;
        for series in [
            format!("evicted_pods_total{{{size},{mode},{of}}}"),
            format!("in_place_updated_pods_total{{{size},{of}}}"),
            format!("in_place_infeasible_skip_pods_total{{{size},{of}}}"),
            format!(r#"failed_eviction_attempts_total{{{size},{mode},{of},reason="EvictionError"}}"#),
            format!(r#"failed_in_place_update_attempts_total{{{size},{of},reason="InPlaceUpdateError"}}"#),
        ] {
            assert!(text.contains(&format!("vpa_updater_{series} 1\n")), "{series}\n{text}");
        }
    }
}
