//! Comparison, order and printing of values in server-side apply.

use std::cmp::Ordering;
use std::fmt;

use plumb_go::quote;
use serde_json::{Number, Value};

/// Whether two values are equal; numbers are compared by value.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || compare_numbers(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => one == other,
    }
}

/// The order of values, as `value.Compare` of structured-merge-diff: numbers, strings, booleans, lists, objects, null.
pub(super) fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let elements = one.iter().zip(other).map(|(one, other)| compare(one, other));
            let first = elements.into_iter().find(|order| order.is_ne());
            first.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let fields = one.iter().zip(other).map(|((name, value), (other_name, other_value))| {
                name.cmp(other_name).then_with(|| compare(value, other_value))
            });
            let first = fields.into_iter().find(|order| order.is_ne());
            first.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Compares numbers exactly by value. Upstream rounds an integer before it compares it with a float, so that 2⁵³+1 and
/// 2⁵³ both equal 2⁵³ as a float, though they differ: that is not a total order.
fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    // Upstream decodes a number beyond int64 as a float, and JSON has neither NaN nor infinities.
    let float = |number: &Number| number.as_f64().unwrap_or_default();
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(one), None) => compare_whole(one, float(other)),
        (None, Some(other)) => compare_whole(other, float(one)).reverse(),
        (None, None) => float(one).partial_cmp(&float(other)).unwrap_or(Ordering::Equal),
    }
}

/// Compares an integer with a float.
fn compare_whole(whole: i64, float: f64) -> Ordering {
    /// 2⁶³, which is the first float beyond an `i64`.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float < -BEYOND {
        return Ordering::Greater;
    }
    // The float is between the bounds and has no fraction, so nothing is truncated.
    #[expect(clippy::cast_possible_truncation)]
    let floor = float.floor() as i64;
    let beyond_floor = if float > float.floor() { Ordering::Less } else { Ordering::Equal };
    whole.cmp(&floor).then(beyond_floor)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// A value as paths in error messages display it: strings in quotes, numbers as Go prints them.
pub(super) struct Printed<'a>(pub(super) &'a Value);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(number) => f.write_str(&number_in_go(number)),
            Value::String(text) => f.write_str(&quote(text)),
            Value::Array(list) => {
                f.write_str("[")?;
                for (index, value) in list.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { "," }, Printed(value))?;
                }
                f.write_str("]")
            }
            Value::Object(object) => {
                object.iter().try_for_each(|(name, value)| write!(f, "{name}={}", Printed(value)))
            }
        }
    }
}

/// A number as Go prints it: as an `int64` if it fits.
fn number_in_go(number: &Number) -> String {
    number.as_i64().map_or_else(|| float(number), |whole| whole.to_string())
}

/// A number as Go prints a `float64`: shortest, with an exponent from a million on.
pub(super) fn float(number: &Number) -> String {
    /// Go uses exponents from this power of ten on.
    const PLAIN: i32 = 6;
    let Some(value) = number.as_f64() else { return number.to_string() };
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..PLAIN).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A value with its type, as Go writes it in code.
pub(super) fn in_go(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number_in_go(number),
        Value::String(text) => quote(text),
        Value::Array(list) => {
            let elements: Vec<String> = list.iter().map(in_go).collect();
            format!("[]interface {{}}{{{}}}", elements.join(", "))
        }
        Value::Object(object) => {
            let fields: Vec<String> =
                object.iter().map(|(name, value)| format!("{}:{}", quote(name), in_go(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_testkit::total_order;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::element::Element;
    use super::*;

    /// Numbers that are equal as floats, and their neighbours.
    fn number() -> impl Strategy<Value = Value> {
        let near = |around: i64| (-2..3_i64).prop_map(move |off| json!(around.saturating_add(off)));
        let float = |around: f64| (-2..3_i8).prop_map(move |off| json!(around + f64::from(off) * 2.0));
        prop_oneof![
            near(1 << 53),
            near(i64::MAX),
            near(i64::MIN),
            near(0),
            (u64::MAX - 3..=u64::MAX).prop_map(|number| json!(number)),
            float(9_007_199_254_740_992.0),
            float(9_223_372_036_854_775_808.0),
            float(-9_223_372_036_854_775_808.0),
            (-3..4_i8).prop_map(|halves| json!(f64::from(halves) / 2.0)),
            any::<f64>().prop_map(|float| json!(float)),
        ]
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            8 => number(),
            1 => "[ab]?".prop_map(|text| json!(text)),
            1 => any::<bool>().prop_map(|value| json!(value)),
            1 => Just(Value::Null),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..3).prop_map(Value::Array),
                btree_map("[ab]", inner, 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn element() -> impl Strategy<Value = Element<'static>> {
        prop_oneof![
            "[ab]?".prop_map(|name| Element::Field(name.into())),
            vec(("[ab]", value()), 0..3).prop_map(|fields| {
                let fields = fields.into_iter();
                Element::Key(
                    fields.map(|(name, value)| (name.into(), std::borrow::Cow::Owned(value))).collect(),
                )
            }),
            value().prop_map(|value| Element::Value(std::borrow::Cow::Owned(value))),
            (0..3_i64).prop_map(Element::Index),
        ]
    }

    proptest! {
        #[test]
        fn the_order_of_values_is_total(values in vec(prop_oneof![number(), value()], 1..6)) {
            prop_assert_eq!(total_order(&values, compare), Ok(()));
        }

        #[test]
        fn values_that_are_equal_are_equal_in_the_order(one in value(), other in value()) {
            prop_assert_eq!(equal(&one, &other), compare(&one, &other).is_eq());
        }

        #[test]
        fn the_order_of_elements_is_total(elements in vec(element(), 1..6)) {
            prop_assert_eq!(total_order(&elements, Ord::cmp), Ok(()));
        }
    }

    #[test]
    fn whole_numbers_are_compared_with_floats_without_rounding() {
        let table = [
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992.0), Ordering::Greater),
            (json!(9_007_199_254_740_992_i64), json!(9_007_199_254_740_992.0), Ordering::Equal),
            (json!(i64::MAX), json!(9_223_372_036_854_775_808.0), Ordering::Less),
            (json!(i64::MIN), json!(-9_223_372_036_854_775_808.0), Ordering::Equal),
            (json!(-2), json!(-1.5), Ordering::Less),
            (json!(-1), json!(-1.5), Ordering::Greater),
            (json!(0), json!(-0.0), Ordering::Equal),
        ];
        for (one, other, order) in table {
            assert_eq!(compare(&one, &other), order, "{one} {other}");
            assert_eq!(compare(&other, &one), order.reverse(), "{other} {one}");
        }
    }
}
