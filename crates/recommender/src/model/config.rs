//! How usage is aggregated: upstream's flags with their defaults.

use std::time::Duration;

use plumb_resize::resource::Resource;

use super::histogram::{DecayingHistogramOptions, HistogramOptions, HistogramOptionsError};

/// The weight of a CPU sample before decay.
pub(crate) const CPU_SAMPLE_WEIGHT: f64 = 0.1;
/// The weight of a memory peak before decay.
pub(crate) const MEMORY_PEAK_WEIGHT: f64 = 1.0;
/// The weight from which on a bucket counts: a thousandth of a sample.
const EPSILON: f64 = 0.001 * CPU_SAMPLE_WEIGHT;
/// By which fraction each bucket is larger than the one before.
const BUCKET_GROWTH: f64 = 0.05;

const DAY: Duration = Duration::from_hours(24);

/// The settings of the aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregationSettings {
    /// The window of which a container contributes one memory peak (`--memory-aggregation-interval`).
    pub memory_interval: Duration,
    /// How many such windows without samples an aggregate survives (`--memory-aggregation-interval-count`).
    pub memory_interval_count: i64,
    /// `--memory-histogram-decay-half-life`.
    pub memory_half_life: Duration,
    /// `--cpu-histogram-decay-half-life`.
    pub cpu_half_life: Duration,
    /// By what factor memory is raised after an OOM kill (`--oom-bump-up-ratio`).
    pub oom_bump_up_ratio: f64,
    /// By how many bytes memory is raised at least after an OOM kill (`--oom-min-bump-up-bytes`).
    pub oom_min_bump_up_bytes: f64,
}

impl Default for AggregationSettings {
    fn default() -> Self {
        Self {
            memory_interval: DAY,
            memory_interval_count: 8,
            memory_half_life: DAY,
            cpu_half_life: DAY,
            oom_bump_up_ratio: 1.2,
            oom_min_bump_up_bytes: 100.0 * 1024.0 * 1024.0,
        }
    }
}

/// The settings with the histograms' options worked out: made once, shared by all aggregates.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregationConfig {
    /// Its source.
    pub settings: AggregationSettings,
    /// 176 buckets from 10 millicores to 1000 cores.
    pub cpu: DecayingHistogramOptions,
    /// 176 buckets from 10 MB to 1 TB.
    pub memory: DecayingHistogramOptions,
}

impl AggregationConfig {
    /// Works out the buckets. Fails only if the constants of this module are wrong.
    pub fn new(settings: AggregationSettings) -> Result<Self, HistogramOptionsError> {
        // Changing the buckets changes what checkpoints mean, and needs another checkpoint version.
        let ratio = 1.0 + BUCKET_GROWTH;
        let cpu = HistogramOptions::exponential(1_000.0, 0.01, ratio, EPSILON)?;
        let memory = HistogramOptions::exponential(1e12, 1e7, ratio, EPSILON)?;
        Ok(Self {
            cpu: DecayingHistogramOptions::new(cpu, settings.cpu_half_life),
            memory: DecayingHistogramOptions::new(memory, settings.memory_half_life),
            settings,
        })
    }

    /// The histogram options of a resource.
    pub fn histogram(&self, resource: Resource) -> &DecayingHistogramOptions {
        match resource {
            Resource::Cpu => &self.cpu,
            Resource::Memory => &self.memory,
        }
    }
}
