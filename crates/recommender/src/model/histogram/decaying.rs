//! Histograms in which old samples count for less.

use std::cmp::Ordering;
use std::time::Duration;

use super::super::float;
use super::super::time::{Time, nanos};
use super::{Histogram, HistogramOptions};

/// After how many half-lives the reference time moves on, so that weights stay far from overflow.
const MAX_DECAY_EXPONENT: i64 = 100;

/// The buckets of a decaying histogram and how fast it forgets.
#[derive(Clone, Debug, PartialEq)]
pub struct DecayingHistogramOptions {
    /// How values are divided.
    pub buckets: HistogramOptions,
    /// Nanoseconds after which a sample has half its weight.
    half_life: i64,
}

impl DecayingHistogramOptions {
    /// Buckets whose samples lose half their weight with every half-life.
    pub fn new(buckets: HistogramOptions, half_life: Duration) -> Self {
        Self { buckets, half_life: nanos(half_life).max(1) }
    }

    /// For how many nanoseconds weights stay relative to the same reference time.
    pub(crate) fn reference_span(&self) -> i64 {
        self.half_life.saturating_mul(MAX_DECAY_EXPONENT)
    }

    /// The time after which a sample has half its weight.
    pub fn half_life(&self) -> Duration {
        Duration::from_nanos(self.half_life.unsigned_abs())
    }
}

/// A histogram in which the weight of a sample doubles with every half-life that it is younger.
///
/// Only the relation of weights matters, so they are all relative to a reference time, a multiple of the
/// half-life. It is unset until the first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct DecayingHistogram {
    pub(super) histogram: Histogram,
    pub(super) reference: Time,
}

impl DecayingHistogram {
    /// A histogram with no weight in it.
    pub fn new(options: &DecayingHistogramOptions) -> Self {
        Self { histogram: Histogram::new(&options.buckets), reference: Time::UNSET }
    }

    /// Adds a sample of a time.
    pub fn add(&mut self, options: &DecayingHistogramOptions, value: f64, weight: f64, at: Time) {
        let weight = weight * self.decay_factor(options, at);
        self.histogram.add(&options.buckets, value, weight);
    }

    /// Removes a sample that was added before with the same value, weight and time.
    pub fn subtract(&mut self, options: &DecayingHistogramOptions, value: f64, weight: f64, at: Time) {
        let weight = weight * self.decay_factor(options, at);
        self.histogram.subtract(&options.buckets, value, weight);
    }

    /// Adds everything that `other` counts. Both use the same options. The reference becomes the later of the
    /// two, and the histogram whose reference is earlier is scaled to it.
    pub fn merge(&mut self, options: &DecayingHistogramOptions, other: &Self) {
        match self.reference.cmp(&other.reference) {
            Ordering::Less => {
                self.move_reference(options, other.reference);
                self.histogram.merge(&other.histogram);
            }
            Ordering::Greater => {
                // Scaling only what is read leaves `other` as it is.
                let (_, factor) = other.moved_reference(options, self.reference);
                let (min, max) = other.histogram.ends(&options.buckets, factor);
                self.histogram.merge_scaled(&other.histogram, factor, min, max);
            }
            Ordering::Equal => self.histogram.merge(&other.histogram),
        }
    }

    /// See [`Histogram::percentile`].
    pub fn percentile(&self, options: &DecayingHistogramOptions, percentile: f64) -> f64 {
        self.histogram.percentile(&options.buckets, percentile)
    }

    /// Whether no bucket has weight that counts.
    pub fn is_empty(&self, options: &DecayingHistogramOptions) -> bool {
        self.histogram.is_empty(&options.buckets)
    }

    /// The time at which a sample has just the weight that it is added with; unset before the first.
    pub fn reference(&self) -> Time {
        self.reference
    }

    /// The weights as they are, relative to the reference time.
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.histogram.heap_bytes()
    }

    /// Makes every sample older by at least so many nanoseconds, in whole half-lives.
    pub(crate) fn date_back(&mut self, options: &DecayingHistogramOptions, by: i64) {
        let half_lives = by / options.half_life + i64::from(by % options.half_life > 0);
        self.reference = self.reference.plus_nanos(-half_lives.saturating_mul(options.half_life));
    }

    fn decay_factor(&mut self, options: &DecayingHistogramOptions, at: Time) -> f64 {
        let latest = self.reference.plus_nanos(options.reference_span());
        if at > latest {
            self.move_reference(options, at);
        }
        float::exp2(in_half_lives(at.nanos_since(self.reference), options))
    }

    fn move_reference(&mut self, options: &DecayingHistogramOptions, to: Time) {
        let (reference, factor) = self.moved_reference(options, to);
        self.histogram.scale(&options.buckets, factor);
        self.reference = reference;
    }

    /// The reference next to a time, and what weights are multiplied by to be relative to it.
    fn moved_reference(&self, options: &DecayingHistogramOptions, to: Time) -> (Time, f64) {
        let reference = to.rounded_to(options.half_life);
        let half_lives = in_half_lives(self.reference.nanos_since(reference), options);
        #[allow(clippy::cast_possible_truncation)]
        // Saturates; beyond a few thousand the power is 0 or infinite.
        let exponent = (half_lives + 0.5).floor() as i32;
        (reference, float::ldexp(1.0, exponent))
    }
}

#[allow(clippy::cast_precision_loss)] // As upstream divides two int64 as float64.
fn in_half_lives(nanos: i64, options: &DecayingHistogramOptions) -> f64 {
    nanos as f64 / options.half_life as f64
}
