//! CPU usage from two readings of CPU time.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The least time between two readings for a rate, in nanoseconds.
const SHORTEST: i128 = 500_000_000;

/// The least age of a container whose first reading has a rate, as in metrics-server.
const FRESH: SignedDuration = SignedDuration::from_secs(10);

/// CPU usage over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Nanoseconds of CPU time per second: billionths of a core.
    pub(crate) nano_cores: u64,
    /// Over how long.
    pub(crate) over: Duration,
}

/// The last readings of all containers and pods.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    readings: HashMap<String, Reading>,
    round: u64,
    /// The time of the last round, and of this one.
    before: Option<Timestamp>,
    latest: Option<Timestamp>,
}

#[derive(Debug)]
struct Reading {
    at: Timestamp,
    nanos: u64,
    rate: Option<Rate>,
    round: u64,
}

impl Rates {
    /// Starts a round of readings.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Adds a reading of CPU time, and returns its rate, once that is known: after two readings, or after one of a container
    /// that was created since the last round and is old enough. The time before its creation does not count.
    pub(crate) fn rate(
        &mut self,
        of: &str,
        created: Option<Timestamp>,
        at: Timestamp,
        nanos: u64,
    ) -> Option<Rate> {
        let (round, before) = (self.round, self.before);
        self.latest = self.latest.max(Some(at));
        let Some(last) = self.readings.get_mut(of).filter(|last| last.nanos <= nanos) else {
            let created = created.filter(|created| before.is_some_and(|before| before < *created));
            let created = created.filter(|created| at.duration_since(*created) >= FRESH);
            let rate = created.and_then(|created| rate_of(created, at, nanos));
            self.readings.insert(of.to_owned(), Reading { at, nanos, rate, round });
            return rate;
        };
        last.round = round;
        if let Some(rate) = rate_of(last.at, at, nanos - last.nanos) {
            *last = Reading { at, nanos, rate: Some(rate), round };
        }
        last.rate
    }

    /// Ends a round: removes entries that were not read in it.
    pub(crate) fn end(&mut self) {
        let round = self.round;
        self.readings.retain(|_, reading| reading.round == round);
        self.before = self.latest;
    }
}

/// The rate between two readings, unless they are too close.
fn rate_of(from: Timestamp, to: Timestamp, used: u64) -> Option<Rate> {
    let passed = to.duration_since(from).as_nanos();
    (passed >= SHORTEST).then(|| Rate {
        nano_cores: u64::try_from(i128::from(used) * 1_000_000_000 / passed).unwrap_or(u64::MAX),
        over: Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX)),
    })
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
            let rate = rates.rate("c", None, at(millis), nanos);
            rates.end();
            rate.map(|rate| rate.nano_cores)
        };
        assert_eq!(read(0, 100), None, "one reading is none");
        assert_eq!(read(2000, 1_000_000_100), Some(500_000_000));
        assert_eq!(read(2001, 1_900_000_000), Some(500_000_000), "too close to tell");
        assert_eq!(read(3000, 1_000_000_100), Some(0));
        assert_eq!(read(5000, 500_000_000), None, "it began anew");
        assert_eq!(read(6000, 1_500_000_000), Some(1_000_000_000));
        rates.begin();
        rates.end();
        assert!(rates.readings.is_empty());
    }

    #[test]
    fn the_first_rate_of_a_container_is_over_its_own_life() {
        let mut rates = Rates::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        rates.begin();
        assert_eq!(rates.rate("old", Some(at(0)), at(100), 7), None, "it may have used it long ago");
        rates.end();
        rates.begin();
        let mut first =
            |name: &str, created: i64| rates.rate(name, Some(at(created)), at(115), 3_000_000_000);
        let new = first("new", 103).unwrap();
        assert_eq!((new.nano_cores, new.over), (250_000_000, Duration::from_secs(12)));
        assert_eq!(first("fresh", 106), None, "too young");
        assert_eq!(first("missed", 99), None, "older than the last round");
        rates.end();
        rates.begin();
        let fresh = rates.rate("fresh", Some(at(106)), at(130), 6_000_000_000).unwrap();
        assert_eq!((fresh.nano_cores, fresh.over), (200_000_000, Duration::from_secs(15)));
    }
}
