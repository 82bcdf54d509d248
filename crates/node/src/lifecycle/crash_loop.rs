//! How long a container that keeps ending is left alone.

use jiff::{SignedDuration, Timestamp};

/// After the first restart.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
/// At most.
const LONGEST: SignedDuration = SignedDuration::from_secs(300);
/// A container that ran for this long is as good as new.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(600);

/// How long a container is left alone before its next start. The first restart comes at once; then it is 10 s and
/// twice as long each time, 5 minutes at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    wait: SignedDuration,
}

impl Backoff {
    /// When a container may be started again that ended at `finished`.
    pub fn until(self, finished: Timestamp) -> Timestamp {
        finished.saturating_add(self.wait).unwrap_or(Timestamp::MAX)
    }

    /// Whether it waits at all.
    pub fn waits(self) -> bool {
        self.wait > SignedDuration::ZERO
    }

    /// How long it waits.
    pub fn wait(self) -> SignedDuration {
        self.wait
    }

    /// The one for the next time, after a container that had run for `ran` was started again.
    #[must_use]
    pub fn restarted(self, ran: SignedDuration) -> Self {
        let wait = if ran >= FORGIVEN || self.wait < FIRST { FIRST } else { (self.wait * 2).min(LONGEST) };
        Self { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_five_minutes_and_forgives_after_ten() {
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(backoff.wait().as_secs());
            backoff = backoff.restarted(SignedDuration::from_secs(1));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.restarted(FORGIVEN).wait(), FIRST);
    }
}
