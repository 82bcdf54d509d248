//! The engine: from usage samples to recommendations, with upstream's numbers. It reads no clock, does no I/O and does not
//! wait.
//!
//! ```text
//! samples, OOM kills ──▶ ContainerState ──▶ Aggregate ──▶ recommend ──▶ ContainerRecommendation
//!                        which count, and   histograms    percentile, margin, confidence,
//!                        memory peaks       of usage      minimum, rounding, limits
//! ```
//!
//! [`cluster`] runs it over the pods and VPAs of a cluster, [`Workload`](crate::Workload) over the samples of one workload.

pub(crate) mod aggregate;
pub(crate) mod amount;
pub(crate) mod checkpoint;
pub mod cluster;
pub(crate) mod config;
pub(crate) mod container;
pub(crate) mod convert;
pub(crate) mod counted_kills;
pub mod estimate;
pub(crate) mod float;
pub mod histogram;
pub(crate) mod policy;
pub(crate) mod quality;
pub(crate) mod sample;
pub(crate) mod time;
pub(crate) mod window_peak;
pub(crate) mod workload;
