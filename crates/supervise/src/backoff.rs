//! When a task is restarted.

use std::time::Duration;

/// How a task that failed is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long the first restart waits; each further one waits twice as long.
    pub first: Duration,
    /// The longest wait.
    pub ceiling: Duration,
    /// A run of this length makes the next failure a first one again.
    pub stable: Duration,
    /// After so many failures in a row a task counts as failing, and the process as not live.
    pub failing_after: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            ceiling: Duration::from_secs(30),
            stable: Duration::from_mins(1),
            failing_after: 6,
        }
    }
}

impl Policy {
    /// How long a restart waits after so many failures in a row, of which there is one at least.
    pub(crate) fn wait(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(20));
        self.first.saturating_mul(doubled).min(self.ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_restart_waits_twice_as_long_up_to_a_ceiling() {
        let policy = Policy::default();
        let waits: Vec<u128> =
            [1, 2, 3, 9, 10, u32::MAX].map(|failures| policy.wait(failures).as_millis()).into();
        assert_eq!(waits, [100, 200, 400, 25_600, 30_000, 30_000]);
    }
}
