//! The results of probes by container, for `/metrics/probes`.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use plumb_metrics::Text;

use crate::probe::Kind;

/// The most series: beyond them new containers are not counted, so that a leak cannot grow.
const MOST: usize = 50_000;

/// A container whose probes are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbedContainer {
    /// The uid of its pod.
    pub uid: String,
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
}

/// Counts by container, type and result of a probe.
#[derive(Debug, Default)]
pub(super) struct ProbeSeries(Mutex<BTreeMap<(ProbedContainer, &'static str, &'static str), u64>>);

impl ProbeSeries {
    pub(super) fn count(&self, container: ProbedContainer, kind: Kind, result: &'static str) {
        let mut series = self.0.lock();
        let key = (container, kind.name(), result);
        if let Some(count) = series.get_mut(&key) {
            *count = count.saturating_add(1);
        } else if series.len() < MOST {
            series.insert(key, 1);
        }
    }

    /// Removes the series of a pod.
    pub(super) fn remove(&self, uid: &str) {
        self.0.lock().retain(|(container, ..), _| container.uid != uid);
    }

    pub(super) fn render(&self) -> String {
        let mut text = Text::default();
        let name = "prober_probe_total";
        text.counter(
            name,
            "Cumulative number of a liveness, readiness or startup probe for a container by result.",
        );
        for ((container, kind, result), count) in &*self.0.lock() {
            let labels: [(&str, &str); 6] = [
                ("container", container.container.as_str()),
                ("namespace", &container.namespace),
                ("pod", &container.pod),
                ("pod_uid", &container.uid),
                ("probe_type", kind),
                ("result", result),
            ];
            text.sample(name, &labels, count);
        }
        text.finish()
    }
}
