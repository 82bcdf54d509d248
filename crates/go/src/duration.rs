//! Durations: `1h30m0s`, `250ms`.
//!
//! A duration is a number of nanoseconds in an `i64`, as in Go: about 292 years in either direction.

mod openapi;

use std::fmt::Write as _;

pub use openapi::parse_openapi;

const NANOSECOND: u64 = 1;
const MICROSECOND: u64 = 1_000 * NANOSECOND;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the smallest duration, which is one more than that of the largest.
const MAX_MAGNITUDE: u64 = i64::MIN.unsigned_abs();

/// A text that is not a duration. The messages are those of `time.ParseDuration`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is malformed, or the duration does not fit.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A number has an unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(unit), quote(text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Parses a duration like `time.ParseDuration`. Returns nanoseconds.
///
/// A duration is an optional sign and a sequence of decimal numbers, each with an optional fraction and a unit: `ns`,
/// `us` (or `µs`), `ms`, `s`, `m`, `h`. A plain `0` needs no unit.
///
/// ```
/// use plumb_go::duration::parse;
///
/// assert_eq!(parse("1.5h"), Ok(5_400_000_000_000));
/// assert_eq!(parse("3d").unwrap_err().to_string(), r#"time: unknown unit "d" in duration "3d""#);
/// ```
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let whole = number(whole).ok_or_else(invalid)?;
        let unit = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let nanos = match unit {
            "" => return Err(DurationError::MissingUnit(text.to_owned())),
            "ns" => NANOSECOND,
            // The micro sign and the Greek letter mu.
            "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() }),
        };
        let part = whole.checked_mul(nanos).and_then(|whole| whole.checked_add(fraction_of(fraction, nanos)));
        let sum = part.and_then(|part| total.checked_add(part));
        total = sum.filter(|sum| *sum <= MAX_MAGNITUDE).ok_or_else(invalid)?;
        rest = after;
    }
    let signed = if is_negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
    signed.ok_or_else(invalid)
}

/// The decimal digits at the beginning, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Parses an integer. An empty string is zero.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|number| *number <= MAX_MAGNITUDE)
}

/// A decimal fraction of a unit. Like Go, digits beyond 63 bits are ignored and the product is computed in floating point.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go converts in this way; the product is not negative and less than an hour"
)]
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut fraction = 0_u64;
    let mut scale = 1_f64;
    for digit in digits.bytes().map(|byte| u64::from(byte - b'0')) {
        let more = fraction.checked_mul(10).and_then(|tens| tens.checked_add(digit));
        let Some(more) = more.filter(|more| *more <= MAX_MAGNITUDE) else { break };
        fraction = more;
        scale *= 10.0;
    }
    (fraction as f64 * (unit as f64 / scale)) as u64
}

/// Quotes like Go's package `time`, which escapes each byte that is not printable ASCII.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..0x80 => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted + "\""
}

/// Formats a duration in nanoseconds like `time.Duration.String`.
///
/// ```
/// assert_eq!(plumb_go::duration::format(5_400_500_000_000), "1h30m0.5s");
/// assert_eq!(plumb_go::duration::format(1_500), "1.5µs");
/// assert_eq!(plumb_go::duration::format(0), "0s");
/// ```
pub fn format(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let mut text = String::from(if nanos < 0 { "-" } else { "" });
    let (unit, name) = match magnitude {
        0 => return "0s".to_owned(),
        1..MICROSECOND => (NANOSECOND, "ns"),
        MICROSECOND..MILLISECOND => (MICROSECOND, "µs"),
        MILLISECOND..SECOND => (MILLISECOND, "ms"),
        _ => (SECOND, "s"),
    };
    if magnitude >= HOUR {
        let _ = write!(text, "{}h", magnitude / HOUR);
    }
    if magnitude >= MINUTE {
        let _ = write!(text, "{}m", magnitude % HOUR / MINUTE);
    }
    let _ = write!(text, "{}", magnitude % MINUTE / unit);
    let fraction = magnitude % unit;
    if fraction > 0 {
        let digits = unit.ilog10() as usize;
        text.push_str(format!(".{fraction:0digits$}").trim_end_matches('0'));
    }
    text + name
}

/// Formats a duration of the standard library like [`format()`]. Durations beyond the range of Go saturate.
pub fn format_std(duration: std::time::Duration) -> String {
    format(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn durations_are_parsed_as_go_parses_them() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5 * S),
            ("-5s", -5 * S),
            ("+5s", 5 * S),
            ("5.0s", 5 * S),
            ("5.s", 5 * S),
            (".5s", S / 2),
            ("1.004s", S + 4_000_000),
            ("100.00100s", 100 * S + 1_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("-2m3.4s", -(123 * S + 400_000_000)),
            ("39h9m14.425s", (39 * 3600 + 9 * 60 + 14) * S + 425_000_000),
            ("1h2m3s4ms5us6ns", 3723 * S + 4_005_006),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 1200 * S),
            ("9007199254740993ns", (1 << 53) + 1),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("9223372036s854ms775us807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("0.100000000000000000000h", 360 * S),
            ("0.830103483285477580700h", 2988 * S + 372_539_827),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_has_the_error_message_of_go() {
        for text in [
            "",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            " 1s",
            "1s ",
            "--1s",
            "1.2.3s",
            "9223372036854775808ns",
            "9223372036854775810ns",
            "-9223372036854775809ns",
            "9223372036854776us",
            "3000000h",
            "9223372036854775.808us",
            "9223372036854ms775us808ns",
            "99999999999999999999s",
        ] {
            let message = parse(text).unwrap_err().to_string();
            let expected = match text {
                "1s " => r#"time: unknown unit "s " in duration "1s ""#.to_owned(),
                "1.2.3s" => r#"time: missing unit in duration "1.2.3s""#.to_owned(),
                _ => format!("time: invalid duration \"{text}\""),
            };
            assert_eq!(message, expected);
        }
        for (text, message) in [
            ("3", r#"time: missing unit in duration "3""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1\"", r#"time: unknown unit "\"" in duration "1\"""#),
            ("1é", r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245 * S, "4m5s"),
            (245 * S + 1_000_000, "4m5.001s"),
            (5 * 3600 * S + 6 * 60 * S + 7 * S + 1_000_000, "5h6m7.001s"),
            (480 * S + 1, "8m0.000000001s"),
            (3600 * S, "1h0m0s"),
            (-250_000_000, "-250ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format(nanos), text);
        }
        assert_eq!(format_std(std::time::Duration::from_millis(15_040)), "15.04s");
        assert_eq!(format_std(std::time::Duration::MAX), "2562047h47m16.854775807s");
    }

    proptest! {
        #[test]
        fn a_formatted_duration_is_parsed_to_the_same_value(nanos: i64) {
            prop_assert_eq!(parse(&format(nanos)), Ok(nanos));
        }

        #[test]
        fn no_text_panics(text in "[-+]?([0-9]{0,21}\\.?[0-9]{0,21}(ns|us|µs|ms|s|m|h|d|)){0,3}|.*") {
            drop(parse(&text).map_err(|error| error.to_string()));
            let _ = parse_openapi(&text);
        }
    }
}
