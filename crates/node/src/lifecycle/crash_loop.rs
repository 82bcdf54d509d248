//! `CrashLoopBackOff`: the backoff before a container that exits repeatedly is restarted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plumb_supervise::Exponential;

/// The longest that a container waits by default, and at most (`crashLoopBackOff.maxContainerRestartPeriod` of the kubelet).
pub const MAX_RESTART_PERIOD: Duration = Duration::from_mins(5);
/// The kubelet's delays.
const DELAYS: Exponential = Exponential::new(Duration::from_secs(10), MAX_RESTART_PERIOD);
/// A container that ran for this long has no earlier restarts.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(600);

/// How long a container waits before its next start. The first restart comes at once; then it is 10 s and twice as long
/// each time, up to the longest that the node has, 5 minutes by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashLoopBackoff {
    restarts: u32,
}

impl CrashLoopBackoff {
    /// When a container may be started again that ended at `finished`, if it waits for `longest` at most.
    pub fn until(self, finished: Timestamp, longest: Duration) -> Timestamp {
        finished.saturating_add(self.wait(longest)).unwrap_or(Timestamp::MAX)
    }

    /// Whether it waits at all.
    pub fn waits(self) -> bool {
        self.restarts > 0
    }

    /// How long it waits, `longest` at most.
    pub fn wait(self, longest: Duration) -> SignedDuration {
        SignedDuration::try_from(DELAYS.after(self.restarts).min(longest)).unwrap_or(SignedDuration::MAX)
    }

    /// The one for the next time, after a container that had run for `ran` was started again.
    #[must_use]
    pub fn restarted(self, ran: SignedDuration) -> Self {
        let before = if ran >= FORGIVEN { 0 } else { self.restarts };
        Self { restarts: before.saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_longest_wait_and_forgives_after_ten_minutes() {
        let table = [
            (MAX_RESTART_PERIOD, [0, 10, 20, 40, 80, 160, 300, 300]),
            (Duration::from_secs(30), [0, 10, 20, 30, 30, 30, 30, 30]),
            (Duration::from_secs(1), [0, 1, 1, 1, 1, 1, 1, 1]),
        ];
        for (longest, expected) in table {
            let mut backoff = CrashLoopBackoff::default();
            let waits = expected.map(|_| {
                let wait = backoff.wait(longest).as_secs();
                backoff = backoff.restarted(SignedDuration::from_secs(1));
                wait
            });
            assert_eq!(waits, expected);
            let forgiven = backoff.restarted(FORGIVEN).wait(longest);
            assert_eq!(forgiven, SignedDuration::from_secs(expected[1]));
        }
    }
}
