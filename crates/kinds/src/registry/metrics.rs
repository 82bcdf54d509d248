//! The kinds of `metrics.k8s.io`.

mod node_metrics;
mod pod_metrics;

pub(super) use node_metrics::NodeMetricsStrategy;
pub(super) use pod_metrics::PodMetricsStrategy;
