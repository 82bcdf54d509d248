//! The quantity library.

use std::cmp::Ordering;

use plumb_resize::Quantity;
use plumb_resize::quantity::Format;

use super::{Answer, Regexes, fail};
use crate::value::{Amount, Value};

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    let int = |number: &i64| Amount {
        amount: Quantity::from_units(*number),
        small: Some((*number, 0)),
        is_sum: false,
    };
    Some(match (function, args) {
        ("quantity", [Value::Text(text)]) => match text.parse::<Quantity>() {
            Ok(amount) => Ok(Value::Quantity(Amount { amount, small: small(text), is_sum: false })),
            Err(why) => fail(why.to_string()),
        },
        ("isQuantity", [Value::Text(text)]) => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        ("sign", [Value::Quantity(quantity)]) => {
            let amount = quantity.amount;
            Ok(Value::Int(i64::from(amount.is_positive()) - i64::from(amount.is_negative())))
        }
        ("isGreaterThan", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Bool(a.amount > b.amount)),
        ("isLessThan", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Bool(a.amount < b.amount)),
        ("compareTo", [Value::Quantity(a), Value::Quantity(b)]) => {
            Ok(Value::Int(match a.amount.cmp(&b.amount) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            }))
        }
        ("isInteger", [Value::Quantity(quantity)]) => Ok(Value::Bool(whole(*quantity).is_some())),
        ("asInteger", [Value::Quantity(quantity)]) => match whole(*quantity) {
            Some(number) => Ok(Value::Int(number)),
            None => fail("cannot convert value to integer"),
        },
        ("asApproximateFloat", [Value::Quantity(quantity)]) => Ok(Value::Double(approximate(*quantity))),
        ("add", [Value::Quantity(a), Value::Quantity(b)]) => add(*a, *b),
        ("add", [Value::Quantity(a), Value::Int(b)]) => add(*a, int(b)),
        ("sub", [Value::Quantity(a), Value::Quantity(b)]) => sub(*a, *b),
        ("sub", [Value::Quantity(a), Value::Int(b)]) => sub(*a, int(b)),
        _ => return None,
    })
}

fn add<'a>(a: Amount, b: Amount) -> Answer<'a> {
    let small = a.small.zip(b.small).and_then(|(a, b)| added(a, b));
    match a.amount.checked_add(b.amount) {
        Ok(amount) => Ok(Value::Quantity(Amount { amount, small, is_sum: true })),
        Err(error) => fail(error.to_string()),
    }
}

fn sub<'a>(a: Amount, b: Amount) -> Answer<'a> {
    let small =
        a.small.zip(b.small).and_then(|(a, (number, power))| added(a, (number.wrapping_neg(), power)));
    match a.amount.checked_sub(b.amount) {
        Ok(amount) => Ok(Value::Quantity(Amount { amount, small, is_sum: true })),
        Err(error) => fail(error.to_string()),
    }
}

/// The integer value, if upstream takes the quantity for an integer: not for `1000m` and `1.5Gi`.
fn whole(quantity: Amount) -> Option<i64> {
    let (number, power) = quantity.small?;
    scaled(number, power)
}

#[expect(clippy::cast_precision_loss, reason = "the function returns an approximation")]
fn approximate(quantity: Amount) -> f64 {
    let (number, power) = if let Some((number, power)) = quantity.small {
        (number as f64, power)
    } else {
        let text = quantity.amount.with_format(Format::DecimalSi).to_string();
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let power = SUFFIXES.iter().find(|(suffix, _)| text[digits.len()..] == **suffix);
        (digits.parse().unwrap_or_default(), power.map_or(0, |(_, power)| *power))
    };
    if power == 0 { number } else { number * format!("1e{power}").parse::<f64>().unwrap_or(1.0) }
}

/// The decimal suffixes with their powers of ten.
const SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// The binary suffixes; each is 2^10 times the previous one.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Multiplies a number by a power of ten; `None` if the result is not an `i64`.
fn scaled(number: i64, power: i32) -> Option<i64> {
    number.checked_mul(10_i64.checked_pow(u32::try_from(power).ok()?)?)
}

/// The sum of two numbers, each multiplied by a power of ten.
fn added(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    if a.0 == 0 {
        return Some(b);
    }
    let power = a.1.min(b.1);
    let aligned = |(number, exponent): (i64, i32)| scaled(number, exponent.checked_sub(power)?);
    Some((aligned(a)?.checked_add(aligned(b)?)?, power))
}

/// The number and the power of ten with which upstream represents a quantity; `None` if it has too many digits, or is a
/// fraction with a binary suffix.
fn small(text: &str) -> Option<(i64, i32)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = |text: &str| text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let rest = rest.trim_start_matches('0');
    let (number, rest) = rest.split_at(digits(rest));
    let number = if number.is_empty() { "0" } else { number };
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), |rest| rest.split_at(digits(rest)));
    let length = i32::try_from(number.len() + fraction.len()).ok()?;
    let mut value: i64 = format!("{number}{fraction}").parse().ok()?;
    let mut power = 0;
    if let Some(index) = BINARY.iter().position(|binary| *binary == suffix) {
        let exponent = 10 * (i32::try_from(index).ok()? + 1);
        if !fraction.is_empty() || 14 - length - exponent * 3 / 10 < 0 {
            return None;
        }
        value = value.checked_mul(1_i64.checked_shl(u32::try_from(exponent).ok()?)?)?;
    } else {
        power = match SUFFIXES.iter().find(|(decimal, _)| *decimal == suffix) {
            Some((_, power)) => *power,
            None => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
        };
        power = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        if length > 18 || power < -9 {
            return None;
        }
    }
    Some((if negative { -value } else { value }, power))
}
