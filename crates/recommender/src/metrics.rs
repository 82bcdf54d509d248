//! Metrics of the recommender and of its recommendations, under upstream's names.
//!
//! | families | what |
//! |---|---|
//! | `vpa_recommender_*` | VPA objects, the steps of the loop, tracked objects, requests to sources of usage |
//! | `vpa_quality_*` | how usage compares with the recommendation of the time |
//! | `vpa_resources_get_resources_count` | where the resources of containers were read |
//! | `vpa_recommender_recommendation`, `…_discarded_samples_total` | ours: the recommendations themselves, and samples that do not count |
//!
//! Labels have values from fixed lists, but for the names of VPAs and containers, which go with their object: a VPA that is
//! deleted has no series any more, and there are at most [`MAX_CONTAINERS`] containers with series.

mod clients;
mod steps;
mod vpas;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};

pub use clients::{MetricsServerMetrics, PrometheusClientMetrics, ResourcesSource};
pub use steps::{Step, StepTimer};
pub use vpas::{MAX_CONTAINERS, VpaObservation};

use crate::model::cluster::{Cluster, VpaKey};
use crate::model::quality::QualityMetrics;
use crate::model::sample::Discarded;
use clients::ResourcesMetrics;
use steps::StepMetrics;
use vpas::VpaMetrics;

/// The bounds of the time to the first recommendation, in nanoseconds: upstream's.
const FIRST_RECOMMENDATION: &[u64] = &steps::milliseconds([
    1_000, 2_000, 5_000, 7_500, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 90_000, 120_000, 150_000,
    180_000, 240_000, 300_000, 600_000, 900_000, 1_800_000,
]);

/// All metrics of a recommender. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecommenderMetrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    steps: StepMetrics,
    vpas: VpaMetrics,
    first_recommendation: Histogram,
    aggregates: AtomicUsize,
    discarded: [AtomicU64; Discarded::ALL.len()],
    metrics_server: Arc<MetricsServerMetrics>,
    prometheus: Arc<PrometheusClientMetrics>,
    resources: ResourcesMetrics,
    quality: Arc<QualityMetrics>,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            steps: StepMetrics::default(),
            vpas: VpaMetrics::default(),
            first_recommendation: Histogram::new(Unit::Time, FIRST_RECOMMENDATION),
            aggregates: AtomicUsize::default(),
            discarded: Default::default(),
            metrics_server: Arc::default(),
            prometheus: Arc::default(),
            resources: ResourcesMetrics::default(),
            quality: Arc::default(),
        }
    }
}

impl RecommenderMetrics {
    /// Measures the steps of one run of the loop, from now on.
    pub fn timer(&self) -> StepTimer {
        StepTimer::new(self.clone())
    }

    /// Records the state of a VPA, instead of the one before.
    pub fn set_vpa(&self, key: &Arc<VpaKey>, observation: VpaObservation) {
        self.0.vpas.set(key, observation);
    }

    /// Forgets a VPA, and with it its series.
    pub fn remove_vpa(&self, key: &VpaKey) {
        self.0.vpas.remove(key);
    }

    /// Counts that a VPA has its first recommendation so long after it was created.
    pub fn first_recommendation(&self, after: Duration) {
        self.0.first_recommendation.observe_duration(after);
    }

    /// Records the size of the model, and the samples that it did not count.
    pub fn set_cluster(&self, cluster: &Cluster) {
        self.0.aggregates.store(cluster.size().aggregates, Relaxed);
        for ((_, count), shown) in cluster.discarded().iter().zip(&self.0.discarded) {
            shown.store(count, Relaxed);
        }
    }

    /// Counts that the resources of a container were read there.
    pub fn resources_read(&self, source: ResourcesSource) {
        self.0.resources.count(source);
    }

    /// The metrics of responses of metrics.k8s.io.
    pub fn metrics_server(&self) -> Arc<MetricsServerMetrics> {
        self.0.metrics_server.clone()
    }

    /// The metrics of requests to Prometheus.
    pub fn prometheus_client(&self) -> Arc<PrometheusClientMetrics> {
        self.0.prometheus.clone()
    }

    /// The metrics that compare usage with recommendations.
    pub fn quality(&self) -> Arc<QualityMetrics> {
        self.0.quality.clone()
    }

    /// Writes all of them.
    pub fn render(&self, text: &mut Text) {
        let families = &*self.0;
        families.vpas.render(text);
        let name = "vpa_recommender_recommendation_latency_seconds";
        text.histogram(name, "time from the creation of a VPA to its first recommendation");
        families.first_recommendation.render(text, name, &[], |_| true);
        families.steps.render(text);
        let name = "vpa_recommender_aggregate_container_states_count";
        text.gauge(name, "container aggregates that the recommender tracks");
        text.sample(name, &[], families.aggregates.load(Relaxed));
        let name = "vpa_recommender_discarded_samples_total";
        text.counter(name, "samples and OOM kills that were not counted, by reason");
        for (reason, count) in Discarded::ALL.into_iter().zip(&families.discarded) {
            text.sample(name, &[("reason", reason.name())], count.load(Relaxed));
        }
        families.metrics_server.render(text);
        families.prometheus.render(text);
        families.resources.render(text);
        families.quality.render(text);
    }

    fn steps(&self) -> &StepMetrics {
        &self.0.steps
    }
}
