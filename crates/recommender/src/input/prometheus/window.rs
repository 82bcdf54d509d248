//! A long time in windows.

use std::time::Duration;

use jiff::Timestamp;

/// The most points of one series in a window: less than the 11,000 that Prometheus answers with.
const MOST_POINTS: i64 = 10_000;
/// The longest window, unless it has one point.
const LONGEST: i64 = 24 * 60 * 60 * 1_000;

/// Points in time from the first to the last, which both belong to it, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) step: i64,
}

impl Window {
    /// How many points there are.
    pub(super) fn points(self) -> i64 {
        (self.last - self.first) / self.step + 1
    }
}

/// What is left of a long time.
#[derive(Debug)]
pub(super) struct Windows {
    next: i64,
    end: i64,
    step: i64,
    /// How many points a window has.
    points: i64,
}

impl Windows {
    /// The time until then that is so long, in steps.
    pub(super) fn new(until: Timestamp, length: Duration, step: Duration) -> Self {
        let millis = |of: Duration| i64::try_from(of.as_millis()).unwrap_or(i64::MAX);
        let end = until.as_millisecond();
        let step = millis(step).max(1);
        let start = end.saturating_sub(millis(length)).max(0);
        Self { next: start, end, step, points: (LONGEST / step).clamp(1, MOST_POINTS) }
    }

    /// The next window, again and again until it is [`done`](Self::done).
    pub(super) fn next_window(&self) -> Option<Window> {
        let last = self.next.saturating_add((self.points - 1).saturating_mul(self.step));
        let within = (self.end - self.next) / self.step * self.step;
        (self.next <= self.end).then(|| Window {
            first: self.next,
            last: last.min(self.next + within),
            step: self.step,
        })
    }

    /// Goes on behind a window.
    pub(super) fn done(&mut self, window: Window) {
        self.next = window.last.saturating_add(self.step);
    }

    /// Makes windows half as long as this one.
    pub(super) fn halve(&mut self, window: Window) {
        self.points = (window.points() / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: i64 = 3_600_000;

    fn all(mut windows: Windows) -> Vec<Window> {
        let mut all = Vec::new();
        while let Some(window) = windows.next_window() {
            all.push(window);
            windows.done(window);
        }
        all
    }

    #[test]
    fn eight_days_are_eight_windows_and_one_point() {
        let until = Timestamp::from_millisecond(1_767_225_600_000).unwrap();
        let windows = all(Windows::new(until, Duration::from_hours(192), Duration::from_hours(1)));
        assert_eq!(windows.len(), 9);
        assert_eq!(
            windows[0],
            Window {
                first: 1_767_225_600_000 - 192 * HOUR,
                last: 1_767_225_600_000 - 169 * HOUR,
                step: HOUR
            }
        );
        assert_eq!(windows[8], Window { first: 1_767_225_600_000, last: 1_767_225_600_000, step: HOUR });
        assert_eq!(windows[0].points(), 24);
    }

    proptest! {
        #[test]
        fn windows_have_every_point_once(
            length in 0_u64..1_000_000, step in 1_u64..200_000, halvings in proptest::collection::vec(any::<bool>(), 0..12),
        ) {
            let until = Timestamp::from_second(2_000_000).unwrap();
            let mut windows = Windows::new(until, Duration::from_secs(length), Duration::from_secs(step));
            let mut halvings = halvings.into_iter();
            let mut points = Vec::new();
            while let Some(window) = windows.next_window() {
                prop_assert!((1..=MOST_POINTS).contains(&window.points()));
                if halvings.next() == Some(true) {
                    windows.halve(window);
                    continue;
                }
                points.extend((0..window.points()).map(|point| window.first + point * window.step));
                windows.done(window);
            }
            let step = i64::try_from(step * 1_000).unwrap();
            let start = 2_000_000_000 - i64::try_from(length * 1_000).unwrap();
            let expected: Vec<i64> = (start..=2_000_000_000).step_by(usize::try_from(step).unwrap()).collect();
            prop_assert_eq!(points, expected);
        }
    }
}
