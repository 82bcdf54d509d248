//! The engine of the recommender: from usage samples to recommendations, with upstream's numbers.
//!
//! ```text
//! samples, OOM kills ──▶ ContainerState ──▶ Aggregate ──▶ recommend ──▶ ContainerRecommendation
//!                        which count, and   histograms    percentile, margin, confidence,
//!                        memory peaks       of usage      minimum, rounding, limits
//! ```
//!
//! The engine reads no clock, does no I/O and does not wait. [`Cluster`] runs it over the pods and VPAs of a cluster,
//! [`Workload`] over the samples of one workload.
//!
//! [`Recommender`] is the loop in a cluster: [`state`] is its state, [`decide`] the decision about writes, and
//! [`live_usage`], [`external_metrics`] and [`prometheus`] are the sources of samples.

mod aggregate;
mod amount;
mod checkpoint;
pub mod cluster;
pub mod conditions;
mod config;
mod container;
mod convert;
mod counted_kills;
pub mod decide;
pub mod environment;
pub mod estimate;
pub mod external_metrics;
mod feed;
mod float;
pub mod histogram;
pub mod live_usage;
pub mod metrics;
mod node_groups;
pub mod oom;
mod options;
mod policy;
pub mod prometheus;
mod run;
mod sample;
pub mod shards;
pub mod state;
mod time;
mod window_peak;
mod workload;

pub use aggregate::Aggregate;
pub use amount::MAX_AMOUNT;
pub use checkpoint::{CHECKPOINT_VERSION, CheckpointError, CheckpointStatus};
pub use cluster::{Cluster, ClusterSettings, VpaKey};
pub use config::{AggregationConfig, AggregationSettings};
pub use container::ContainerState;
pub use counted_kills::{COUNTED_KILLS_ANNOTATION, CountedKills};
pub use estimate::{
    ContainerExplanation, ContainerRecommendation, EstimationSettings, Percentiles, Resources, VpaSettings,
};
pub use options::{DEFAULT_NAME, Options, Storage};
pub use policy::{ContainerPolicy, MemorySettings, ResourcePolicy, ScalingMode, integer_cpu_containers};
pub use run::{Config, Recommender, Run, SharedState, TASK};
pub use sample::{Discarded, Sample};
pub use time::{Time, TimeOutOfRange};
pub use window_peak::{WINDOW_PEAK_ANNOTATION, WindowPeak};
pub use workload::Workload;
