//! Clocks that tests move.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plumb_controller_runtime::Clock;
use tokio::time::Instant;

/// A clock that begins at a time and goes with Tokio's: in a test with paused time it jumps to the next moment at which
/// something is due, as soon as nothing else can run.
///
/// # Panics
/// If the time is too far in the future to be represented.
pub fn virtual_clock(start: Timestamp) -> Clock {
    let began = Instant::now();
    Clock::with_wall(move || {
        let elapsed = SignedDuration::try_from(began.elapsed()).expect("a test lasts less than a human life");
        start + elapsed
    })
}

/// The machine's clocks, which a test sets ahead. Waits are slept in real time, so that a waiting task is woken by an event
/// and not by the clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    ahead: Arc<AtomicU64>,
}

impl ManualClock {
    /// The clock.
    ///
    /// # Panics
    /// Later, if the time is too far in the future to be represented.
    pub fn clock(&self) -> Clock {
        let (wall, monotonic) = (self.clone(), self.clone());
        let wall = move || {
            Timestamp::now() + SignedDuration::try_from(wall.ahead()).expect("a test is ahead by hours")
        };
        Clock::with_wall(wall).with_monotonic(move || Instant::now() + monotonic.ahead())
    }

    /// By how much the clock is ahead.
    pub fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead.load(Ordering::SeqCst))
    }

    /// Sets by how much the clock is ahead.
    pub fn set_ahead(&self, ahead: Duration) {
        self.ahead.store(u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the clock further ahead.
    pub fn advance(&self, by: Duration) {
        self.ahead.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}
