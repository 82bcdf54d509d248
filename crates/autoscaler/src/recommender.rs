//! The engine of the recommender: from usage samples to recommendations, with upstream's numbers.
//!
//! ```text
//! samples, OOM kills ──▶ ContainerState ──▶ Aggregate ──▶ recommend ──▶ ContainerRecommendation
//!                        which count, and   histograms    percentile, margin, confidence,
//!                        memory peaks       of usage      minimum, rounding, limits
//! ```
//!
//! Nothing here reads a clock, does I/O or waits, but for [`prometheus`], which is a source of samples, and
//! [`metrics`]. [`Cluster`] runs the engine over the pods and VPAs of a cluster,
//! [`Workload`] over the samples of one workload.

mod aggregate;
mod amount;
mod checkpoint;
pub mod cluster;
pub mod conditions;
mod config;
mod container;
mod convert;
pub mod estimate;
mod float;
pub mod histogram;
pub mod metrics;
pub mod oom;
mod policy;
pub mod prometheus;
mod sample;
mod time;
mod workload;

pub use aggregate::Aggregate;
pub use amount::MAX_AMOUNT;
pub use checkpoint::{CHECKPOINT_VERSION, CheckpointError, CheckpointStatus};
pub use cluster::{Cluster, ClusterSettings, VpaKey};
pub use config::{AggregationConfig, AggregationSettings};
pub use container::ContainerState;
pub use estimate::{
    ContainerExplanation, ContainerRecommendation, EstimationSettings, Percentiles, Resources, VpaSettings,
};
pub use policy::{ContainerPolicy, MemorySettings, ResourcePolicy, ScalingMode, integer_cpu_containers};
pub use sample::{Discarded, Sample};
pub use time::{Time, TimeOutOfRange};
pub use workload::Workload;
