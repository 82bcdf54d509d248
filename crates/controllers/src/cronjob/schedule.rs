//! Schedules of `CronJobs`: five fields, or a word.

use std::num::ParseIntError;

use k8s_openapi::jiff::civil::{DateTime, Time};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// For how many days a time is looked for: February 29 comes at least every eight years.
const DAYS: usize = 8 * 366;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// When something is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Whenever the clock shows one of these.
    Clock(Clock),
    /// Again and again after a time.
    Every(SignedDuration),
}

/// What a clock shows. Each set is one bit for each number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day must be in both sets, as one of them is all; else in either.
    both_days: bool,
}

/// A schedule that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSchedule(pub String);

/// The least and the most of a field, and the names its numbers have, from the least on.
type Bounds = (u32, u32, &'static [&'static str]);

const MINUTES: Bounds = (0, 59, &[]);
const HOURS: Bounds = (0, 23, &[]);
const DAYS_OF_MONTH: Bounds = (1, 31, &[]);
const MONTHS: Bounds =
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]);
const WEEKDAYS: Bounds = (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]);

impl Schedule {
    /// Reads a schedule.
    pub fn parse(text: &str) -> Result<Self, BadSchedule> {
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => match text.strip_prefix("@every ") {
                Some(span) => {
                    return every(span).ok_or_else(|| BadSchedule(format!("no span of time: {span}")));
                }
                None => text,
            },
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let (count, all) = (fields.len(), fields.join(" "));
            return Err(BadSchedule(format!("expected exactly 5 fields, found {count}: [{all}]")));
        };
        let (days, all_days) = field(days, DAYS_OF_MONTH)?;
        let (weekdays, all_weekdays) = field(weekdays, WEEKDAYS)?;
        Ok(Self::Clock(Clock {
            minutes: field(minutes, MINUTES)?.0,
            hours: field(hours, HOURS)?.0,
            days,
            months: field(months, MONTHS)?.0,
            weekdays,
            both_days: all_days || all_weekdays,
        }))
    }

    /// The first time after another at which it happens, by the clocks of a zone; none if it never does.
    ///
    /// What the clocks show twice happens twice, what they leave out does not happen.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let clock = match self {
            Self::Every(span) => {
                return Timestamp::from_second(after.as_second()).ok()?.checked_add(*span).ok();
            }
            Self::Clock(clock) => clock,
        };
        let minute = after.as_second().div_euclid(60) + 1;
        let mut at = Timestamp::from_second(minute * 60).ok()?;
        let mut days = 0;
        while days < DAYS {
            let shown = zone.to_datetime(at);
            if !clock.has_day(shown) {
                let next = shown.date().tomorrow().ok()?.to_datetime(Time::midnight());
                at = next.to_zoned(zone.clone()).ok()?.timestamp();
                days += 1;
            } else if !has(clock.hours, shown.hour()) {
                days += usize::from(shown.hour() == 23);
                at = at.checked_add(MINUTE * (60 - i32::from(shown.minute()))).ok()?;
            } else if !has(clock.minutes, shown.minute()) {
                days += usize::from((shown.hour(), shown.minute()) == (23, 59));
                at = at.checked_add(MINUTE).ok()?;
            } else {
                return Some(at);
            }
        }
        None
    }

    /// The last time up to another at which it happens, given an earlier one.
    ///
    /// Found by halving the time between them, so that it takes as many steps for years as for an hour.
    pub fn last(&self, earlier: Timestamp, until: Timestamp, zone: &TimeZone) -> Timestamp {
        let mut at = earlier;
        if let Self::Every(span) = self {
            let spans = until.duration_since(at).as_secs().max(0) / span.as_secs().max(1);
            let passed = SignedDuration::from_secs(spans.saturating_mul(span.as_secs()));
            return at.checked_add(passed).unwrap_or(at);
        }
        // It does not happen after `end`, up to `until`.
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

fn has(set: u64, number: i8) -> bool {
    set & (1 << number) != 0
}

impl Clock {
    fn has_day(&self, at: DateTime) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        let is_day = if self.both_days { day && weekday } else { day || weekday };
        is_day && has(self.months, at.month())
    }
}

/// The numbers of a field, and whether it asks for all.
fn field(text: &str, bounds: Bounds) -> Result<(u64, bool), BadSchedule> {
    let (mut numbers, mut all) = (0, false);
    for one in text.split(',').filter(|one| !one.is_empty()) {
        let (more, is_all) = range(one, bounds)?;
        numbers |= more;
        all |= is_all;
    }
    Ok((numbers, all))
}

fn range(text: &str, (least, most, names): Bounds) -> Result<(u64, bool), BadSchedule> {
    let bad = |why: &str| BadSchedule(format!("{why}: {text}"));
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let number = |text: &str| -> Result<u32, BadSchedule> {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let named = named.and_then(|at| u32::try_from(at).ok());
        named.map_or_else(
            || text.parse().map_err(|error: ParseIntError| bad(&format!("no number ({error})"))),
            |at| Ok(least + at),
        )
    };
    let is_all = matches!(ends[0], "*" | "?");
    let (first, mut last) = match ends[..] {
        _ if is_all => (least, most),
        [one] => (number(one)?, number(one)?),
        [first, last] => (number(first)?, number(last)?),
        _ => return Err(bad("too many hyphens")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                last = most;
            }
            step.parse().map_err(|error: ParseIntError| bad(&format!("no number ({error})")))?
        }
        _ => return Err(bad("too many slashes")),
    };
    if first < least || last > most || first > last || step == 0 {
        return Err(bad("out of range"));
    }
    let numbers = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok((numbers.fold(0, |set, number| set | 1 << number), is_all && step == 1))
}

/// A span of time as Go writes it: `1h30m`, `90s`. Whole seconds, one at least.
fn every(text: &str) -> Option<Schedule> {
    let (mut rest, mut nanos) = (text.strip_prefix('+').unwrap_or(text), 0_i128);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() && rest != "0" {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let places = 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?;
        let part: i128 = if part.is_empty() { 0 } else { part.parse().ok()? };
        nanos =
            nanos.checked_add(whole.checked_mul(scale)?)?.checked_add(part.checked_mul(scale)? / places)?;
        rest = next;
    }
    let seconds = i64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Schedule::Every(SignedDuration::from_secs(seconds.max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(schedule: &str, after: &str, zone: &TimeZone, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(schedule).unwrap();
        let mut at: Timestamp = after.parse().unwrap();
        let mut runs = Vec::new();
        for _ in 0..count {
            let Some(next) = schedule.next(at, zone) else { break };
            runs.push(next.to_string());
            at = next;
        }
        runs
    }

    #[test]
    fn fields_say_when() {
        for (schedule, after, wanted) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59.5Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:46:00Z", "2026-01-01T01:00:00Z"),
            ("5/20 * * * *", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z"),
            ("30 9-17 * * MON-fri", "2026-01-02T17:30:00Z", "2026-01-05T09:30:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            // The 13th, or a Friday: either will do where both are asked for.
            ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 13 * *", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z"),
            ("0 0 */2 * 1", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"),
            ("0 0 1,15 jan,dec ?", "2026-01-15T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00.25Z", "2026-01-01T01:30:00Z"),
            ("@every 10ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
        ] {
            assert_eq!(runs(schedule, after, &TimeZone::UTC, 1), [wanted], "{schedule}");
        }
        assert_eq!(runs("0 0 31 2 *", "2026-01-01T00:00:00Z", &TimeZone::UTC, 1), [""; 0]);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "x * * * *",
            "@fortnightly",
            "@every soon",
            "@every ",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_clocks_show_twice_happens_twice_and_what_they_skip_does_not() {
        // One hour forward on the second Sunday of March at 2, and back on the first of November at 2.
        let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        assert_eq!(
            runs("30 2 * * *", "2026-03-07T00:00:00Z", &zone, 2),
            ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z"]
        );
        assert_eq!(
            runs("30 1 * * *", "2026-11-01T00:00:00Z", &zone, 3),
            ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]
        );
    }
}
