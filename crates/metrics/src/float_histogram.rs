//! Distributions of values that are no whole numbers, counted without a lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::text::Text;

/// How many values were at most each bound. Values may be fractions and negative; where they are whole numbers or times,
/// [`Histogram`](crate::Histogram) counts them exactly.
pub struct FloatHistogram {
    bounds: &'static [f64],
    /// One more than bounds; each counts what no smaller bound does.
    buckets: Box<[AtomicU64]>,
    /// The bits of the sum.
    sum: AtomicU64,
}

impl FloatHistogram {
    /// An empty one with these bounds, the smallest first.
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    /// Counts a value. What is not a number is not counted.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[place].fetch_add(1, Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // The closure always answers, so the update is always made.
        let _ = self.sum.fetch_update(Relaxed, Relaxed, add);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Writes the series.
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
    fn a_value_counts_for_every_bound_that_it_is_within() {
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
