//! How values are divided into buckets.

use super::super::float;

/// The most buckets a histogram may have.
pub const MAX_BUCKETS: usize = 256;

/// Which bucket a value falls into, and from what weight on a bucket counts.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramOptions {
    shape: Shape,
    /// Where each bucket starts; never empty.
    starts: Box<[f64]>,
    epsilon: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Linear { size: f64 },
    Exponential { first: f64, ratio: f64, ln_ratio: f64 },
}

/// Why buckets cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum HistogramOptionsError {
    /// A size, ratio or weight is not positive, or the ratio does not grow.
    #[error("maximum, bucket size and epsilon must be over 0, and a ratio over 1")]
    NotPositive,
    /// There would be more buckets than [`MAX_BUCKETS`].
    #[error("{0} buckets are more than {MAX_BUCKETS}")]
    TooManyBuckets(f64),
}

impl HistogramOptions {
    /// Buckets of one size, the last of which starts at `max` or later.
    pub fn linear(max: f64, size: f64, epsilon: f64) -> Result<Self, HistogramOptionsError> {
        if !(max > 0.0 && size > 0.0 && epsilon > 0.0) {
            return Err(HistogramOptionsError::NotPositive);
        }
        let count = bucket_count((max / size).ceil())?;
        let starts = (0..count).map(|bucket| f64::from(bucket) * size).collect();
        Ok(Self { shape: Shape::Linear { size }, starts, epsilon })
    }

    /// Buckets that grow: the first holds values up to `first`, each next one is `ratio` times as large, and the
    /// last starts at `max` or later.
    pub fn exponential(
        max: f64,
        first: f64,
        ratio: f64,
        epsilon: f64,
    ) -> Result<Self, HistogramOptionsError> {
        if !(max > 0.0 && first > 0.0 && ratio > 1.0 && epsilon > 0.0) {
            return Err(HistogramOptionsError::NotPositive);
        }
        let ln_ratio = float::ln(ratio);
        let count = bucket_count((float::ln(max * (ratio - 1.0) / first + 1.0) / ln_ratio).ceil())?;
        let start = |bucket: u16| match bucket {
            0 => 0.0,
            _ => first * (float::powi(ratio, bucket.into()) - 1.0) / (ratio - 1.0),
        };
        let starts = (0..count).map(start).collect();
        Ok(Self { shape: Shape::Exponential { first, ratio, ln_ratio }, starts, epsilon })
    }

    /// How many buckets there are.
    pub fn bucket_count(&self) -> usize {
        self.starts.len()
    }

    /// The index of the last bucket.
    pub(super) fn last(&self) -> u16 {
        // There are at most MAX_BUCKETS.
        u16::try_from(self.starts.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// The bucket into which a value falls. Values outside of all buckets fall into the nearest.
    pub fn find(&self, value: f64) -> u16 {
        let position = match self.shape {
            Shape::Linear { size } => value / size,
            Shape::Exponential { first, .. } if value < first => 0.0,
            Shape::Exponential { first, ratio, ln_ratio } => {
                float::ln(value * (ratio - 1.0) / first + 1.0) / ln_ratio
            }
        };
        // Truncates, and takes what is negative or not a number for 0.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bucket = position as u16;
        bucket.min(self.last())
    }

    /// Where a bucket starts; the last one for an index beyond it.
    pub fn start(&self, bucket: u16) -> f64 {
        let bucket = usize::from(bucket).min(self.starts.len() - 1);
        self.starts[bucket]
    }

    /// Where a bucket ends, which is where the next one starts. The last bucket has no end: its start.
    pub fn end(&self, bucket: u16) -> f64 {
        self.start(bucket.saturating_add(1))
    }

    /// The weight from which on a bucket counts as not empty.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }
}

/// One more than the index of the last bucket.
fn bucket_count(last: f64) -> Result<u16, HistogramOptionsError> {
    let count = last + 1.0;
    #[allow(clippy::cast_precision_loss)] // A small constant.
    if count.is_nan() || count > MAX_BUCKETS as f64 {
        return Err(HistogramOptionsError::TooManyBuckets(count));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between 1 and MAX_BUCKETS.
    Ok(count as u16)
}
