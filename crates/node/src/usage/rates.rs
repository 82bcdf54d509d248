//! Cpu in use, from two readings.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

/// Readings that are closer to each other than this say nothing, in nanoseconds.
const SHORTEST: i128 = 500_000_000;

/// Cpu in use over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Nanoseconds of cpu time in a second: billionths of a core.
    pub(crate) nano_cores: u64,
    /// Over how long.
    pub(crate) over: Duration,
}

/// The last readings of everything that is measured.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    readings: HashMap<String, Reading>,
    round: u64,
}

#[derive(Debug)]
struct Reading {
    at: Timestamp,
    nanos: u64,
    rate: Option<Rate>,
    round: u64,
}

impl Rates {
    /// Begins a round of readings.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Takes a reading: cpu time so far. Answers how fast it grows, once that is known.
    pub(crate) fn rate(&mut self, of: &str, at: Timestamp, nanos: u64) -> Option<Rate> {
        let round = self.round;
        let Some(last) = self.readings.get_mut(of) else {
            self.readings.insert(of.to_owned(), Reading { at, nanos, rate: None, round });
            return None;
        };
        last.round = round;
        let passed = at.duration_since(last.at).as_nanos();
        if nanos < last.nanos {
            // It began anew.
            *last = Reading { at, nanos, rate: None, round };
        } else if passed >= SHORTEST {
            let used = i128::from(nanos - last.nanos);
            let nano_cores = u64::try_from(used * 1_000_000_000 / passed).unwrap_or(u64::MAX);
            let over = Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX));
            let rate = Some(Rate { nano_cores, over });
            *last = Reading { at, nanos, rate, round };
        }
        last.rate
    }

    /// Ends a round: what was not read is gone.
    pub(crate) fn end(&mut self) {
        let round = self.round;
        self.readings.retain(|_, reading| reading.round == round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_difference_over_the_time_between() {
        let mut rates = Rates::default();
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
        let mut read = |millis: i64, nanos: u64| {
            rates.begin();
            let rate = rates.rate("c", at(millis), nanos);
            rates.end();
            rate.map(|rate| rate.nano_cores)
        };
        assert_eq!(read(0, 100), None, "one reading is none");
        assert_eq!(read(2000, 1_000_000_100), Some(500_000_000));
        assert_eq!(read(2001, 1_900_000_000), Some(500_000_000), "too close to tell");
        assert_eq!(read(3000, 1_000_000_100), Some(0));
        assert_eq!(read(9000, 5), None, "it began anew");
        assert_eq!(read(10_000, 1_000_000_005), Some(1_000_000_000));
        rates.begin();
        rates.end();
        assert!(rates.readings.is_empty());
    }
}
