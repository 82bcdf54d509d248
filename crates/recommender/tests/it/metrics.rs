//! Metrics: upstream's names and labels, and what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::core::Selector;
use plumb_metrics::Text;
use plumb_recommender::metrics::{
    MAX_CONTAINERS, MetricsServerMetrics, RecommenderMetrics, ResourcesSource, Step, VpaObservation,
};
use plumb_recommender::model::cluster::{PodUpdate, SelectorUpdate, VpaUpdate};
use plumb_recommender::{Cluster, ClusterSettings, ContainerRecommendation, Resources, VpaKey, VpaSettings};
use plumb_resize::Quantity;
use plumb_vpa_api::UpdateMode;

use super::{MINUTE, at, cpu, memory};

/// The families of the Vertical Pod Autoscaler 1.8 and their types and labels (without `le`), and below them ours.
const FAMILIES: [(&str, &str, &[&str]); 20] = [
    (
        "vpa_recommender_vpa_objects_count",
        "gauge",
        &["api", "has_recommendation", "matches_pods", "unsupported_config", "update_mode"],
    ),
    ("vpa_recommender_recommendation_latency_seconds", "histogram", &[]),
    ("vpa_recommender_execution_latency_seconds", "histogram", &["step"]),
    ("vpa_recommender_aggregate_container_states_count", "gauge", &[]),
    ("vpa_recommender_metric_server_responses", "counter", &["client_name", "is_error"]),
    ("vpa_recommender_prometheus_client_api_requests_count", "counter", &["code", "method"]),
    ("vpa_recommender_prometheus_client_api_requests_duration_seconds", "histogram", &["code", "method"]),
    ("vpa_quality_usage_recommendation_relative_diffs", "histogram", &["is_oom", "resource", "update_mode"]),
    (
        "vpa_quality_usage_sample_missing_recommendation_count",
        "counter",
        &["is_oom", "resource", "update_mode"],
    ),
    (
        "vpa_quality_cpu_recommendation_over_usage_diffs_cores",
        "histogram",
        &["recommendation_missing", "update_mode"],
    ),
    (
        "vpa_quality_mem_recommendation_over_usage_diffs_bytes",
        "histogram",
        &["is_oom", "recommendation_missing", "update_mode"],
    ),
    (
        "vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores",
        "histogram",
        &["recommendation_missing", "update_mode"],
    ),
    (
        "vpa_quality_mem_recommendation_lower_equal_usage_diffs_bytes",
        "histogram",
        &["is_oom", "recommendation_missing", "update_mode"],
    ),
    ("vpa_quality_cpu_recommendations_cores", "histogram", &["update_mode"]),
    ("vpa_quality_mem_recommendations_bytes", "histogram", &["is_oom", "update_mode"]),
    (
        "vpa_quality_relative_recommendation_changes",
        "histogram",
        &["resource", "update_mode", "vpa_size_log2"],
    ),
    ("vpa_resources_get_resources_count", "counter", &["source"]),
    (
        "vpa_recommender_recommendation",
        "gauge",
        &["bound", "container", "resource", "vpa_name", "vpa_namespace"],
    ),
    ("vpa_recommender_recommendation_omitted_containers", "gauge", &[]),
    ("vpa_recommender_discarded_samples_total", "counter", &["reason"]),
];

fn rendered(metrics: &RecommenderMetrics) -> String {
    let mut text = Text::default();
    metrics.render(&mut text);
    text.finish()
}

/// A VPA whose pod gives samples on both sides of the recommendation, one before there is any, and an OOM kill.
fn busy() -> RecommenderMetrics {
    let metrics = RecommenderMetrics::default();
    let mut cluster = Cluster::new(ClusterSettings::default()).unwrap();
    cluster.observe_quality(metrics.quality());
    cluster.set_time(at(0));
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    cluster.apply_vpa(VpaUpdate {
        key: VpaKey::new("ns", "web"),
        created: at(0),
        selector: SelectorUpdate::Known(Selector::from_iter(labels.clone())),
        settings: VpaSettings { update_mode: Some(UpdateMode::Off), ..VpaSettings::default() },
        target_exists: true,
    });
    cluster.apply_pod(PodUpdate {
        namespace: "ns",
        name: "web-1",
        labels: &labels,
        containers: &["app"],
        active: true,
    });
    let add = |cluster: &mut Cluster, sample| cluster.add_sample("ns", "web-1", "app", sample).unwrap();
    let mib = 1024 * 1024;
    for (minute, millicores, bytes) in [(0, 100, 500 * mib), (1, 50, 600 * mib), (2, 900, 100 * mib)] {
        add(&mut cluster, cpu(minute * MINUTE, millicores));
        add(&mut cluster, memory(minute * MINUTE, bytes));
        cluster.recommend();
    }
    cluster.record_oom("ns", "web-1", "app", at(3 * MINUTE), 600 * mib).unwrap();
    assert!(cluster.add_sample("ns", "web-1", "app", cpu(0, 100)).is_err());

    let key = Arc::new(VpaKey::new("ns", "web"));
    let recommendation = cluster.vpa(&key).unwrap().recommendation().to_vec();
    metrics.set_vpa(
        &key,
        VpaObservation {
            update_mode: Some(UpdateMode::Off),
            matches_pods: true,
            unsupported_config: false,
            recommendation,
        },
    );
    metrics.set_cluster(&cluster);
    metrics.first_recommendation(Duration::from_secs(61));
    metrics.metrics_server().answered(MetricsServerMetrics::DEFAULT_CLIENT, false);
    let prometheus = metrics.prometheus_client();
    prometheus.answered(http::StatusCode::OK, &http::Method::POST, Duration::from_millis(15));
    metrics.resources_read(ResourcesSource::ContainerStatus);
    let mut timer = metrics.timer();
    timer.step(Step::LoadVpas);
    timer.finish();
    metrics
}

#[test]
fn metrics_have_upstream_s_names_types_and_labels() {
    let text = rendered(&busy());
    let types: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let expected: BTreeMap<&str, &str> = FAMILIES.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    assert_eq!(types, expected);
    for (name, kind, labels) in FAMILIES {
        let series = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let found: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&series))
            .filter(|rest| rest.starts_with(['{', ' ']))
            .collect();
        assert!(!found.is_empty(), "{name} has no series in {text}");
        for rest in found {
            let inner =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(in_, _)| in_);
            let names: BTreeSet<&str> =
                inner.split(',').filter_map(|pair| pair.split_once('=')).map(|(label, _)| label).collect();
            assert_eq!(names, labels.iter().copied().collect(), "{name}");
        }
    }
}

#[test]
fn quality_compares_usage_with_the_uncapped_target_of_the_time() {
    let text = rendered(&busy());
    let has = |line: &str| assert!(text.contains(&format!("{line}\n")), "{line} is not in\n{text}");
    // The first sample came before any recommendation.
    has(
        "vpa_quality_usage_sample_missing_recommendation_count{update_mode=\"Off\",resource=\"cpu\",is_oom=\"false\"} 1",
    );
    // The second is under the target of 126m, the third over it.
    has("vpa_quality_cpu_recommendations_cores_count{update_mode=\"Off\"} 2");
    has("vpa_quality_cpu_recommendations_cores_sum{update_mode=\"Off\"} 0.252");
    has(
        "vpa_quality_cpu_recommendation_over_usage_diffs_cores_count{update_mode=\"Off\",recommendation_missing=\"false\"} 1",
    );
    has("vpa_quality_mem_recommendations_bytes_count{update_mode=\"Off\",is_oom=\"true\"} 1");
    has("vpa_recommender_discarded_samples_total{reason=\"out_of_order\"} 1");
    has("vpa_recommender_aggregate_container_states_count 1");
}

#[test]
fn a_recommendation_is_a_gauge_for_each_container_resource_and_bound_while_the_vpa_is_there() {
    let metrics = busy();
    let text = rendered(&metrics);
    let labels = "vpa_namespace=\"ns\",vpa_name=\"web\",container=\"app\",resource=\"cpu\"";
    for bound in ["target", "lower_bound", "upper_bound", "uncapped_target"] {
        let series = format!("vpa_recommender_recommendation{{{labels},bound=\"{bound}\"}} ");
        assert!(text.contains(&series), "{series} is not in\n{text}");
    }
    let counted = "vpa_recommender_vpa_objects_count{update_mode=\"Off\",has_recommendation=\"true\",api=\"v1\",\
                   matches_pods=\"true\",unsupported_config=\"false\"}";
    assert!(text.contains(&format!("{counted} 1\n")));
    metrics.remove_vpa(&VpaKey::new("ns", "web"));
    let text = rendered(&metrics);
    assert!(text.contains(&format!("{counted} 0\n")) && !text.contains("vpa_name=\"web\""), "{text}");
}

#[test]
fn the_number_of_series_is_bounded() {
    let metrics = RecommenderMetrics::default();
    let target = Resources::new(Some(Quantity::from_milli(100)), None);
    let recommendation = (0..MAX_CONTAINERS + 7).map(|number| ContainerRecommendation {
        container: format!("c{number}"),
        target,
        lower_bound: Resources::default(),
        upper_bound: Resources::default(),
        uncapped_target: Resources::default(),
    });
    let observation =
        VpaObservation { recommendation: recommendation.collect(), ..VpaObservation::default() };
    metrics.set_vpa(&Arc::new(VpaKey::new("ns", "huge")), observation);
    let text = rendered(&metrics);
    let series = text.lines().filter(|line| line.starts_with("vpa_recommender_recommendation{"));
    assert_eq!(series.count(), MAX_CONTAINERS);
    assert!(text.contains("vpa_recommender_recommendation_omitted_containers 7\n"));
}
