//! The times at which a schedule is due.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::ScheduleError;
use crate::parse;

/// The number of days that are searched for the next time: there is a February 29 at least every eight years.
const MAX_DAYS: usize = 8 * 366;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// The schedule of a `CronJob`.
///
/// ```
/// use jiff::tz::TimeZone;
/// use plumb_cron::Schedule;
///
/// let schedule = Schedule::parse("*/15 9-17 * * mon-fri").unwrap();
/// let next = schedule.next("2026-01-02T17:45:00Z".parse().unwrap(), &TimeZone::UTC);
/// assert_eq!(next.unwrap().to_string(), "2026-01-05T09:00:00Z");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    times: Times,
    zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Every minute that matches all fields.
    Fields(Fields),
    /// At a fixed interval.
    Every(SignedDuration),
}

/// The five fields, each a set with one bit for each number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) minutes: u64,
    pub(crate) hours: u64,
    pub(crate) days: u64,
    pub(crate) months: u64,
    pub(crate) weekdays: u64,
    /// Whether a day must match both the day of the month and the day of the week, since one of them is `*`; otherwise one of
    /// them is enough.
    pub(crate) both_days: bool,
}

impl Schedule {
    /// Parses a schedule.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let (zone, rest) = parse::split_zone(text);
        Ok(Self { times: parse::times(rest)?, zone: zone.map(str::to_owned) })
    }

    /// The time zone in the schedule (`TZ=` or `CRON_TZ=`), which takes precedence over `timeZone`. The name is not
    /// validated.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The first time after `after` at which the schedule is due in a time zone; `None` if it is never due.
    ///
    /// When clocks are set back, a repeated time is due twice; when they are set forward, a skipped time is not due.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let fields = match &self.times {
            Times::Every(interval) => {
                return Timestamp::from_second(after.as_second()).ok()?.checked_add(*interval).ok();
            }
            // A field such as `,` is valid and matches nothing: minutes need not be searched one by one.
            Times::Fields(fields) if [fields.minutes, fields.hours, fields.months].contains(&0) => {
                return None;
            }
            Times::Fields(fields) => fields,
        };
        let minute = after.as_second().div_euclid(60) + 1;
        let mut at = Timestamp::from_second(minute * 60).ok()?;
        let mut days = 0;
        while days < MAX_DAYS {
            let local = zone.to_datetime(at);
            if !fields.has_day(local) {
                let next = local.date().tomorrow().ok()?.to_datetime(Time::midnight());
                at = next.to_zoned(zone.clone()).ok()?.timestamp();
                days += 1;
            } else if !has(fields.hours, local.hour()) {
                days += usize::from(local.hour() == 23);
                at = at.checked_add(MINUTE * (60 - i32::from(local.minute()))).ok()?;
            } else if !has(fields.minutes, local.minute()) {
                days += usize::from((local.hour(), local.minute()) == (23, 59));
                at = at.checked_add(MINUTE).ok()?;
            } else {
                return Some(at);
            }
        }
        None
    }

    /// The last time up to `until` at which the schedule is due, given an earlier time at which it is due.
    ///
    /// The search is a bisection, so its cost hardly grows with the length of the interval.
    pub fn last(&self, earlier: Timestamp, until: Timestamp, zone: &TimeZone) -> Timestamp {
        let mut at = earlier;
        if let Times::Every(interval) = &self.times {
            let intervals = until.duration_since(at).as_secs().max(0) / interval.as_secs().max(1);
            let passed = SignedDuration::from_secs(intervals.saturating_mul(interval.as_secs()));
            return at.checked_add(passed).unwrap_or(at);
        }
        // The schedule is not due after `end`, up to `until`.
        let mut end = until.as_second();
        while at.as_second() < end {
            let middle = at.as_second() + (end - at.as_second()) / 2;
            let next = Timestamp::from_second(middle).ok().and_then(|middle| self.next(middle, zone));
            match next.filter(|next| *next <= until) {
                Some(next) => at = next,
                None => end = middle,
            }
        }
        at
    }
}

/// Whether a set contains a number.
fn has(set: u64, number: i8) -> bool {
    set & (1 << number) != 0
}

impl Fields {
    fn has_day(&self, at: DateTime) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        let is_day = if self.both_days { day && weekday } else { day || weekday };
        is_day && has(self.months, at.month())
    }
}
