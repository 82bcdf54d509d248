//! Amounts of resources.

use std::cmp::Ordering;

use plumb_resize::Quantity;

use super::{Answer, Regexes, fail};
use crate::value::Value;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    Some(match (function, args) {
        ("quantity", [Value::Text(text)]) => match text.parse() {
            Ok(quantity) => Ok(Value::Quantity(quantity)),
            Err(_) => fail(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        },
        ("isQuantity", [Value::Text(text)]) => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        ("sign", [Value::Quantity(own)]) => {
            Ok(Value::Int(i64::from(own.is_positive()) - i64::from(own.is_negative())))
        }
        ("isGreaterThan", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Bool(a > b)),
        ("isLessThan", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Bool(a < b)),
        ("compareTo", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Int(match a.cmp(b) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })),
        ("isInteger", [Value::Quantity(own)]) => Ok(Value::Bool(whole(*own).is_some())),
        ("asInteger", [Value::Quantity(own)]) => match whole(*own) {
            Some(number) => Ok(Value::Int(number)),
            None => fail("cannot convert value to integer"),
        },
        ("asApproximateFloat", [Value::Quantity(own)]) => Ok(Value::Double(approximate(*own))),
        ("add", [Value::Quantity(a), Value::Quantity(b)]) => sum(a.checked_add(*b)),
        ("add", [Value::Quantity(a), Value::Int(b)]) => sum(a.checked_add(Quantity::from_units(*b))),
        ("sub", [Value::Quantity(a), Value::Quantity(b)]) => sum(a.checked_sub(*b)),
        ("sub", [Value::Quantity(a), Value::Int(b)]) => sum(a.checked_sub(Quantity::from_units(*b))),
        _ => return None,
    })
}

fn sum<'a, E: std::fmt::Display>(answer: Result<Quantity, E>) -> Answer<'a> {
    answer.map(Value::Quantity).or_else(|error| fail(error.to_string()))
}

fn whole(own: Quantity) -> Option<i64> {
    let units = own.units().ok()?;
    (Quantity::from_units(units) == own).then_some(units)
}

#[expect(clippy::cast_precision_loss, reason = "the name of the function says so")]
fn approximate(own: Quantity) -> f64 {
    match whole(own) {
        Some(units) => units as f64,
        None => own.saturating_milli() as f64 / 1_000.0,
    }
}
