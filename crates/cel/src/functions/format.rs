//! Texts with places for values: `'%d of %s'.format([1, 'a'])`.

use data_encoding::{HEXLOWER, HEXUPPER};

use super::convert::{shown, shown_double};
use super::time::{shown_duration, shown_timestamp};
use super::{Answer, fail};
use crate::value::{List, Value};

/// How many digits a text may ask for; more are of no use to anybody.
const MAX_PRECISION: usize = 200;

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
        let mut precision = None;
        if letters.peek() == Some(&'.') {
            letters.next();
            let mut digits = String::new();
            while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = match digits.parse::<usize>() {
                Ok(digits) if digits <= MAX_PRECISION => Some(digits),
                _ => return fail("error while parsing precision"),
            };
        }
        let Some(verb) = letters.next() else {
            return fail("unexpected end of string");
        };
        let Some(value) = values.get(next) else {
            return fail(format!("index {next} out of range"));
        };
        next += 1;
        match place(verb, precision, &value) {
            Ok(text) => out.push_str(&text),
            Err(why) => return fail(why),
        }
    }
    Ok(Value::text(out))
}

fn place(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, String> {
    let wrong = |names: &str| {
        let found = value.type_name();
        Err(format!("error during formatting: {names}, was given {found}"))
    };
    match (verb, value) {
        ('s', value) => Ok(text(value)),
        ('d', Value::Int(_) | Value::Uint(_)) => Ok(shown(value)),
        ('d', Value::Double(number)) if !number.is_finite() => Ok(shown_double(*number)),
        ('d', _) => wrong("decimal clause can only be used on integers"),
        ('f', Value::Double(number)) => Ok(format!("{number:.*}", precision.unwrap_or(6))),
        ('f', Value::Int(number)) => Ok(format!("{number}.{}", "0".repeat(precision.unwrap_or(6)))),
        ('f', _) => wrong("fixed-point clause can only be used on doubles"),
        ('e', Value::Double(number)) => {
            let text = format!("{number:.*e}", precision.unwrap_or(6));
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) =
                exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
            Ok(format!("{digits}e{sign}{exponent:0>2}"))
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
        ('b' | 'o' | 'x' | 'X', _) => wrong("only integers can be formatted so"),
        (verb, _) => {
            Err(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\""))
        }
    }
}

fn signed(number: i64, shown: fn(u64) -> String) -> String {
    let size = shown(number.unsigned_abs());
    if number < 0 { format!("-{size}") } else { size }
}

/// A value between other text.
fn text(value: &Value<'_>) -> String {
    match value {
        Value::Duration(nanos) => shown_duration(*nanos),
        Value::Timestamp(moment) => shown_timestamp(*moment),
        Value::List(list) => {
            let all: Vec<String> = list.iter().map(|element| text(&element)).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Map(map) => {
            let mut all: Vec<String> =
                map.entries().map(|(key, value)| format!("{}: {}", text(&key), text(&value))).collect();
            all.sort();
            format!("{{{}}}", all.join(", "))
        }
        value => shown(value),
    }
}
