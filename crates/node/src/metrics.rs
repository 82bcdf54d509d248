//! The agent's metrics, under the kubelet's names.

mod probes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use plumb_metrics::{CounterVec, Histogram, LabelValue, Text, Unit};
use plumb_resize::resource::{PerResource, Resource};

use probes::ProbeSeries;
pub use probes::ProbedContainer;

use crate::probe::Kind;

/// Bounds of how long it takes to carry out a resize, in milliseconds.
const ACTUATION: &[u64] =
    &[10, 50, 100, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000];
/// Bounds of how long a resize takes altogether, in nanoseconds: from half a millisecond on.
const ALTOGETHER: &[u64] = &[
    500_000,
    1_000_000,
    2_000_000,
    4_000_000,
    8_000_000,
    16_000_000,
    32_000_000,
    64_000_000,
    128_000_000,
    256_000_000,
    512_000_000,
    1_024_000_000,
    4_096_000_000,
    16_384_000_000,
    65_536_000_000,
];
/// Bounds of the age of an observation, in nanoseconds: the default buckets of Prometheus.
const STATS_AGES: &[u64] = &[
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
];
/// Bounds of how long the runtime takes, in nanoseconds: the kubelet's.
const OPERATIONS: &[u64] = &[
    5_000_000,
    12_500_000,
    31_250_000,
    78_125_000,
    195_312_500,
    488_281_250,
    1_220_703_125,
    3_051_757_812,
    7_629_394_531,
    19_073_486_328,
    47_683_715_820,
    119_209_289_550,
    298_023_223_876,
    745_058_059_692,
];

/// Why a resize is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// It does not fit now.
    Deferred,
    /// It never fits.
    Infeasible,
}

/// The result of an attempt to raise a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthResult {
    /// The limit was raised.
    Grown,
    /// The API server refused it.
    Refused,
    /// The API server could not be reached in time.
    Failed,
    /// The node has nothing left.
    NodeFull,
    /// The node has no idle CPU.
    NodeBusy,
}

impl GrowthResult {
    const fn name(self) -> &'static str {
        match self {
            Self::Grown => "grown",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::NodeFull => "node_full",
            Self::NodeBusy => "node_busy",
        }
    }
}

/// The agent's metrics. Several nodes of one process may share them.
pub struct Metrics {
    requested: CounterVec<3>,
    infeasible: CounterVec<1>,
    deferred_accepted: CounterVec<1>,
    probes: CounterVec<2>,
    probes_by_container: ProbeSeries,
    deferred: AtomicI64,
    hopeless: AtomicI64,
    in_progress: AtomicI64,
    actuated: [Histogram; 2],
    altogether: Histogram,
    growths: PerResource<CounterVec<1>>,
    growth_took: PerResource<Histogram>,
    operations: Mutex<BTreeMap<&'static str, Operation>>,
    evictions: CounterVec<1>,
    eviction_stats_ages: Mutex<BTreeMap<&'static str, Histogram>>,
    toolkit: plumb_controller_runtime::metrics::Metrics,
}

struct Operation {
    took: Histogram,
    errors: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requested: CounterVec::default(),
            infeasible: CounterVec::default(),
            deferred_accepted: CounterVec::default(),
            probes: CounterVec::default(),
            probes_by_container: ProbeSeries::default(),
            deferred: AtomicI64::default(),
            hopeless: AtomicI64::default(),
            in_progress: AtomicI64::default(),
            actuated: [Histogram::new(Unit::Number, ACTUATION), Histogram::new(Unit::Number, ACTUATION)],
            altogether: Histogram::new(Unit::Time, ALTOGETHER),
            growths: PerResource::default(),
            growth_took: PerResource::of(|_| Histogram::new(Unit::Time, ALTOGETHER)),
            operations: Mutex::default(),
            evictions: CounterVec::default(),
            eviction_stats_ages: Mutex::default(),
            toolkit: plumb_controller_runtime::metrics::Metrics::default(),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The metrics of the controller toolkit in the agent: of its event recorder and its reflectors.
    pub fn toolkit(&self) -> &plumb_controller_runtime::metrics::Metrics {
        &self.toolkit
    }

    /// A resize was requested: `requests` or `limits` of `cpu` or `memory`, to `add`, `remove`, `increase` or `decrease`.
    pub fn requested(&self, resource: &'static str, requirement: &'static str, operation: &'static str) {
        self.requested.inc([resource.into(), requirement.into(), operation.into()]);
    }

    /// A resize is infeasible, for this reason.
    pub fn infeasible(&self, detail: impl Into<LabelValue>) {
        self.infeasible.inc([detail.into()]);
    }

    /// A deferred resize was accepted, with this trigger.
    pub fn deferred_accepted(&self, trigger: impl Into<LabelValue>) {
        self.deferred_accepted.inc([trigger.into()]);
    }

    /// The pending state of a pod's resize changed.
    pub fn pending(&self, before: Option<Pending>, now: Option<Pending>) {
        let gauge = |pending| match pending {
            Pending::Deferred => &self.deferred,
            Pending::Infeasible => &self.hopeless,
        };
        if let Some(before) = before {
            gauge(before).fetch_sub(1, Relaxed);
        }
        if let Some(now) = now {
            gauge(now).fetch_add(1, Relaxed);
        }
    }

    /// The actuation of a pod's resize begins, or ends.
    pub fn in_progress(&self, begins: bool) {
        self.in_progress.fetch_add(if begins { 1 } else { -1 }, Relaxed);
    }

    /// A plan was actuated, or failed, after this time.
    pub fn actuated(&self, success: bool, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.actuated[usize::from(success)].observe(millis);
    }

    /// A resize is completed and reported, this long after the node received it.
    pub fn end_to_end(&self, took: Duration) {
        self.altogether.observe_duration(took);
    }

    /// A container came near its memory limit, or was throttled at its CPU limit, with this result.
    pub fn growth(&self, resource: Resource, result: GrowthResult) {
        self.growths[resource].inc([result.name().into()]);
    }

    /// A limit was raised this long after the notification that memory usage is near it, or the last sample of throttling.
    pub fn growth_took(&self, resource: Resource, took: Duration) {
        self.growth_took[resource].observe_duration(took);
    }

    /// A probe of a container has a result: `successful`, `failed` or `unknown`.
    pub fn probed(&self, container: ProbedContainer, kind: Kind, result: &'static str) {
        self.probes_by_container.count(container, kind, result);
        self.probes.inc([kind.name().into(), result.into()]);
    }

    /// A pod was removed from the node: its probes are not reported any more.
    pub fn remove_probes(&self, uid: &str) {
        self.probes_by_container.remove(uid);
    }

    /// The results of probes by container, in the text format.
    pub fn render_probes(&self) -> String {
        self.probes_by_container.render()
    }

    /// A runtime operation, by the kubelet's name such as `update_container`.
    pub fn operation(&self, name: &'static str, took: Duration, well: bool) {
        let mut operations = self.operations.lock();
        let operation = operations
            .entry(name)
            .or_insert_with(|| Operation { took: Histogram::new(Unit::Time, OPERATIONS), errors: 0 });
        operation.took.observe_duration(took);
        operation.errors += u64::from(!well);
    }

    /// A pod was evicted for this signal, such as `memory.available`, or because it exceeded this limit.
    pub fn evicted(&self, signal: &'static str) {
        self.evictions.inc([signal.into()]);
    }

    /// A pod is evicted for this signal, which was observed so long ago.
    pub fn eviction_stats_age(&self, signal: &'static str, age: Duration) {
        let mut ages = self.eviction_stats_ages.lock();
        let histogram = ages.entry(signal).or_insert_with(|| Histogram::new(Unit::Time, STATS_AGES));
        histogram.observe_duration(age);
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        let mut text = Text::default();
        self.resizes(&mut text);
        self.operations(&mut text);
        self.evictions(&mut text);
        let labels = ["probe_type", "result"];
        self.probes.render(&mut text, "prober_probe_total", "probes by what they asked and answered", labels);
        self.toolkit.render(&mut text);
        text.finish()
    }

    fn resizes(&self, text: &mut Text) {
        self.requested.render(
            text,
            "kubelet_container_requested_resizes_total",
            "changes of requests and limits that were asked for",
            ["resource", "requirement", "operation"],
        );
        let name = "kubelet_pod_resize_duration_milliseconds";
        text.histogram(name, "how long it took to carry out resizes");
        for (success, took) in ["false", "true"].into_iter().zip(&self.actuated) {
            took.render(text, name, &[("success", success)], |_| true);
        }
        let name = "kubelet_pod_pending_resizes";
        text.gauge(name, "resizes that wait");
        for (reason, gauge) in [("deferred", &self.deferred), ("infeasible", &self.hopeless)] {
            text.sample(name, &[("reason", reason)], gauge.load(Relaxed));
        }
        self.infeasible.render(
            text,
            "kubelet_pod_infeasible_resizes_total",
            "resizes that can never be",
            ["reason_detail"],
        );
        let name = "kubelet_pod_in_progress_resizes";
        text.gauge(name, "resizes that are being carried out");
        text.sample(name, &[], self.in_progress.load(Relaxed));
        self.deferred_accepted.render(
            text,
            "kubelet_pod_deferred_accepted_resizes_total",
            "resizes that waited and were taken up",
            ["retry_trigger"],
        );
        let name = "plumb_resize_end_to_end_seconds";
        text.histogram(name, "from when the node received a resize until it was completed and reported");
        self.altogether.render(text, name, &[], |_| true);
        let name = "plumb_memory_pressure_growths_total";
        self.growths.memory.render(
            text,
            name,
            "memory limits that were to be raised under pressure",
            ["result"],
        );
        let name = "plumb_memory_pressure_growth_seconds";
        text.histogram(
            name,
            "from the notification that usage is near a memory limit until the limit was raised",
        );
        self.growth_took.memory.render(text, name, &[], |_| true);
        let name = "plumb_throttling_growths_total";
        self.growths.cpu.render(
            text,
            name,
            "CPU limits of throttled containers that were to be raised",
            ["result"],
        );
        let name = "plumb_throttling_growth_seconds";
        text.histogram(name, "from the last sample of throttling until the CPU limit was raised");
        self.growth_took.cpu.render(text, name, &[], |_| true);
    }

    fn evictions(&self, text: &mut Text) {
        let name = "kubelet_evictions";
        self.evictions.render(text, name, "pods that were evicted, by signal", ["eviction_signal"]);
        let name = "kubelet_eviction_stats_age_seconds";
        text.histogram(name, "how old the observation was for which a pod was evicted");
        for (signal, ages) in self.eviction_stats_ages.lock().iter() {
            ages.render(text, name, &[("eviction_signal", signal)], |_| true);
        }
    }

    fn operations(&self, text: &mut Text) {
        let operations = self.operations.lock();
        let name = "kubelet_runtime_operations_total";
        text.counter(name, "calls of the container runtime");
        for (kind, operation) in operations.iter() {
            text.sample(name, &[("operation_type", kind)], operation.took.count());
        }
        let name = "kubelet_runtime_operations_errors_total";
        text.counter(name, "calls of the container runtime that failed");
        for (kind, operation) in operations.iter().filter(|(_, operation)| operation.errors > 0) {
            text.sample(name, &[("operation_type", kind)], operation.errors);
        }
        let name = "kubelet_runtime_operations_duration_seconds";
        text.histogram(name, "how long calls of the container runtime took");
        for (kind, operation) in operations.iter() {
            operation.took.render(text, name, &[("operation_type", kind)], |_| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_kubelets_names() {
        let metrics = Metrics::default();
        metrics.requested("cpu", "limits", "increase");
        metrics.requested("cpu", "limits", "increase");
        metrics.pending(None, Some(Pending::Deferred));
        metrics.pending(None, Some(Pending::Deferred));
        metrics.pending(Some(Pending::Deferred), Some(Pending::Infeasible));
        metrics.infeasible("guaranteed_pod_cpu_manager_static_policy");
        metrics.deferred_accepted("pods_removed");
        metrics.in_progress(true);
        metrics.actuated(true, Duration::from_millis(40));
        metrics.end_to_end(Duration::from_millis(7));
        metrics.growth(Resource::Memory, GrowthResult::NodeFull);
        metrics.growth_took(Resource::Memory, Duration::from_millis(3));
        metrics.growth(Resource::Cpu, GrowthResult::NodeBusy);
        metrics.growth_took(Resource::Cpu, Duration::from_millis(5));
        metrics.operation("update_container", Duration::from_millis(1), false);
        metrics.evicted("memory.available");
        metrics.eviction_stats_age("memory.available", Duration::from_millis(3));
        let container = |uid: &str| ProbedContainer {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            container: "c".to_owned(),
        };
        metrics.probed(container("u"), Kind::Liveness, "failed");
        let series = "prober_probe_total{container=\"c\",namespace=\"default\",pod=\"web\",pod_uid=\"u\",\
                      probe_type=\"Liveness\",result=\"failed\"} 1";
        assert!(metrics.render_probes().contains(series), "{}", metrics.render_probes());
        metrics.remove_probes("u");
        assert!(!metrics.render_probes().contains("pod_uid"));
        let text = metrics.render();
        for line in [
            "kubelet_container_requested_resizes_total{resource=\"cpu\",requirement=\"limits\",operation=\"increase\"} 2",
            "kubelet_pod_resize_duration_milliseconds_bucket{success=\"true\",le=\"50\"} 1",
            "kubelet_pod_resize_duration_milliseconds_count{success=\"false\"} 0",
            "kubelet_pod_pending_resizes{reason=\"deferred\"} 1",
            "kubelet_pod_pending_resizes{reason=\"infeasible\"} 1",
            "kubelet_pod_infeasible_resizes_total{reason_detail=\"guaranteed_pod_cpu_manager_static_policy\"} 1",
            "kubelet_pod_in_progress_resizes 1",
            "kubelet_pod_deferred_accepted_resizes_total{retry_trigger=\"pods_removed\"} 1",
            "plumb_resize_end_to_end_seconds_bucket{le=\"0.008\"} 1",
            "plumb_resize_end_to_end_seconds_sum 0.007",
            "plumb_memory_pressure_growths_total{result=\"node_full\"} 1",
            "plumb_memory_pressure_growth_seconds_sum 0.003",
            "plumb_throttling_growths_total{result=\"node_busy\"} 1",
            "plumb_throttling_growth_seconds_sum 0.005",
            "kubelet_runtime_operations_errors_total{operation_type=\"update_container\"} 1",
            "kubelet_evictions{eviction_signal=\"memory.available\"} 1",
            "kubelet_eviction_stats_age_seconds_bucket{eviction_signal=\"memory.available\",le=\"0.005\"} 1",
            "prober_probe_total{probe_type=\"Liveness\",result=\"failed\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }
}
