//! Timestamps and durations.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};

use super::{Answer, Regexes, fail};
use crate::error::EvalError;
use crate::value::Value;

/// A timestamp, and the UTC offset that it was written with and is displayed with.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The timestamp.
    pub at: Timestamp,
    /// The offset.
    pub offset: Offset,
}

impl Moment {
    /// Creates a timestamp; `None` if it is outside of the years 1 to 9999, which CEL supports.
    pub(crate) fn new(at: Timestamp, offset: Offset) -> Option<Self> {
        (at.as_second() >= FIRST_SECOND).then_some(Self { at, offset })
    }

    /// Creates a timestamp from the seconds since the epoch.
    pub(crate) fn from_second(second: i64) -> Option<Self> {
        Self::new(Timestamp::from_second(second).ok()?, Offset::UTC)
    }

    /// Whether it is the zero value of Go's `time.Time`.
    pub(crate) fn is_zero(self) -> bool {
        self.at.as_second() == FIRST_SECOND && self.at.subsec_nanosecond() == 0
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset.is_zero() {
            return self.at.fmt(f);
        }
        self.at.display_with_offset(self.offset).fmt(f)
    }
}

/// The beginning of the year 1, in seconds since the epoch.
const FIRST_SECOND: i64 = -62_135_596_800;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    match args {
        [Value::Duration(nanos)] => {
            let answer = match function {
                "getHours" => nanos / HOUR,
                "getMinutes" => nanos / MINUTE,
                "getSeconds" => nanos / SECOND,
                "getMilliseconds" => nanos / 1_000_000,
                _ => return None,
            };
            Some(Ok(Value::Int(answer)))
        }
        [Value::Timestamp(moment)] => part(function, moment.at, 0).map(Ok),
        [Value::Timestamp(moment), Value::Text(zone)] => match offset(zone) {
            Ok(offset) => part(function, moment.at, offset).map(Ok),
            Err(why) => Some(fail(why)),
        },
        _ => None,
    }
}

/// Parses a time zone: UTC, or an offset of hours and minutes. Returns the offset in seconds.
fn offset(zone: &str) -> Result<i64, String> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" | "GMT" | "Etc/UTC" => Ok(0),
            _ => Err(format!("unknown time zone {zone}")),
        };
    };
    let number = |text: &str| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        let parsed = if is_number { text.parse::<i32>().ok() } else { None };
        parsed.map(i64::from).ok_or_else(|| format!("strconv.Atoi: parsing {text:?}: {why}"))
    };
    let hours = number(hours)?;
    let minutes = number(minutes)?;
    Ok(60 * if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes })
}

/// A field of a timestamp at an offset.
fn part<'a>(function: &str, moment: Timestamp, offset: i64) -> Option<Value<'a>> {
    let utc: DateTime = TimeZone::UTC.to_datetime(moment);
    let local = utc.checked_add(jiff::SignedDuration::from_secs(offset)).unwrap_or(utc);
    let answer = match function {
        "getDate" => i64::from(local.day()),
        "getDayOfMonth" => i64::from(local.day()) - 1,
        "getDayOfWeek" => i64::from(local.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(local.day_of_year()) - 1,
        "getFullYear" => i64::from(local.year()),
        "getMonth" => i64::from(local.month()) - 1,
        "getHours" => i64::from(local.hour()),
        "getMinutes" => i64::from(local.minute()),
        "getSeconds" => i64::from(local.second()),
        "getMilliseconds" => i64::from(local.millisecond()),
        _ => return None,
    };
    Some(Value::Int(answer))
}

pub(super) fn arithmetic<'a>(function: &str, a: &Value<'_>, b: &Value<'_>) -> Answer<'a> {
    let span =
        |nanos: Option<i64>| nanos.map(Value::Duration).ok_or_else(|| EvalError::new("duration overflow"));
    let shift = |moment: &Moment, nanos: i64| {
        let moved = moment.at.checked_add(jiff::SignedDuration::from_nanos(nanos)).ok();
        let moved = moved.and_then(|at| Moment::new(at, moment.offset));
        moved.map(Value::Timestamp).ok_or_else(|| EvalError::new("timestamp overflow"))
    };
    match (function, a, b) {
        ("_+_", Value::Duration(a), Value::Duration(b)) => span(a.checked_add(*b)),
        ("_-_", Value::Duration(a), Value::Duration(b)) => span(a.checked_sub(*b)),
        ("_+_", Value::Timestamp(moment), Value::Duration(nanos))
        | ("_+_", Value::Duration(nanos), Value::Timestamp(moment)) => shift(moment, *nanos),
        ("_-_", Value::Timestamp(moment), Value::Duration(nanos)) => {
            shift(moment, nanos.checked_neg().ok_or_else(|| EvalError::new("duration overflow"))?)
        }
        ("_-_", Value::Timestamp(a), Value::Timestamp(b)) => {
            span(i64::try_from(a.at.duration_since(b.at).as_nanos()).ok())
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Formats a duration in seconds, with the digits of a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "upstream converts to a floating-point number too")]
pub(crate) fn display_duration(nanos: i64) -> String {
    let whole = nanos / SECOND;
    let fraction = nanos % SECOND;
    format!("{}s", whole as f64 + fraction as f64 / 1e9)
}

/// Parses an RFC 3339 timestamp. Like Go, it accepts an hour with one digit, and a fraction after a comma.
pub(crate) fn parse_timestamp(text: &str) -> Option<Moment> {
    let (date, rest) = text.split_at_checked(10)?;
    let date = civil_date(date)?;
    let (hour, rest) = rest.strip_prefix('T')?.split_once(':')?;
    let hour = (hour.len() < 3).then(|| number::<i8>(hour))??;
    let (minute, rest) = rest.split_once(':')?;
    let minute = (minute.len() == 2).then(|| number::<i8>(minute))??;
    let (second, mut rest) = rest.split_at_checked(2)?;
    let second = number::<i8>(second).filter(|second| *second < 60)?;
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let end = fraction.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(fraction.len());
        let (digits, after) = fraction.split_at(end);
        nanos = number::<i32>(&format!("{:0<9}", digits.get(..9).unwrap_or(digits))).filter(|_| end > 0)?;
        rest = after;
    }
    let offset = if rest == "Z" { Offset::UTC } else { numeric(rest)? };
    let local = date.to_datetime(Time::new(hour, minute, second, nanos).ok()?);
    Moment::new(offset.to_timestamp(local).ok()?, offset)
}

fn civil_date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let mut next = |length: usize| parts.next().filter(|part| part.len() == length);
    let year = next(4)?;
    let month = next(2)?;
    let day = next(2)?;
    Date::new(number(year)?, number(month)?, number(day)?).ok()
}

/// Parses a number that consists of digits only.
fn number<N: std::str::FromStr>(digits: &str) -> Option<N> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Parses an offset with a sign, such as `+02:00`.
fn numeric(text: &str) -> Option<Offset> {
    let (sign, rest) = text.split_at_checked(1)?;
    let sign = match sign {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) =
        rest.split_once(':').filter(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2)?;
    let minutes = number::<i32>(hours)? * 60 + number::<i32>(minutes)?;
    Offset::from_seconds(sign * minutes * 60).ok()
}
