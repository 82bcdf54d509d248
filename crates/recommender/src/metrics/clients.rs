//! Requests to the sources of usage, and where resources of containers are read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use plumb_metrics::{CounterVec, Histogram, Text, Unit};

use super::steps::milliseconds;
use crate::model::quality::truth;

/// Upstream's bounds for requests to Prometheus, in nanoseconds.
const BOUNDS: &[u64] = &milliseconds([
    10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000,
    60_000, 120_000, 300_000,
]);

/// The answers of metrics.k8s.io, or of what stands in for it.
#[derive(Debug, Default)]
pub struct MetricsServerMetrics(CounterVec<2>);

impl MetricsServerMetrics {
    /// The name that upstream gives the client of metrics.k8s.io.
    pub const DEFAULT_CLIENT: &str = "default-metrics-client";

    /// Counts an answer to a client.
    pub fn answered(&self, client: &'static str, failed: bool) {
        self.0.inc([truth(failed).into(), client.into()]);
    }

    pub(super) fn render(&self, text: &mut Text) {
        let name = "vpa_recommender_metric_server_responses";
        self.0.render(text, name, "answers to queries for the usage of pods", ["is_error", "client_name"]);
    }
}

/// Requests to the API of Prometheus.
#[derive(Debug, Default)]
pub struct PrometheusClientMetrics {
    /// By code and method. There are few of either.
    requests: Mutex<BTreeMap<(u16, &'static str), Histogram>>,
}

impl PrometheusClientMetrics {
    /// Counts a request that was answered with a code.
    pub fn answered(&self, code: http::StatusCode, method: &http::Method, took: Duration) {
        let method = if *method == http::Method::GET { "get" } else { "post" };
        let mut requests = self.requests.lock();
        let times = requests.entry((code.as_u16(), method));
        times.or_insert_with(|| Histogram::new(Unit::Time, BOUNDS)).observe_duration(took);
    }

    pub(super) fn render(&self, text: &mut Text) {
        let requests = self.requests.lock();
        let name = "vpa_recommender_prometheus_client_api_requests_count";
        text.counter(name, "requests to the API of Prometheus");
        for ((code, method), times) in &*requests {
            text.sample(name, &[("code", &code.to_string()), ("method", method)], times.count());
        }
        let name = "vpa_recommender_prometheus_client_api_requests_duration_seconds";
        text.histogram(name, "time that requests to the API of Prometheus take");
        for ((code, method), times) in &*requests {
            times.render(text, name, &[("code", &code.to_string()), ("method", method)], |_| true);
        }
    }
}

/// Where the resources of a container are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourcesSource {
    /// The status of the container.
    ContainerStatus,
    /// The status of the init container.
    InitContainerStatus,
    /// The spec of the container.
    PodSpecContainer,
    /// The spec of the init container.
    PodSpecInitContainer,
}

impl ResourcesSource {
    const ALL: [(Self, &str); 4] = [
        (Self::ContainerStatus, "Pod.Status.ContainerStatuses"),
        (Self::InitContainerStatus, "Pod.Status.InitContainerStatuses"),
        (Self::PodSpecContainer, "Pod.Spec.Containers"),
        (Self::PodSpecInitContainer, "Pod.Spec.InitContainers"),
    ];
}

#[derive(Debug, Default)]
pub(super) struct ResourcesMetrics([AtomicU64; ResourcesSource::ALL.len()]);

impl ResourcesMetrics {
    pub(super) fn count(&self, source: ResourcesSource) {
        self.0[source as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn render(&self, text: &mut Text) {
        let name = "vpa_resources_get_resources_count";
        text.counter(name, "reads of the resources of a container, by where they were read");
        for ((_, source), count) in ResourcesSource::ALL.into_iter().zip(&self.0) {
            text.sample(name, &[("source", source)], count.load(Relaxed));
        }
    }
}
