//! Moments and spans of time.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::{Answer, Regexes, fail};
use crate::error::EvalError;
use crate::value::Value;

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
        [Value::Timestamp(moment)] => part(function, *moment, Offset::UTC).map(Ok),
        [Value::Timestamp(moment), Value::Text(zone)] => match offset(zone) {
            Some(offset) => part(function, *moment, offset).map(Ok),
            None => Some(fail(format!("unknown time zone {zone}"))),
        },
        _ => None,
    }
}

/// UTC, or so many hours and minutes away from it.
fn offset(zone: &str) -> Option<Offset> {
    if matches!(zone, "" | "UTC" | "Z" | "GMT" | "Etc/UTC") {
        return Some(Offset::UTC);
    }
    let (negative, rest) = match zone.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let seconds =
        hours.parse::<i32>().ok()?.checked_mul(3_600)?.checked_add(minutes.parse::<i32>().ok()? * 60)?;
    Offset::from_seconds(if negative { -seconds } else { seconds }).ok()
}

fn part<'a>(function: &str, moment: Timestamp, offset: Offset) -> Option<Value<'a>> {
    let local: DateTime = TimeZone::fixed(offset).to_datetime(moment);
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
    let shifted = |moment: &Timestamp, nanos: i64| {
        let moved = moment.checked_add(jiff::SignedDuration::from_nanos(nanos));
        moved.map(Value::Timestamp).map_err(|_| EvalError::new("timestamp overflow"))
    };
    match (function, a, b) {
        ("_+_", Value::Duration(a), Value::Duration(b)) => span(a.checked_add(*b)),
        ("_-_", Value::Duration(a), Value::Duration(b)) => span(a.checked_sub(*b)),
        ("_+_", Value::Timestamp(moment), Value::Duration(nanos))
        | ("_+_", Value::Duration(nanos), Value::Timestamp(moment)) => shifted(moment, *nanos),
        ("_-_", Value::Timestamp(moment), Value::Duration(nanos)) => {
            shifted(moment, nanos.checked_neg().ok_or_else(|| EvalError::new("duration overflow"))?)
        }
        ("_-_", Value::Timestamp(a), Value::Timestamp(b)) => {
            span(i64::try_from(a.duration_since(*b).as_nanos()).ok())
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// A span in seconds, as the language writes it.
pub(crate) fn shown_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, fraction) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

/// A moment as RFC 3339 writes it.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let form = bytes.len() >= 20 && bytes[4] == b'-' && matches!(bytes[10], b'T' | b't') && bytes[13] == b':';
    let tail = text.get(text.len().checked_sub(6)?..);
    let zoned = text.ends_with(['Z', 'z']) || tail.is_some_and(|tail| tail.starts_with(['+', '-']));
    (form && zoned).then(|| text.parse().ok())?
}

/// A moment with as much of a second as it has.
pub(crate) fn shown_timestamp(moment: Timestamp) -> String {
    moment.to_string()
}
