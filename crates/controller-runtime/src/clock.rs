//! Clocks, injected.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

/// A wall clock for timestamps in objects, and a monotonic one for waits.
///
/// The default reads the machine's clocks. Its monotonic clock is Tokio's, so that a test with paused time drives it; a
/// test that sets the time by hand makes a clock of its own.
#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    monotonic: Arc<dyn Fn() -> Instant + Send + Sync>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::with_wall(Timestamp::now)
    }
}

impl Clock {
    /// A clock that reads the given wall clock, and Tokio's monotonic one.
    pub fn with_wall(wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { wall: Arc::new(wall), monotonic: Arc::new(Instant::now) }
    }

    /// The same with another monotonic clock. Waits are slept in Tokio's time; a test that moves this clock by hand has
    /// to cause an event for it to be read.
    #[must_use]
    pub fn with_monotonic(mut self, monotonic: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.monotonic = Arc::new(monotonic);
        self
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// The monotonic clock. It stops while the machine is suspended.
    pub fn monotonic(&self) -> Instant {
        (self.monotonic)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// A time as it is in conditions and taints, which have whole seconds.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
