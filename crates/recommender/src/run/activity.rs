//! Whether runs take place when they are due, for health checks.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many intervals late a run may be.
const INTERVALS: u32 = 5;

/// When the next run has to be over.
#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<Option<Instant>>);

impl Activity {
    /// A run, or what comes before the first one, has begun, or is due then.
    pub(super) fn expect(&self, from: Instant, interval: Duration) {
        self.set(from.checked_add(interval.saturating_mul(INTERVALS)));
    }

    /// No run is due: there are no VPAs, or another process leads.
    pub(super) fn rest(&self) {
        self.set(None);
    }

    /// For how long a run has been overdue, if one is.
    pub(super) fn overdue(&self, now: Instant) -> Option<Duration> {
        let deadline = *self.0.lock();
        now.checked_duration_since(deadline?).filter(|late| !late.is_zero())
    }

    fn set(&self, deadline: Option<Instant>) {
        *self.0.lock() = deadline;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_overdue_five_intervals_after_it_should_have_begun() {
        let (start, minute) = (Instant::now(), Duration::from_mins(1));
        let activity = Activity::default();
        assert_eq!(activity.overdue(start + 100 * minute), None);
        activity.expect(start, minute);
        assert_eq!(activity.overdue(start + 5 * minute), None);
        assert_eq!(activity.overdue(start + 7 * minute), Some(2 * minute));
        activity.rest();
        assert_eq!(activity.overdue(start + 100 * minute), None);
    }
}
