//! The recommender of the Vertical Pod Autoscaler: usage in, recommendations out.
//!
//! ```text
//!   input ──────────────▶ model ───────────▶ decide ─────────────▶ run
//!   pods, VPAs, usage,    histograms,        which status of       writes statuses and checkpoints,
//!   OOM kills, history    recommendations    which VPA to write    shards VPAs between replicas
//! ```
//!
//! [`model`] is synchronous and pure. [`Recommender`] is the loop in a cluster; [`state`] is its state, [`decide`] the decision
//! about writes. [`offline`] recommends from files and from Prometheus without a cluster.

pub mod conditions;
pub mod decide;
pub mod display;
pub mod input;
pub mod metrics;
pub mod model;
pub mod offline;
mod options;
mod run;
pub mod shards;
pub mod state;

pub use model::aggregate::Aggregate;
pub use model::amount::MAX_AMOUNT;
pub use model::checkpoint::{CHECKPOINT_VERSION, CheckpointError, CheckpointStatus};
pub use model::cluster::{Cluster, ClusterSettings, VpaKey};
pub use model::config::{AggregationConfig, AggregationSettings};
pub use model::container::ContainerState;
pub use model::counted_kills::{COUNTED_KILLS_ANNOTATION, CountedKills};
pub use model::estimate::{
    ContainerExplanation, ContainerRecommendation, EstimationSettings, Percentiles, Resources, VpaSettings,
};
pub use model::policy::{
    ContainerPolicy, MemorySettings, ResourcePolicy, ScalingMode, integer_cpu_containers,
};
pub use model::sample::{Discarded, Sample};
pub use model::time::{Time, TimeOutOfRange};
pub use model::window_peak::{WINDOW_PEAK_ANNOTATION, WindowPeak};
pub use model::workload::Workload;
pub use options::{DEFAULT_NAME, Options, Storage};
pub use run::{Config, Recommender, Run, SharedState, TASK};
