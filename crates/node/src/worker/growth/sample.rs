//! The rate at which the usage of a container grows.

use std::time::Duration;

use tokio::time::Instant;

/// Samples closer than this have no rate: counters of the kernel are batched.
const SHORTEST: Duration = Duration::from_millis(1);
/// Older samples say nothing about now.
const LONGEST: Duration = Duration::from_secs(10);

/// The last sample of usage, and the rate up to it.
#[derive(Debug, Default)]
pub(super) struct Samples {
    last: Option<(Instant, i64)>,
    rate: Option<i64>,
}

impl Samples {
    /// Adds a sample; returns the rate of growth in bytes per second, if it is known.
    pub(super) fn add(&mut self, now: Instant, usage: i64) -> Option<i64> {
        let Some((at, before)) = self.last else {
            self.last = Some((now, usage));
            return None;
        };
        let elapsed = now.saturating_duration_since(at);
        if elapsed < SHORTEST {
            return self.rate;
        }
        self.last = Some((now, usage));
        self.rate = (elapsed <= LONGEST).then(|| rate(usage.saturating_sub(before), elapsed));
        self.rate
    }
}

fn rate(bytes: i64, elapsed: Duration) -> i64 {
    let nanos = i128::try_from(elapsed.as_nanos()).unwrap_or(i128::MAX).max(1);
    i64::try_from(i128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_measured_between_samples_that_are_neither_too_close_nor_too_old() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut samples = Samples::default();
        assert_eq!(samples.add(at(0), 1000), None, "one sample");
        assert_eq!(samples.add(start + Duration::from_micros(10), 9000), None, "too close");
        assert_eq!(samples.add(at(500), 2000), Some(2000));
        assert_eq!(samples.add(at(500), 5000), Some(2000), "too close: the rate before");
        assert_eq!(samples.add(at(1500), 500), Some(-1500), "usage decreases");
        assert_eq!(samples.add(at(20_000), 9000), None, "too old");
    }
}
