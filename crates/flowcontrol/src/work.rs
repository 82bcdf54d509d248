//! How many seats a request occupies, and for how long after its response: upstream's work estimator.

use std::time::Duration;

/// The bytes of a list that one seat stands for.
const BYTES_PER_SEAT: u64 = 100_000;
/// A list is copied from memory and sent in pieces, so it counts as no more bytes than this.
const LARGEST_LIST: u64 = 1_000_000;
/// The most seats of a list.
const MAX_LIST_SEATS: u32 = 100;
/// The most seats of a write.
const MAX_WRITE_SEATS: u32 = 10;
/// The watches that share a seat while the event of a write is sent to them.
const WATCHES_PER_SEAT: u32 = 10;
/// For how long each of these seats is occupied.
const EVENT_DURATION: Duration = Duration::from_millis(5);

/// The seats of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkEstimate {
    /// The seats until the response.
    pub initial_seats: u32,
    /// The seats during the additional latency, in which the event of a write is sent to watches.
    pub final_seats: u32,
    /// For how long seats stay occupied after the response. The client does not wait for it.
    pub additional_latency: Duration,
}

/// The stored objects of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Their number.
    pub count: u64,
    /// The average of their encoded sizes in bytes.
    pub average_bytes: u64,
}

impl WorkEstimate {
    /// The estimate of most requests: one seat until the response.
    pub const ONE_SEAT: Self = Self { initial_seats: 1, final_seats: 0, additional_latency: Duration::ZERO };

    /// The estimate of a list, and of a watch that begins with the objects that exist. `limit` is the page size; `max_seats` is the
    /// most of the level, if it has one.
    pub fn of_list(stats: ObjectStats, is_single: bool, limit: Option<u64>, max_seats: Option<u32>) -> Self {
        let paged = limit.filter(|limit| *limit > 0).map_or(stats.count, |limit| limit.min(stats.count));
        let objects = if is_single { 1 } else { paged };
        let bytes = objects.saturating_mul(stats.average_bytes).min(LARGEST_LIST);
        // At most LARGEST_LIST / BYTES_PER_SEAT.
        let seats = u32::try_from(bytes.div_ceil(BYTES_PER_SEAT)).unwrap_or(MAX_LIST_SEATS);
        let most = max_seats.map_or(MAX_LIST_SEATS, |most| most.clamp(1, MAX_LIST_SEATS));
        Self { initial_seats: seats.clamp(1, most), ..Self::ONE_SEAT }
    }

    /// The estimate of a write whose event is sent to so many watches. The work of many watches may be spread over fewer seats and a
    /// longer time.
    pub fn of_write(watches: u32, max_seats: Option<u32>) -> Self {
        if watches < WATCHES_PER_SEAT {
            return Self::ONE_SEAT;
        }
        let seats = watches.div_ceil(WATCHES_PER_SEAT);
        let most = max_seats.map_or(MAX_WRITE_SEATS, |most| most.clamp(1, MAX_WRITE_SEATS));
        let final_seats = seats.min(most);
        Self {
            initial_seats: 1,
            final_seats,
            additional_latency: EVENT_DURATION.saturating_mul(seats) / final_seats,
        }
    }

    /// The most seats that the request occupies at a time. They are occupied from its dispatch on.
    pub fn max_seats(&self) -> u32 {
        self.initial_seats.max(self.final_seats)
    }
}
