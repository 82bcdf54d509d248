//! Format strings: `'%d of %s'.format([1, 'a'])`.

use std::iter::Peekable;
use std::str::Chars;

use data_encoding::{HEXLOWER, HEXUPPER};

use super::convert::{display, display_double};
use super::time::display_duration;
use super::{Answer, fail};
use crate::value::{List, Value};

/// The default number of digits after the decimal point.
const DEFAULT_PRECISION: usize = 6;

/// The maximum precision of a clause.
const MAX_PRECISION: usize = 200;

const INVALID_UTF8: &str =
    "error during formatting: could not convert argument to string: invalid UTF-8 in bytes";

pub(super) fn format<'a>(text: &str, values: &List<'_>) -> Answer<'a> {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut next = 0;
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        if letters.peek() == Some(&'%') {
            letters.next();
            out.push('%');
            continue;
        }
        let Some(value) = values.get(next) else {
            return fail(format!("index {next} out of range"));
        };
        next += 1;
        if letters.peek().is_none() {
            return fail("unexpected end of string");
        }
        let precision = match precision(&mut letters) {
            Ok(precision) => precision,
            Err(why) => {
                return fail(format!(
                    "could not parse formatting clause: error while parsing precision: {why}"
                ));
            }
        };
        let verb = letters.next().unwrap_or_default();
        match format_value(verb, precision, &value) {
            Ok(text) => out.push_str(&text),
            Err(why) => return fail(why),
        }
    }
    Ok(Value::text(out))
}

/// Reads the precision of a clause, if it has one.
fn precision(letters: &mut Peekable<Chars<'_>>) -> Result<Option<usize>, String> {
    if letters.next_if_eq(&'.').is_none() {
        return Ok(None);
    }
    let mut digits = String::new();
    while let Some(digit) = letters.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if letters.peek().is_none() {
        return Err("could not find end of precision specifier".to_owned());
    }
    let wrong = |what: &str| {
        format!("error while converting precision to integer: strconv.Atoi: parsing {digits:?}: {what}")
    };
    match digits.parse::<usize>() {
        Ok(digits) if digits <= MAX_PRECISION => Ok(Some(digits)),
        _ if digits.is_empty() => Err(wrong("invalid syntax")),
        _ => Err(wrong("value out of range")),
    }
}

/// Formats a value for a clause.
fn format_value(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, String> {
    let wrong = |names: &str| {
        let found = value.type_name();
        Err(format!("error during formatting: {names}, was given {found}"))
    };
    match (verb, value) {
        ('s', value) => text(value),
        ('d', Value::Int(_) | Value::Uint(_)) => Ok(display(value)),
        ('d', _) => wrong("decimal clause can only be used on integers"),
        ('f', _) if let Some(number) = number(value) => {
            Ok(fixed(number, precision.unwrap_or(DEFAULT_PRECISION)))
        }
        ('f', _) => wrong("fixed-point clause can only be used on doubles"),
        // Upstream uses the precision as the width.
        ('e', _) if let Some(number) = number(value) => {
            let width = precision.unwrap_or(DEFAULT_PRECISION);
            Ok(format!("{:>width$}", scientific(number)))
        }
        ('e', _) => wrong("scientific clause can only be used on doubles"),
        ('b', Value::Bool(truth)) => Ok(u8::from(*truth).to_string()),
        ('o', Value::Int(number)) => Ok(signed(*number, |size| format!("{size:o}"))),
        ('b', Value::Int(number)) => Ok(signed(*number, |size| format!("{size:b}"))),
        ('x', Value::Int(number)) => Ok(signed(*number, |size| format!("{size:x}"))),
        ('X', Value::Int(number)) => Ok(signed(*number, |size| format!("{size:X}"))),
        ('o', Value::Uint(number)) => Ok(format!("{number:o}")),
        ('b', Value::Uint(number)) => Ok(format!("{number:b}")),
        ('x', Value::Uint(number)) => Ok(format!("{number:x}")),
        ('X', Value::Uint(number)) => Ok(format!("{number:X}")),
        ('x', Value::Text(text)) => Ok(HEXLOWER.encode(text.as_bytes())),
        ('X', Value::Text(text)) => Ok(HEXUPPER.encode(text.as_bytes())),
        ('x', Value::Bytes(bytes)) => Ok(HEXLOWER.encode(bytes)),
        ('X', Value::Bytes(bytes)) => Ok(HEXUPPER.encode(bytes)),
        ('b', _) => wrong("only integers and bools can be formatted as binary"),
        ('o', _) => wrong("octal clause can only be used on integers"),
        ('x' | 'X', _) => wrong("only integers, byte buffers, and strings can be formatted as hex"),
        (verb, _) => {
            Err(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\""))
        }
    }
}

/// A floating-point number, or a string that represents one.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Text(text) => match text.as_ref() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// NaN and the infinities, in English notation.
fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        return Some("NaN".to_owned());
    }
    number.is_infinite().then(|| if number > 0.0 { "\u{221e}" } else { "-\u{221e}" }.to_owned())
}

/// Formats a number with a comma before every three digits, as in English.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special;
    }
    let text = format!("{:.precision$}", number.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let mut out = String::from(if number < 0.0 { "-" } else { "" });
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.extend([".", fraction]);
    }
    out
}

/// Formats a number with a power of ten, as in English.
fn scientific(number: f64) -> String {
    const SUPERSCRIPT: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(special) = special(number) {
        return special;
    }
    let text = format!("{:.DEFAULT_PRECISION$e}", number.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mut out = String::from(if number < 0.0 { "-" } else { "" });
    out.extend([digits, "×10"]);
    let exponent = exponent.strip_prefix('-').map_or(exponent, |size| {
        out.push('⁻');
        size
    });
    for digit in format!("{exponent:0>2}").bytes() {
        out.push(SUPERSCRIPT[usize::from(digit - b'0') % 10]);
    }
    out
}

fn signed(number: i64, format: fn(u64) -> String) -> String {
    let size = format(number.unsigned_abs());
    if number < 0 { format!("-{size}") } else { size }
}

/// Formats a value for `%s`.
fn text(value: &Value<'_>) -> Result<String, String> {
    match value {
        Value::List(_) | Value::Map(_) => literal(value),
        Value::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => Err(INVALID_UTF8.to_owned()),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Text(_)
        | Value::Bytes(_)
        | Value::Type(_) => Ok(display(value)),
        Value::Duration(nanos) => Ok(display_duration(*nanos)),
        Value::Timestamp(moment) => Ok(moment.to_string()),
        other => Err(format!(
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
             lists, types, durations, and timestamps, was given {}",
            other.type_name()
        )),
    }
}

/// Formats a value inside a list or a map as a literal.
fn literal(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::Text(text) => plumb_go::quote(text),
        Value::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => return Err(INVALID_UTF8.to_owned()),
        Value::Bytes(_) => format!("b{}", plumb_go::quote(&display(value))),
        Value::Duration(nanos) => format!("duration({})", plumb_go::quote(&display_duration(*nanos))),
        Value::Timestamp(moment) => format!("timestamp({})", plumb_go::quote(&moment.to_string())),
        Value::Double(number) if !number.is_finite() => plumb_go::quote(&display_double(*number)),
        Value::Double(number) => format!("{number:.DEFAULT_PRECISION$}"),
        Value::List(list) => {
            let all: Result<Vec<String>, String> = list.iter().map(|element| literal(&element)).collect();
            format!("[{}]", all?.join(", "))
        }
        Value::Map(map) => {
            let mut all = Vec::new();
            for (key, value) in map.entries() {
                all.push((literal(&key)?, literal(&value)?));
            }
            all.sort();
            let all: Vec<String> = all.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", all.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => display(value),
        other => {
            return Err(format!("error during formatting: no formatting function for {}", other.type_name()));
        }
    })
}
