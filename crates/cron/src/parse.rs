//! The parser of schedules.

pub use plumb_go::duration::DurationError;

use jiff::SignedDuration;
use plumb_go::quote;

use crate::schedule::{Fields, Times};

/// Why a text is not a schedule. The messages are those of robfig/cron, which clients see in the API server's response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is empty.
    #[error("empty spec string")]
    Empty,
    /// There are not five fields.
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    FieldCount(Vec<String>),
    /// A value is neither a number nor a name.
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: {reason}", quote(text))]
    Number {
        /// The text that is not a number.
        text: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// A number is negative.
    #[error("negative number ({number}) not allowed: {text}")]
    Negative {
        /// The number.
        number: i64,
        /// The text of the number.
        text: String,
    },
    /// A range has more than two ends.
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    /// A range has more than one step.
    #[error("too many slashes: {0}")]
    Slashes(String),
    /// A range begins below the minimum of its field.
    #[error("beginning of range ({start}) below minimum ({min}): {range}")]
    BelowMinimum {
        /// The beginning.
        start: u64,
        /// The minimum.
        min: u64,
        /// The text of the range.
        range: String,
    },
    /// A range ends above the maximum of its field.
    #[error("end of range ({end}) above maximum ({max}): {range}")]
    AboveMaximum {
        /// The end.
        end: u64,
        /// The maximum.
        max: u64,
        /// The text of the range.
        range: String,
    },
    /// A range ends before it begins.
    #[error("beginning of range ({start}) beyond end of range ({end}): {range}")]
    Reversed {
        /// The beginning.
        start: u64,
        /// The end.
        end: u64,
        /// The text of the range.
        range: String,
    },
    /// The step of a range is zero.
    #[error("step of range should be a positive number: {0}")]
    Step(String),
    /// The descriptor after `@` is unknown.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// The text after `@every` is not a Go duration.
    #[error("failed to parse duration {descriptor}: {source}")]
    Every {
        /// The schedule.
        descriptor: String,
        /// Why the duration is invalid.
        source: DurationError,
    },
}

/// The minimum and maximum of a field, and the names of its numbers from the minimum on.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Splits a schedule into its time zone and the rest.
pub(crate) fn split_zone(text: &str) -> (Option<&str>, &str) {
    let Some(named) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return (None, text);
    };
    // SPEC: without a space after the zone, robfig/cron panics; here the schedule has no fields and is invalid.
    let (zone, rest) = named.split_once(' ').unwrap_or((named, ""));
    (Some(zone), rest.trim())
}

/// Parses a schedule without its zone.
pub(crate) fn times(text: &str) -> Result<Times, ScheduleError> {
    let text = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ if text.starts_with('@') => return every(text),
        _ => text,
    };
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields[..] else {
        return Err(ScheduleError::FieldCount(fields.into_iter().map(str::to_owned).collect()));
    };
    // The first error is reported, from left to right.
    let (minutes, _) = field(minutes, &MINUTES)?;
    let (hours, _) = field(hours, &HOURS)?;
    let (days, all_days) = field(days, &DAYS)?;
    let (months, _) = field(months, &MONTHS)?;
    let (weekdays, all_weekdays) = field(weekdays, &WEEKDAYS)?;
    Ok(Times::Fields(Fields { minutes, hours, days, months, weekdays, both_days: all_days || all_weekdays }))
}

/// Parses `@every` with a duration, which is truncated to seconds and is at least one second.
fn every(descriptor: &str) -> Result<Times, ScheduleError> {
    let Some(duration) = descriptor.strip_prefix("@every ") else {
        return Err(ScheduleError::Descriptor(descriptor.to_owned()));
    };
    let nanos = plumb_go::duration::parse(duration)
        .map_err(|source| ScheduleError::Every { descriptor: descriptor.to_owned(), source })?;
    Ok(Times::Every(SignedDuration::from_secs((nanos / 1_000_000_000).max(1))))
}

/// The set of numbers of a field, with one bit for each number, and whether the field contains `*`.
fn field(text: &str, bounds: &Bounds) -> Result<(u64, bool), ScheduleError> {
    let mut numbers = 0;
    let mut has_all = false;
    for one in text.split(',').filter(|one| !one.is_empty()) {
        let (more, is_all) = range(one, bounds)?;
        numbers |= more;
        has_all |= is_all;
    }
    Ok((numbers, has_all))
}

/// The set of numbers of a range, and whether it is `*` without a step.
fn range(text: &str, bounds: &Bounds) -> Result<(u64, bool), ScheduleError> {
    let &Bounds { min, max, names } = bounds;
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let is_all = matches!(ends[0], "*" | "?");
    let named = |text: &str| {
        let found = (min..).zip(names).find(|(_, name)| text.eq_ignore_ascii_case(name));
        found.map_or_else(|| number(text), |(number, _)| Ok(number))
    };
    let (start, mut end) = if is_all {
        (min, max)
    } else {
        let start = named(ends[0])?;
        match ends[..] {
            [_] => (start, start),
            [_, end] => (start, named(end)?),
            _ => return Err(ScheduleError::Hyphens(text.to_owned())),
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            // `5/20` is `5-59/20`.
            if ends.len() == 1 {
                end = max;
            }
            number(step)?
        }
        _ => return Err(ScheduleError::Slashes(text.to_owned())),
    };
    let range = || text.to_owned();
    if start < min {
        return Err(ScheduleError::BelowMinimum { start, min, range: range() });
    }
    if end > max {
        return Err(ScheduleError::AboveMaximum { end, max, range: range() });
    }
    if start > end {
        return Err(ScheduleError::Reversed { start, end, range: range() });
    }
    if step == 0 {
        return Err(ScheduleError::Step(range()));
    }
    let numbers = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok((numbers.fold(0, |set, number| set | 1 << number), is_all && step == 1))
}

/// Parses a number like `strconv.Atoi`.
fn number(text: &str) -> Result<u64, ScheduleError> {
    let number: i64 = text.parse().map_err(|error: std::num::ParseIntError| {
        let overflows =
            matches!(error.kind(), std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow);
        let reason = if overflows { "value out of range" } else { "invalid syntax" };
        ScheduleError::Number { text: text.to_owned(), reason }
    })?;
    u64::try_from(number).map_err(|_| ScheduleError::Negative { number, text: text.to_owned() })
}
