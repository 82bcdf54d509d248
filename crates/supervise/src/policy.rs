//! When a task is restarted.

use std::time::Duration;

use crate::backoff::Exponential;

/// How a task that failed is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a restart waits.
    pub delays: Exponential,
    /// A run of this length makes the next failure a first one again.
    pub stable: Duration,
    /// After so many failures in a row a task counts as failing, and the process as not live.
    pub failing_after: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            delays: Exponential::new(Duration::from_millis(100), Duration::from_secs(30)),
            stable: Duration::from_mins(1),
            failing_after: 6,
        }
    }
}
