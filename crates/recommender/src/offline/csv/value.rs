//! The values of fields.

use jiff::Timestamp;

use super::{Measurement, Problem};
use crate::Time;

/// Reads a time: seconds since 1970, or RFC 3339.
pub(super) fn time(text: &str) -> Result<Time, Problem> {
    if let Some(nanos) = unix_nanos(text) {
        let nanos = i64::try_from(nanos).map_err(|_| Problem::TimeRange(text.to_owned()))?;
        return Ok(Time::from_unix_nanos(nanos));
    }
    let timestamp: Timestamp = text.parse().map_err(|_| Problem::Time(text.to_owned()))?;
    let nanos = i64::try_from(timestamp.as_nanosecond()).map_err(|_| Problem::TimeRange(text.to_owned()))?;
    Ok(Time::from_unix_nanos(nanos))
}

/// Nanoseconds of a decimal number of seconds, as far as it is one; what is finer is cut off.
fn unix_nanos(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let seconds: i128 = whole.parse().ok()?;
    let places = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = places.fold(0_i128, |nanos, digit| nanos * 10 + i128::from(digit - b'0'));
    let all = seconds * 1_000_000_000 + nanos;
    Some(if negative { -all } else { all })
}

/// Reads what was measured.
pub(super) fn measurement(resource: &str, value: &str) -> Result<Measurement, Problem> {
    let number: f64 = value.parse().map_err(|_| Problem::Value(value.to_owned()))?;
    if !(number.is_finite() && number >= 0.0) {
        return Err(Problem::Value(value.to_owned()));
    }
    if resource.eq_ignore_ascii_case("cpu") {
        Ok(Measurement::Cpu(number))
    } else if resource.eq_ignore_ascii_case("memory") {
        Ok(Measurement::Memory(number))
    } else if resource.eq_ignore_ascii_case("oom") {
        Ok(Measurement::Oom(number))
    } else {
        Err(Problem::Resource(resource.to_owned()))
    }
}
