//! Histograms of floating-point values, without locks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::text::Text;

/// A histogram of values that can be fractions or negative. For integers and durations,
/// [`Histogram`](crate::Histogram) is exact.
pub struct FloatHistogram {
    bounds: &'static [f64],
    /// The number of values in each bucket; the last bucket has no upper bound.
    buckets: Box<[AtomicU64]>,
    /// The bits of the sum of all values.
    sum: AtomicU64,
}

impl FloatHistogram {
    /// Creates an empty histogram with ascending bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    /// Counts a value. NaN is ignored.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let index = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[index].fetch_add(1, Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // The closure never returns `None`, so the update cannot fail.
        let _ = self.sum.fetch_update(Relaxed, Relaxed, add);
    }

    /// The number of counted values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Writes the series of the histogram.
    pub fn render(&self, text: &mut Text, name: &str, labels: &[(&str, &str)]) {
        let bucket = format!("{name}_bucket");
        let mut total = 0;
        let infinite = "+Inf".to_owned();
        let bounds = self.bounds.iter().map(f64::to_string).chain([infinite]);
        for (bound, count) in bounds.zip(&self.buckets) {
            total += count.load(Relaxed);
            let mut all = labels.to_vec();
            all.push(("le", &bound));
            text.sample(&bucket, &all, total);
        }
        text.sample(&format!("{name}_sum"), labels, f64::from_bits(self.sum.load(Relaxed)));
        text.sample(&format!("{name}_count"), labels, total);
    }
}

impl fmt::Debug for FloatHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FloatHistogram").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = FloatHistogram::new(&[-0.5, 0.0, 2.5]);
        for value in [-1.0, -0.5, 0.0, 0.25, 3.0, f64::NAN] {
            histogram.observe(value);
        }
        let mut text = Text::default();
        histogram.render(&mut text, "d", &[("a", "b")]);
        assert_eq!(
            text.finish(),
            "d_bucket{a=\"b\",le=\"-0.5\"} 2\nd_bucket{a=\"b\",le=\"0\"} 3\nd_bucket{a=\"b\",le=\"2.5\"} 4\n\
             d_bucket{a=\"b\",le=\"+Inf\"} 5\nd_sum{a=\"b\"} 1.75\nd_count{a=\"b\"} 5\n"
        );
    }
}
