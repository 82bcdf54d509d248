//! Where the recommender reads from: objects of the API, metrics.k8s.io, external metrics, Prometheus.

pub mod environment;
pub mod external_metrics;
pub(crate) mod feed;
pub mod live_usage;
pub(crate) mod node_groups;
pub mod oom;
pub mod prometheus;
