//! Aggregates as `VerticalPodAutoscalerCheckpoint` objects store them.
//!
//! A checkpoint has the history of a container of a VPA, including samples of pods that are gone. It survives a
//! restart of the recommender, and a switch between upstream's recommender and this one.
//! Weights are rounded to 1/10000 of the heaviest bucket; everything else is exact.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::aggregate::Aggregate;
use super::config::AggregationConfig;
use super::histogram::{DecayingHistogram, HistogramCheckpoint, HistogramCheckpointError};
use super::time::{Time, TimeOutOfRange};

/// The version of checkpoints that this recommender reads and writes.
///
/// Another number of buckets, or another meaning of one, needs another version.
pub const CHECKPOINT_VERSION: &str = "v3";

/// `status` of a `VerticalPodAutoscalerCheckpoint`, without `lastUpdateTime`, the time of its write.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointStatus {
    /// `version`.
    pub version: Cow<'static, str>,
    /// `cpuHistogram`.
    pub cpu_histogram: HistogramCheckpoint,
    /// `memoryHistogram`.
    pub memory_histogram: HistogramCheckpoint,
    /// `firstSampleStart`.
    pub first_sample_start: Time,
    /// `lastSampleStart`.
    pub last_sample_start: Time,
    /// `totalSamplesCount`.
    pub total_samples_count: i64,
}

/// Why a checkpoint cannot be restored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// It was written by a recommender that counts in other buckets.
    #[error("unsupported checkpoint version {0:?}, expected {CHECKPOINT_VERSION:?}")]
    Version(String),
    /// The number of samples is negative.
    #[error("total samples count {0} is negative")]
    NegativeCount(i64),
    /// The last sample is before the first, or only one of them is set.
    #[error("first sample at {first} and last sample at {last} do not fit together")]
    SampleTimes {
        /// `firstSampleStart`.
        first: Time,
        /// `lastSampleStart`.
        last: Time,
    },
    /// A time is further in the future than clocks may differ.
    #[error("{0} is in the future")]
    Future(Time),
    /// A time is out of range.
    #[error("time of a sample: {0}")]
    Time(#[source] TimeOutOfRange),
    /// The CPU histogram is wrong.
    #[error("cpu histogram: {0}")]
    Cpu(#[source] HistogramCheckpointError),
    /// The memory histogram is wrong.
    #[error("memory histogram: {0}")]
    Memory(#[source] HistogramCheckpointError),
}

impl CheckpointStatus {
    /// The checkpoint of an aggregate. Times are written to the second.
    pub fn of(aggregate: &Aggregate) -> Self {
        Self {
            version: Cow::Borrowed(CHECKPOINT_VERSION),
            cpu_histogram: aggregate.cpu().to_checkpoint(),
            memory_histogram: aggregate.memory().to_checkpoint(),
            first_sample_start: aggregate.first_sample.truncated_to_seconds(),
            last_sample_start: aggregate.last_sample.truncated_to_seconds(),
            total_samples_count: i64::try_from(aggregate.samples).unwrap_or(i64::MAX),
        }
    }

    /// The aggregate of a checkpoint.
    pub fn restore(&self, config: &AggregationConfig) -> Result<Aggregate, CheckpointError> {
        if self.version != CHECKPOINT_VERSION {
            return Err(CheckpointError::Version(self.version.to_string()));
        }
        let samples = u64::try_from(self.total_samples_count)
            .map_err(|_| CheckpointError::NegativeCount(self.total_samples_count))?;
        let (first, last) = (self.first_sample_start, self.last_sample_start);
        if first.is_set() != last.is_set() || last < first {
            return Err(CheckpointError::SampleTimes { first, last });
        }
        let cpu = DecayingHistogram::from_checkpoint(&config.cpu, &self.cpu_histogram)
            .map_err(CheckpointError::Cpu)?;
        let memory = DecayingHistogram::from_checkpoint(&config.memory, &self.memory_histogram)
            .map_err(CheckpointError::Memory)?;
        let mut aggregate = Aggregate::of(cpu, memory);
        aggregate.first_sample = first;
        aggregate.last_sample = last;
        aggregate.samples = samples;
        Ok(aggregate)
    }

    /// A hash of everything in it: two checkpoints of one container that have the same need no write.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.version.hash(&mut hasher);
        for histogram in [&self.cpu_histogram, &self.memory_histogram] {
            histogram.reference_timestamp.hash(&mut hasher);
            histogram.bucket_weights.hash(&mut hasher);
            histogram.total_weight.to_bits().hash(&mut hasher);
        }
        (self.first_sample_start, self.last_sample_start, self.total_samples_count).hash(&mut hasher);
        hasher.finish()
    }
}
