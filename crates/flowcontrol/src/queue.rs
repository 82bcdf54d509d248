//! One queue of a level.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use crate::slab::Index;

/// Seats times time, in seat-nanoseconds: the unit of work, and of the progress meter R. It has 128 bits, so that it neither overflows
/// nor has to be wound back, and a sign, because the correction after a request may lead below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatTime(i128);

impl SeatTime {
    /// The work of so many seats for so long.
    pub fn new(seats: u32, time: Duration) -> Self {
        // 2^32 seats for 2^94 nanoseconds; a `Duration` has fewer.
        Self(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX).saturating_mul(i128::from(seats)))
    }

    /// The progress of each of several queues that share these seats for so long.
    pub(crate) fn shared(seats: u32, time: Duration, queues: u32) -> Self {
        Self(Self::new(seats, time).0 / i128::from(queues.max(1)))
    }

    /// For how long so many seats do this work.
    pub(crate) fn per_seat(self, seats: u32) -> Duration {
        let nanos = self.0.max(0) / i128::from(seats.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Add for SeatTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for SeatTime {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for SeatTime {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for SeatTime {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

/// As upstream's dumps print it: seat-seconds with eight decimals.
impl fmt::Display for SeatTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let (seconds, decimals) = (nanos / 1_000_000_000, nanos % 1_000_000_000 / 10);
        write!(f, "{sign}{seconds}.{decimals:08}ss")
    }
}

/// A queue with requests: waiting, executing, or with seats that are still occupied after their response. Queues without any do not
/// exist, so that a level may have millions.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The waiting requests, the oldest first.
    pub(crate) waiting: VecDeque<Index>,
    /// Sums over the waiting requests.
    pub(crate) sum: QueueSum,
    /// The requests that are executing.
    pub(crate) executing: u32,
    /// The seats of requests that are executing, and of those after their response.
    pub(crate) seats_in_use: u32,
    /// The reading of the progress meter at which the next request is dispatched in the virtual world, where each queue gets an equal
    /// part of the seats at every instant.
    pub(crate) next_dispatch_r: SeatTime,
}

/// Sums over the requests that wait in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSum {
    /// Of their initial seats.
    pub initial_seats: u64,
    /// Of the most seats of each.
    pub max_seats: u64,
    /// Of their work.
    pub work: SeatTime,
}

impl Queue {
    /// Whether requests wait or execute. Seats that are occupied after a response do not count.
    pub(crate) fn is_active(&self) -> bool {
        !self.waiting.is_empty() || self.executing > 0
    }

    pub(crate) fn is_unused(&self) -> bool {
        !self.is_active() && self.seats_in_use == 0
    }
}
