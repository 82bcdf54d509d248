//! The restart policy.

use std::time::Duration;

use crate::backoff::Exponential;

/// How failed tasks are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The delays before restarts.
    pub delays: Exponential,
    /// A run of this duration resets the delays.
    pub stable: Duration,
    /// The number of failures in a row after which a task is failing, and the process is not live.
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
