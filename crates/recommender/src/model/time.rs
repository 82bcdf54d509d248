//! Points in time as the model stores them: nanoseconds in 8 bytes, with the arithmetic of Go's `time.Time`.
//!
//! Upstream's numbers depend on that arithmetic: differences saturate at the ends of an `i64`, rounding is done
//! on a grid that starts at Go's zero time (year 1), and the zero time stands for "not set".

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// Nanoseconds from Go's zero time, 0001-01-01T00:00:00Z, to the Unix epoch.
const ZERO_TIME_TO_EPOCH: i128 = 62_135_596_800 * NANOS_PER_SECOND;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A point in time between 1677 and 2262, or [`Time::UNSET`].
///
/// `UNSET` is Go's zero time: it sorts before every other time, and checkpoints write it as `null`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A timestamp that [`Time`] cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timestamp {0} is not between the years 1677 and 2262")]
pub struct TimeOutOfRange(pub Timestamp);

impl Time {
    /// No time yet: Go's zero time.
    pub const UNSET: Self = Self(i64::MIN);
    /// The latest time there is, in the year 2262.
    pub const MAX: Self = Self(i64::MAX);
    /// The earliest time that is set, in the year 1677.
    pub const MIN: Self = Self(i64::MIN + 1);

    /// So many seconds after the Unix epoch, limited to the range of this type.
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self::from_unix_nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// So many nanoseconds after the Unix epoch.
    pub const fn from_unix_nanos(nanos: i64) -> Self {
        if nanos == i64::MIN { Self::MIN } else { Self(nanos) }
    }

    /// Nanoseconds after the Unix epoch; none if unset.
    pub const fn unix_nanos(self) -> Option<i64> {
        if self.is_set() { Some(self.0) } else { None }
    }

    /// Whether this is a real time rather than [`Time::UNSET`].
    pub const fn is_set(self) -> bool {
        self.0 != i64::MIN
    }

    /// The timestamp for API objects and messages; none if unset.
    pub fn timestamp(self) -> Option<Timestamp> {
        self.unix_nanos().and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok())
    }

    /// Reads a timestamp of an API object, where an absent one is [`Time::UNSET`].
    pub fn from_api(timestamp: Option<Timestamp>) -> Result<Self, TimeOutOfRange> {
        timestamp.map_or(Ok(Self::UNSET), Self::try_from)
    }

    /// The same time without fractions of a second, which is all that API objects carry.
    #[must_use]
    pub const fn truncated_to_seconds(self) -> Self {
        if !self.is_set() {
            return self;
        }
        let seconds = self.0.div_euclid(1_000_000_000);
        Self::from_unix_seconds(seconds)
    }

    /// Nanoseconds from `earlier` to this time, negative if it is later; saturates as Go's `Time.Sub`.
    pub(crate) fn nanos_since(self, earlier: Self) -> i64 {
        match (self.is_set(), earlier.is_set()) {
            (true, true) => self.0.saturating_sub(earlier.0),
            (false, false) => 0,
            // Year 1 is more than 292 years away from every time that is set.
            (true, false) => i64::MAX,
            (false, true) => i64::MIN,
        }
    }

    /// How long after `earlier` this time is; zero if it is before.
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos_since(earlier)).unwrap_or_default())
    }

    /// This time moved by so many nanoseconds, at most to the end of the range. `UNSET` stays as it is.
    #[must_use]
    pub(crate) fn plus_nanos(self, nanos: i64) -> Self {
        if self.is_set() { Self::from_unix_nanos(self.0.saturating_add(nanos)) } else { self }
    }

    /// The nearest multiple of `step` nanoseconds since Go's zero time, halves up, as Go's `Time.Round`.
    #[must_use]
    pub(crate) fn rounded_to(self, step: i64) -> Self {
        if !self.is_set() || step <= 0 {
            return self;
        }
        let step = i128::from(step);
        let since_zero = i128::from(self.0) + ZERO_TIME_TO_EPOCH;
        let over = since_zero.rem_euclid(step);
        let rounded = if over + over < step { since_zero - over } else { since_zero - over + step };
        let nanos = rounded - ZERO_TIME_TO_EPOCH;
        // A step of centuries may round to before 1677 or beyond 2262.
        i64::try_from(nanos).map_or(if nanos < 0 { Self::MIN } else { Self::MAX }, Self::from_unix_nanos)
    }
}

/// `UNSET`.
impl Default for Time {
    fn default() -> Self {
        Self::UNSET
    }
}

impl TryFrom<Timestamp> for Time {
    type Error = TimeOutOfRange;

    fn try_from(timestamp: Timestamp) -> Result<Self, TimeOutOfRange> {
        let nanos = timestamp.as_nanosecond();
        if nanos == -ZERO_TIME_TO_EPOCH {
            return Ok(Self::UNSET);
        }
        i64::try_from(nanos).map(Self::from_unix_nanos).map_err(|_| TimeOutOfRange(timestamp))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// RFC 3339, or `unset`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timestamp() {
            Some(timestamp) => fmt::Display::fmt(&timestamp, f),
            None => f.write_str("unset"),
        }
    }
}

/// A duration in nanoseconds, limited to what Go's `time.Duration` holds.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
