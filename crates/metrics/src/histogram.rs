//! Histograms of integers and durations, without locks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::text::Text;

/// The unit of the values of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds, rendered as seconds.
    Time,
    /// Integers, rendered unchanged.
    Number,
}

/// A histogram of integer values. Bounds and sum are integers, so counting needs only atomic additions.
pub struct Histogram {
    unit: Unit,
    bounds: &'static [u64],
    /// The number of values in each bucket; the last bucket has no upper bound.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram with ascending bounds.
    pub fn new(unit: Unit, bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { unit, bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        // A linear search is fast because most values are within the first bounds.
        let index = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.buckets[index].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a duration; the unit must be time.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(nanoseconds(duration));
    }

    /// The number of counted values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Writes the series of the histogram with the buckets that `wanted` selects.
    pub fn render(&self, text: &mut Text, name: &str, labels: &[(&str, &str)], wanted: impl Fn(u64) -> bool) {
        let mut total = 0;
        let bucket = format!("{name}_bucket");
        let with_bound = |text: &mut Text, bound: &str, total: u64| {
            let mut all = labels.to_vec();
            all.push(("le", bound));
            text.sample(&bucket, &all, total);
        };
        for (bound, count) in self.bounds.iter().zip(&self.buckets) {
            total += count.load(Relaxed);
            if wanted(*bound) {
                with_bound(text, &self.format(*bound), total);
            }
        }
        total += self.buckets.last().map_or(0, |last| last.load(Relaxed));
        with_bound(text, "+Inf", total);
        text.sample(&format!("{name}_sum"), labels, self.format(self.sum.load(Relaxed)));
        text.sample(&format!("{name}_count"), labels, total);
    }

    fn format(&self, value: u64) -> String {
        match self.unit {
            Unit::Number => value.to_string(),
            Unit::Time => seconds(value),
        }
    }
}

/// A duration in nanoseconds, the unit of [`Unit::Time`].
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats nanoseconds as seconds, without trailing zeros.
pub fn seconds(nanoseconds: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let text = format!("{}.{:09}", nanoseconds / SECOND, nanoseconds % SECOND);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::new(Unit::Time, &[5_000_000, 1_000_000_000]);
        for value in [1_000_000, 5_000_000, 6_000_000, 2_500_000_000] {
            histogram.observe(value);
        }
        let mut text = Text::default();
        histogram.render(&mut text, "d", &[("a", "b")], |_| true);
        assert_eq!(
            text.finish(),
            "d_bucket{a=\"b\",le=\"0.005\"} 2\nd_bucket{a=\"b\",le=\"1\"} 3\nd_bucket{a=\"b\",le=\"+Inf\"} 4\n\
             d_sum{a=\"b\"} 2.512\nd_count{a=\"b\"} 4\n"
        );
    }
}
