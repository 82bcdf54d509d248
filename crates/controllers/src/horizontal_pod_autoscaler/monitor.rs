//! The metrics of the controller, under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use plumb_controller_runtime::ObjectRef;
use plumb_metrics::{FloatHistogram, Text};

use super::decide::{Direction, Fault};

/// Upstream's bounds: a millisecond, doubled fourteen times.
const BOUNDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// What is counted about autoscalers.
#[derive(Debug, Default)]
pub struct AutoscalerMetrics {
    reconciliations: Mutex<BTreeMap<Outcome, Series>>,
    computations: Mutex<BTreeMap<(Outcome, String), Series>>,
    /// How many replicas each autoscaler wants; none for one that has not decided yet.
    desired: Mutex<BTreeMap<ObjectRef, Option<i32>>>,
}

/// What came of a reconcile or a computation.
type Outcome = (Direction, Option<Fault>);

/// How often, and how long it took.
#[derive(Debug)]
struct Series(FloatHistogram);

impl Default for Series {
    fn default() -> Self {
        Self(FloatHistogram::new(BOUNDS))
    }
}

impl AutoscalerMetrics {
    pub(super) fn reconciled(&self, action: Direction, error: Option<Fault>, took: Duration) {
        let mut all = self.reconciliations.lock();
        all.entry((action, error)).or_default().0.observe(took.as_secs_f64());
    }

    pub(super) fn computed(&self, outcome: Outcome, metric_type: &str, took: Duration) {
        let mut all = self.computations.lock();
        all.entry((outcome, metric_type.to_owned())).or_default().0.observe(took.as_secs_f64());
    }

    pub(super) fn added(&self, autoscaler: ObjectRef) {
        self.desired.lock().entry(autoscaler).or_default();
    }

    pub(super) fn deleted(&self, autoscaler: &ObjectRef) {
        self.desired.lock().remove(autoscaler);
    }

    pub(super) fn desires(&self, autoscaler: &ObjectRef, replicas: i32) {
        if let Some(desired) = self.desired.lock().get_mut(autoscaler) {
            *desired = Some(replicas);
        }
    }

    /// Writes all of them.
    pub fn render(&self, text: &mut Text) {
        let all = self.reconciliations.lock();
        let series: Vec<(Vec<_>, &Series)> =
            all.iter().map(|(outcome, series)| (labels(*outcome).to_vec(), series)).collect();
        let name = "horizontal_pod_autoscaler_controller_reconciliations_total";
        text.counter(name, "reconciliations of HorizontalPodAutoscalers");
        counts(text, name, &series);
        let name = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds";
        text.histogram(name, "how long a reconciliation took");
        durations(text, name, &series);
        let all = self.computations.lock();
        let of_metric = |(outcome, metric_type): &(Outcome, String)| {
            let [action, error] = labels(*outcome);
            vec![action, error, ("metric_type", metric_type.clone())]
        };
        let series: Vec<(Vec<_>, &Series)> =
            all.iter().map(|(key, series)| (of_metric(key), series)).collect();
        let name = "horizontal_pod_autoscaler_controller_metric_computation_total";
        text.counter(name, "computations of the replicas that a metric asks for");
        counts(text, name, &series);
        let name = "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds";
        text.histogram(name, "how long such a computation took");
        durations(text, name, &series);
        let desired = self.desired.lock();
        let name = "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers";
        text.gauge(name, "HorizontalPodAutoscalers that exist");
        text.sample(name, &[], desired.len());
        let replicas = "horizontal_pod_autoscaler_controller_desired_replicas";
        text.gauge(replicas, "the replicas that a HorizontalPodAutoscaler wants");
        for (autoscaler, desired) in desired.iter() {
            if let Some(desired) = desired {
                let ObjectRef { namespace, name } = autoscaler;
                text.sample(replicas, &[("namespace", namespace), ("hpa_name", name)], desired);
            }
        }
    }
}

fn labels((action, error): Outcome) -> [(&'static str, String); 2] {
    let action = match action {
        Direction::Up => "scale_up",
        Direction::Down => "scale_down",
        Direction::None => "none",
    };
    let error = match error {
        Some(Fault::Spec) => "spec",
        Some(Fault::Internal) => "internal",
        None => "none",
    };
    [("action", action.to_owned()), ("error", error.to_owned())]
}

/// What happened, with its labels.
type Labelled<'a> = (Vec<(&'static str, String)>, &'a Series);

/// Writes how often each happened.
fn counts(text: &mut Text, name: &str, all: &[Labelled<'_>]) {
    for (labels, series) in all {
        text.sample(name, &borrowed(labels), series.0.count());
    }
}

/// Writes how long each took.
fn durations(text: &mut Text, name: &str, all: &[Labelled<'_>]) {
    for (labels, series) in all {
        series.0.render(text, name, &borrowed(labels));
    }
}

fn borrowed<'a>(labels: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
