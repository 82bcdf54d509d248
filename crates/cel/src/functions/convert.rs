//! Conversions between types, and `size`.

use super::time::{Moment, display_duration, parse_timestamp};
use super::{Answer, Regexes, count, fail};
use crate::value::Value;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    let [value, ..] = args else { return None };
    Some(match (function, args.len()) {
        ("size", 1) => match value {
            Value::Text(text) => Ok(count(text.chars().count())),
            Value::Bytes(bytes) => Ok(count(bytes.len())),
            Value::List(list) => Ok(count(list.len())),
            Value::Map(map) => Ok(count(map.len())),
            _ => return None,
        },
        ("bool", 1) => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::Text(text) => match text.as_ref() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => fail("type conversion error from 'string' to 'bool'"),
            },
            _ => return None,
        },
        ("bytes", 1) => match value {
            Value::Bytes(_) => Ok(value.clone()),
            Value::Text(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => return None,
        },
        ("int", 1) => int(value)?,
        ("uint", 1) => uint(value)?,
        ("double", 1) => double(value)?,
        ("string", 1) => match value {
            Value::Text(_) => Ok(value.clone()),
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Value::text(text)),
                Err(_) => fail("invalid UTF-8 in bytes, cannot convert to string"),
            },
            Value::List(_) | Value::Map(_) | Value::Null | Value::Optional(_) => return None,
            value => Ok(Value::text(display(value))),
        },
        ("duration", 1) => match value {
            Value::Duration(_) => Ok(value.clone()),
            // Upstream declares this conversion, but it fails.
            Value::Int(_) => fail("type conversion error from 'int' to 'google.protobuf.Duration'"),
            Value::Text(text) => match plumb_go::duration::parse(text) {
                Ok(nanos) => Ok(Value::Duration(nanos)),
                Err(_) => fail("type conversion error from 'string' to 'google.protobuf.Duration'"),
            },
            _ => return None,
        },
        ("timestamp", 1) => match value {
            Value::Timestamp(_) => Ok(value.clone()),
            Value::Int(seconds) => match Moment::from_second(*seconds) {
                Some(moment) => Ok(Value::Timestamp(moment)),
                None => fail("timestamp overflow"),
            },
            Value::Text(text) => match parse_timestamp(text) {
                Some(moment) => Ok(Value::Timestamp(moment)),
                None => fail("type conversion error from 'string' to 'google.protobuf.Timestamp'"),
            },
            _ => return None,
        },
        _ => return None,
    })
}

fn int<'a>(value: &Value<'_>) -> Option<Answer<'a>> {
    let wrong = |from: &str| fail(format!("type conversion error from '{from}' to 'int'"));
    Some(match value {
        Value::Int(number) => Ok(Value::Int(*number)),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).or_else(|_| fail("integer overflow")),
        // Like upstream, `i64::MIN` is an overflow too.
        Value::Double(number) => match whole(*number).and_then(|number| i64::try_from(number).ok()) {
            Some(number) if number > i64::MIN => Ok(Value::Int(number)),
            _ => fail("integer overflow"),
        },
        Value::Text(text) => text.parse().map(Value::Int).or_else(|_| wrong("string")),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        // Rounded down, also before the epoch.
        Value::Timestamp(moment) => {
            let before = moment.at.subsec_nanosecond() < 0;
            Ok(Value::Int(moment.at.as_second() - i64::from(before)))
        }
        _ => return None,
    })
}

fn uint<'a>(value: &Value<'_>) -> Option<Answer<'a>> {
    let overflow = || fail("unsigned integer overflow");
    Some(match value {
        Value::Uint(number) => Ok(Value::Uint(*number)),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).or_else(|_| overflow()),
        Value::Double(number) => match whole(*number).and_then(|number| u64::try_from(number).ok()) {
            Some(whole) if *number >= 0.0 => Ok(Value::Uint(whole)),
            _ => overflow(),
        },
        Value::Text(text) => match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(Value::Uint(number)),
            _ => fail("type conversion error from 'string' to 'uint'"),
        },
        _ => return None,
    })
}

/// The integer part of a finite number.
fn whole(number: f64) -> Option<i128> {
    (number.is_finite() && number.abs() < 1e20).then(|| format!("{:.0}", number.trunc()).parse().ok())?
}

#[expect(clippy::cast_precision_loss, reason = "the language rounds to the nearest double")]
fn double<'a>(value: &Value<'_>) -> Option<Answer<'a>> {
    Some(match value {
        Value::Double(number) => Ok(Value::Double(*number)),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::Text(text) => match text.parse::<f64>() {
            // A number that overflows is an error, but `inf` is valid.
            Ok(number) if number.is_finite() || !text.contains(|letter: char| letter.is_ascii_digit()) => {
                Ok(Value::Double(number))
            }
            _ => fail("type conversion error from 'string' to 'double'"),
        },
        _ => return None,
    })
}

/// A value as messages and string conversions display it.
pub(crate) fn display(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => display_double(*number),
        Value::Text(text) => text.clone().into_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => display_duration(*nanos),
        Value::Timestamp(moment) => moment.to_string(),
        Value::Type(name) | Value::Format(name) => (*name).to_owned(),
        Value::Quantity(quantity) => quantity.amount.to_string(),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(ip, bits) => format!("{ip}/{bits}"),
        Value::Url(url) => url.to_string(),
        Value::Semver(version) => version.to_string(),
        Value::Access(_) | Value::Decision(_) | Value::Message(_) => value.type_name().to_owned(),
        Value::List(list) => {
            let all: Vec<String> = list.iter().map(|element| display(&element)).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Map(map) => {
            let all: Vec<String> =
                map.entries().map(|(key, value)| format!("{}: {}", display(&key), display(&value))).collect();
            format!("{{{}}}", all.join(", "))
        }
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::Optional(Some(inner)) => format!("optional({})", display(inner)),
    }
}

/// A floating-point number as Go formats it: with an exponent if it is very small or very large.
pub(super) fn display_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |exponent| ("-", exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}
