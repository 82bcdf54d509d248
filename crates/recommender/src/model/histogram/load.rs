//! Histograms in checkpoints.

use super::super::time::{Time, TimeOutOfRange};
use super::{DecayingHistogram, DecayingHistogramOptions};

/// The weight of the heaviest bucket in a checkpoint; the others are relative to it.
pub const MAX_CHECKPOINT_WEIGHT: u32 = 10_000;

/// A histogram as checkpoints store it: rounded weights, and the exact total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramCheckpoint {
    /// What the weights are relative to in time; unset for a histogram without samples.
    pub reference_timestamp: Time,
    /// Weight by bucket, in the order of the buckets, up to [`MAX_CHECKPOINT_WEIGHT`]; none is 0.
    pub bucket_weights: Vec<(i64, u32)>,
    /// The sum of the true weights.
    pub total_weight: f64,
}

/// What is wrong with a histogram in a checkpoint.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HistogramCheckpointError {
    /// The total weight is negative.
    #[error("total weight {0} is negative")]
    NegativeTotal(f64),
    /// The total weight is not a number, or infinite.
    #[error("total weight {0} is not a finite number")]
    NotFinite(f64),
    /// A bucket has an index below 0.
    #[error("bucket {0} is negative")]
    NegativeBucket(i64),
    /// A bucket has an index that the histogram does not have.
    #[error("bucket {bucket} is beyond the {count} buckets of the histogram")]
    BucketOutOfRange {
        /// The index in the checkpoint.
        bucket: i64,
        /// How many buckets the histogram has.
        count: usize,
    },
    /// The weights are no map from bucket to weight.
    #[error("{0}")]
    Malformed(String),
    /// The reference time is out of range.
    #[error("reference time: {0}")]
    Time(#[source] TimeOutOfRange),
}

impl DecayingHistogram {
    /// The checkpoint of this histogram, its reference to the second. Buckets whose weight rounds to zero are left out.
    pub fn to_checkpoint(&self) -> HistogramCheckpoint {
        let histogram = &self.histogram;
        let heaviest = histogram.weights().map(|(_, weight)| weight).fold(0.0, f64::max);
        let ratio = f64::from(MAX_CHECKPOINT_WEIGHT) / heaviest;
        let rounded = |(bucket, weight): (u16, f64)| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // At most MAX_CHECKPOINT_WEIGHT.
            let weight = (weight * ratio + 0.5).floor() as u32;
            (weight > 0).then_some((i64::from(bucket), weight))
        };
        let mut bucket_weights = Vec::with_capacity(histogram.weights().count());
        bucket_weights.extend(histogram.weights().filter_map(rounded));
        HistogramCheckpoint {
            reference_timestamp: self.reference.truncated_to_seconds(),
            bucket_weights,
            total_weight: histogram.total_weight(),
        }
    }

    /// The histogram of a checkpoint.
    pub fn from_checkpoint(
        options: &DecayingHistogramOptions,
        checkpoint: &HistogramCheckpoint,
    ) -> Result<Self, HistogramCheckpointError> {
        let total = checkpoint.total_weight;
        if !total.is_finite() {
            return Err(HistogramCheckpointError::NotFinite(total));
        }
        if total < 0.0 {
            return Err(HistogramCheckpointError::NegativeTotal(total));
        }
        let mut sum = 0_u64;
        for &(bucket, weight) in &checkpoint.bucket_weights {
            sum = sum.saturating_add(weight.into());
            check(options, bucket)?;
        }
        let mut loaded = Self::new(options);
        loaded.reference = checkpoint.reference_timestamp;
        if sum == 0 {
            return Ok(loaded);
        }
        #[allow(clippy::cast_precision_loss)] // As upstream divides.
        let ratio = total / sum as f64;
        for &(bucket, weight) in &checkpoint.bucket_weights {
            loaded.histogram.load(check(options, bucket)?, f64::from(weight) * ratio);
        }
        loaded.histogram.total += total;
        // A weight next to epsilon may be below it after both roundings (kubernetes/autoscaler#7726).
        loaded.histogram.drop_empty_ends(&options.buckets);
        Ok(loaded)
    }
}

impl super::Histogram {
    fn load(&mut self, bucket: u16, weight: f64) {
        self.buckets.add(bucket, weight);
        self.min = self.min.min(bucket);
        self.max = self.max.max(bucket);
    }
}

fn check(options: &DecayingHistogramOptions, bucket: i64) -> Result<u16, HistogramCheckpointError> {
    let count = options.buckets.bucket_count();
    let index = usize::try_from(bucket).map_err(|_| HistogramCheckpointError::NegativeBucket(bucket))?;
    u16::try_from(index)
        .ok()
        .filter(|_| index < count)
        .ok_or(HistogramCheckpointError::BucketOutOfRange { bucket, count })
}
