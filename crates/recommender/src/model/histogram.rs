//! Histograms of usage: how often, by weight, a container used how much.
//!
//! A [`DecayingHistogram`] gives a sample half the weight of one that is a half-life younger. Percentiles are
//! the end of the bucket in which the percentile falls, as upstream's are: a histogram never claims to know
//! more than its buckets, and errs upwards.
//!
//! Hundreds of thousands of histograms are in memory at once, so they hold only numbers: the weights of the
//! buckets that have any, packed, with a bitmap of which those are. Shared values, the [`HistogramOptions`] and the
//! half-life, are passed to each call; every call on one histogram passes the same.
//!
//! The order of floating-point operations is upstream's, so that the same samples give the same bits.

mod buckets;
mod decaying;
mod load;
mod options;

pub use decaying::{DecayingHistogram, DecayingHistogramOptions};
pub use load::{HistogramCheckpoint, HistogramCheckpointError, MAX_CHECKPOINT_WEIGHT};
pub use options::{HistogramOptions, HistogramOptionsError, MAX_BUCKETS};

use buckets::Buckets;

/// A distribution of values over buckets, without decay.
///
/// A bucket whose weight is below [`HistogramOptions::epsilon`] counts as empty: percentiles do not see it
/// unless it lies between two that are not.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    buckets: Buckets,
    total: f64,
    /// The first bucket that is not empty; the last bucket of all if every one is.
    min: u16,
    /// The last bucket that is not empty; 0 if every one is.
    max: u16,
}

impl Histogram {
    /// A histogram with no weight in it.
    pub fn new(options: &HistogramOptions) -> Self {
        Self { buckets: Buckets::default(), total: 0.0, min: options.last(), max: 0 }
    }

    /// Adds a sample. A weight that is negative or not a number is ignored.
    pub fn add(&mut self, options: &HistogramOptions, value: f64, weight: f64) {
        if weight.is_nan() || weight < 0.0 {
            return;
        }
        let bucket = options.find(value);
        let sum = self.buckets.add(bucket, weight);
        self.total += weight;
        if sum >= options.epsilon() {
            self.min = self.min.min(bucket);
            self.max = self.max.max(bucket);
        }
    }

    /// Removes a sample that was added before. The weight of a bucket and the total never fall below zero.
    pub fn subtract(&mut self, options: &HistogramOptions, value: f64, weight: f64) {
        if weight.is_nan() || weight < 0.0 {
            return;
        }
        let bucket = options.find(value);
        let epsilon = options.epsilon();
        self.total = subtract_to_zero(self.total, weight, epsilon);
        self.buckets.set(bucket, subtract_to_zero(self.buckets.get(bucket), weight, epsilon));
        self.drop_empty_ends(options);
    }

    /// Adds everything that `other` counts. Both use the same options.
    pub fn merge(&mut self, other: &Self) {
        self.merge_scaled(other, 1.0, other.min, other.max);
    }

    /// Adds the buckets `min` to `max` of `other`, and its total, each times `factor`.
    fn merge_scaled(&mut self, other: &Self, factor: f64, min: u16, max: u16) {
        self.buckets.merge(&other.buckets, factor, min, max);
        self.total += other.total * factor;
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Multiplies every weight. Percentiles stay as they are, except where a bucket becomes empty.
    pub fn scale(&mut self, options: &HistogramOptions, factor: f64) {
        self.buckets.scale(factor, self.min, self.max);
        self.total *= factor;
        self.drop_empty_ends(options);
    }

    /// The end of the bucket in which this percentile, between 0 and 1, falls; 0 if the histogram is empty.
    /// The last bucket has no end, and its start is returned.
    pub fn percentile(&self, options: &HistogramOptions, percentile: f64) -> f64 {
        if self.is_empty(options) {
            return 0.0;
        }
        let threshold = percentile * self.total;
        let mut sum = 0.0;
        let bucket = self
            .buckets
            .within(self.min, self.max)
            .find(|&(bucket, weight)| {
                sum += weight;
                bucket >= self.max || sum >= threshold
            })
            .map_or(self.max, |(bucket, _)| bucket);
        options.end(bucket)
    }

    /// Whether no bucket has weight that counts.
    pub fn is_empty(&self, options: &HistogramOptions) -> bool {
        self.buckets.get(self.min) < options.epsilon()
    }

    /// The weight of all samples together.
    pub fn total_weight(&self) -> f64 {
        self.total
    }

    /// The buckets that have weight, from the first that is not empty to the last, with their weights.
    pub fn weights(&self) -> impl Iterator<Item = (u16, f64)> + '_ {
        self.buckets.within(self.min, self.max)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.buckets.heap_bytes()
    }

    /// Moves the ends inwards past buckets that are empty now.
    fn drop_empty_ends(&mut self, options: &HistogramOptions) {
        let (min, max) = self.ends(options, 1.0);
        self.min = min;
        self.max = max;
    }

    /// The ends as they are once every weight is multiplied by `factor`.
    fn ends(&self, options: &HistogramOptions, factor: f64) -> (u16, u16) {
        let counts = |&(_, weight): &(u16, f64)| weight * factor >= options.epsilon();
        let first = self.buckets.within(self.min, u16::MAX).find(counts);
        let last = self.buckets.within(0, self.max).rev().find(counts);
        (first.map_or(options.last(), |(bucket, _)| bucket), last.map_or(0, |(bucket, _)| bucket))
    }
}

fn subtract_to_zero(from: f64, weight: f64, epsilon: f64) -> f64 {
    let rest = from - weight;
    if rest < epsilon { 0.0 } else { rest }
}
