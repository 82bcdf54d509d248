//! Distributions, counted without a lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::text::Text;

/// What a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds, shown as seconds.
    Time,
    /// Whole numbers of anything, shown as they are.
    Number,
}

/// How many values were at most each bound. Bounds and sum are whole numbers of the unit, so that counting is adding.
pub struct Histogram {
    unit: Unit,
    bounds: &'static [u64],
    /// One more than bounds; each counts what no smaller bound does.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one with these bounds, the smallest first.
    pub fn new(unit: Unit, bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { unit, bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        // Most values are within the first bounds.
        let place = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.buckets[place].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a duration, where the unit is time.
    pub fn observe_duration(&self, took: Duration) {
        self.observe(nanoseconds(took));
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Writes the series of those bounds that are wanted.
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
                with_bound(text, &self.shown(*bound), total);
            }
        }
        total += self.buckets.last().map_or(0, |last| last.load(Relaxed));
        with_bound(text, "+Inf", total);
        text.sample(&format!("{name}_sum"), labels, self.shown(self.sum.load(Relaxed)));
        text.sample(&format!("{name}_count"), labels, total);
    }

    fn shown(&self, value: u64) -> String {
        match self.unit {
            Unit::Number => value.to_string(),
            Unit::Time => seconds(value),
        }
    }
}

/// A duration in nanoseconds, as a histogram of time counts it.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as seconds, with as many places as they need.
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
    fn a_value_counts_for_every_bound_that_it_is_within() {
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
