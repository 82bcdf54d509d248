//! `CrashLoopBackOff`: the backoff before a container that exits repeatedly is restarted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plumb_supervise::Exponential;

/// The kubelet's delays.
const DELAYS: Exponential = Exponential::new(Duration::from_secs(10), Duration::from_mins(5));
/// A container that ran for this long has no earlier restarts.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(600);

/// How long a container waits before its next start. The first restart comes at once; then it is 10 s and twice as long
/// each time, 5 minutes at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashLoopBackoff {
    restarts: u32,
}

impl CrashLoopBackoff {
    /// When a container may be started again that ended at `finished`.
    pub fn until(self, finished: Timestamp) -> Timestamp {
        finished.saturating_add(self.wait()).unwrap_or(Timestamp::MAX)
    }

    /// Whether it waits at all.
    pub fn waits(self) -> bool {
        self.restarts > 0
    }

    /// How long it waits.
    pub fn wait(self) -> SignedDuration {
        SignedDuration::try_from(DELAYS.after(self.restarts)).unwrap_or(SignedDuration::MAX)
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
    fn it_doubles_up_to_five_minutes_and_forgives_after_ten() {
        let mut backoff = CrashLoopBackoff::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(backoff.wait().as_secs());
            backoff = backoff.restarted(SignedDuration::from_secs(1));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.restarted(FORGIVEN).wait(), SignedDuration::from_secs(10));
    }
}
