//! Texts with places for values: `'%d of %s'.format([1, 'a'])`.

use std::iter::Peekable;
use std::str::Chars;

use data_encoding::{HEXLOWER, HEXUPPER};

use super::convert::{shown, shown_double};
use super::time::shown_duration;
use super::{Answer, fail};
use crate::value::{List, Value};

/// How many digits after the point a number has where a clause asks for no other number of them.
const DIGITS: usize = 6;

/// How many digits a text may ask for; more are of no use.
const MAX_PRECISION: usize = 200;

const NOT_TEXT: &str =
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
        match place(verb, precision, &value) {
            Ok(text) => out.push_str(&text),
            Err(why) => return fail(why),
        }
    }
    Ok(Value::text(out))
}

/// How many digits a clause asks for, if it does.
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

fn place(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, String> {
    let wrong = |names: &str| {
        let found = value.type_name();
        Err(format!("error during formatting: {names}, was given {found}"))
    };
    match (verb, value) {
        ('s', value) => text(value),
        ('d', Value::Int(_) | Value::Uint(_)) => Ok(shown(value)),
        ('d', _) => wrong("decimal clause can only be used on integers"),
        ('f', _) if let Some(number) = number(value) => Ok(fixed(number, precision.unwrap_or(DIGITS))),
        ('f', _) => wrong("fixed-point clause can only be used on doubles"),
        // Upstream takes the precision for a width.
        ('e', _) if let Some(number) = number(value) => {
            let width = precision.unwrap_or(DIGITS);
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

/// A number, or a text that stands for one.
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

/// What is no number of digits, as English writes it.
fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        return Some("NaN".to_owned());
    }
    number.is_infinite().then(|| if number > 0.0 { "\u{221e}" } else { "-\u{221e}" }.to_owned())
}

/// A number as English writes it, with a comma before every three digits.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special;
    }
    let text = format!("{:.precision$}", number.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let mut out = String::from(if number < 0.0 { "-" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.extend([".", fraction]);
    }
    out
}

/// A number as English writes it with a power of ten.
fn scientific(number: f64) -> String {
    const SUPERSCRIPT: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(special) = special(number) {
        return special;
    }
    let text = format!("{:.DIGITS$e}", number.abs());
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

fn signed(number: i64, shown: fn(u64) -> String) -> String {
    let size = shown(number.unsigned_abs());
    if number < 0 { format!("-{size}") } else { size }
}

/// A value between other text.
fn text(value: &Value<'_>) -> Result<String, String> {
    match value {
        Value::List(_) | Value::Map(_) => literal(value),
        Value::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => Err(NOT_TEXT.to_owned()),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Text(_)
        | Value::Bytes(_)
        | Value::Type(_) => Ok(shown(value)),
        Value::Duration(nanos) => Ok(shown_duration(*nanos)),
        Value::Timestamp(moment) => Ok(moment.to_string()),
        other => Err(format!(
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
             lists, types, durations, and timestamps, was given {}",
            other.type_name()
        )),
    }
}

/// A value inside a list or a map, as it would stand in an expression.
fn literal(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::Text(text) => plumb_go::quote(text),
        Value::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => return Err(NOT_TEXT.to_owned()),
        Value::Bytes(_) => format!("b{}", plumb_go::quote(&shown(value))),
        Value::Duration(nanos) => format!("duration({})", plumb_go::quote(&shown_duration(*nanos))),
        Value::Timestamp(moment) => format!("timestamp({})", plumb_go::quote(&moment.to_string())),
        Value::Double(number) if !number.is_finite() => plumb_go::quote(&shown_double(*number)),
        Value::Double(number) => format!("{number:.DIGITS$}"),
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
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => shown(value),
        other => {
            return Err(format!("error during formatting: no formatting function for {}", other.type_name()));
        }
    })
}
