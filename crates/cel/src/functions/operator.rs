//! Operators: equality, order, arithmetic and membership.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Answer, Regexes, fail, unordered};
use crate::decl::{Decl, DeclKind, ListOrder};
use crate::error::EvalError;
use crate::value::{List, Map, Value};

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    Some(match (function, args) {
        ("!_", [Value::Bool(truth)]) => Ok(Value::Bool(!truth)),
        ("_==_", [a, b]) if !is_comparable(a, b) => Err(EvalError::no_such_overload()),
        ("_==_", [a, b]) => Ok(Value::Bool(equal(a, b))),
        // Values that cannot be compared are not equal.
        ("_!=_", [a, b]) => Ok(Value::Bool(!(is_comparable(a, b) && equal(a, b)))),
        ("_<_", [a, b]) => ordered(a, b, |order| order == Ordering::Less),
        ("_<=_", [a, b]) => ordered(a, b, |order| order != Ordering::Greater),
        ("_>_", [a, b]) => ordered(a, b, |order| order == Ordering::Greater),
        ("_>=_", [a, b]) => ordered(a, b, |order| order != Ordering::Less),
        ("@in", [value, Value::List(list)]) => {
            Ok(Value::Bool(list.iter().any(|element| equal(value, &element))))
        }
        ("@in", [key, Value::Map(map)]) => Ok(Value::Bool(map.get(key).is_some())),
        ("-_", [Value::Int(number)]) => number.checked_neg().map(Value::Int).ok_or_else(overflow),
        ("-_", [Value::Double(number)]) => Ok(Value::Double(-number)),
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => arithmetic(function, a, b),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("optional.of", [value]) => Ok(Value::Optional(Some(Box::new(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(Value::Optional((!is_zero(value)).then(|| Box::new(value.clone()))))
        }
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("hasValue", [Value::Optional(inner)]) => Ok(Value::Bool(inner.is_some())),
        ("value", [Value::Optional(inner)]) => match inner {
            Some(inner) => Ok((**inner).clone()),
            None => fail("optional.none() dereference"),
        },
        _ => return None,
    })
}

/// Whether a list, a map or an object has a declared type.
fn is_declared(value: &Value<'_>) -> bool {
    match value {
        Value::List(List::Data(_, decl) | List::Made(_, Some(decl))) | Value::Map(Map::Data(_, decl)) => {
            !matches!(decl.kind, DeclKind::Dyn)
        }
        _ => false,
    }
}

/// Whether two values can be compared for equality.
fn is_comparable(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        // Values of the authorizer library support only their methods.
        (Value::Access(_) | Value::Decision(_), _) | (_, Value::Access(_) | Value::Decision(_)) => false,
        (Value::Null, _)
        | (_, Value::Null)
        | (Value::List(_), Value::List(_))
        | (Value::Map(_), Value::Map(_)) => true,
        // In upstream, a sum has another type, which equality does not accept on the right.
        (Value::Quantity(_), Value::Quantity(other)) => !other.is_sum,
        // Values of libraries, and declared lists and objects, can be compared only with values of the same kind.
        (
            Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(..)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Format(_),
            _,
        ) => std::mem::discriminant(a) == std::mem::discriminant(b),
        _ => !is_declared(a),
    }
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
        Value::Double(number) => *number == 0.0,
        Value::Timestamp(moment) => moment.is_zero(),
        Value::Text(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Optional(inner) => inner.is_none(),
        _ => false,
    }
}

/// Whether two values are equal. Numbers compare across types, and the order of sets does not matter.
pub(crate) fn equal(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a.at == b.at,
        (Value::Type(a), Value::Type(b)) | (Value::Format(a), Value::Format(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a.amount == b.amount,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a, x), Value::Cidr(b, y)) => a == b && x == y,
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Message(a), Value::Message(b)) => {
            a.name == b.name
                && a.fields.len() == b.fields.len()
                && a.fields
                    .iter()
                    .all(|(name, value)| b.fields.get(name).is_some_and(|other| equal(value, other)))
        }
        (Value::Semver(a), Value::Semver(b)) => a.cmp(b) == Ordering::Equal,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b),
            (None, None) => true,
            _ => false,
        },
        (Value::List(a), Value::List(b)) => same_list(a, b),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.entries().all(|(key, value)| b.get(&key).is_some_and(|other| equal(&value, &other)))
        }
        _ => compare(a, b) == Some(Ordering::Equal),
    }
}

/// The declaration of a list. Operations with two lists use that of the first.
fn declared<'a>(list: &List<'a>) -> Option<&'a Decl> {
    match list {
        List::Data(_, decl) => Some(decl),
        List::Made(_, decl) => *decl,
    }
}

pub(super) fn order_of<'a>(list: &List<'a>) -> &'a ListOrder {
    declared(list).map_or(&ListOrder::Listed, |decl| &decl.order)
}

fn same_list(a: &List<'_>, b: &List<'_>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match order_of(a) {
        ListOrder::Listed => a.iter().zip(b.iter()).all(|(a, b)| equal(&a, &b)),
        ListOrder::Set => unordered::same_set(a, b),
        ListOrder::Keyed(keys) => unordered::same_keyed(a, keys, b),
    }
}

/// The order of two values; `None` if they cannot be compared.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Int(a), Value::Double(b)) => whole_and_double(i128::from(*a), *b),
        (Value::Uint(a), Value::Double(b)) => whole_and_double(i128::from(*a), *b),
        (Value::Double(a), Value::Int(b)) => whole_and_double(i128::from(*b), *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => whole_and_double(i128::from(*b), *a).map(Ordering::reverse),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) | (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.at.cmp(&b.at)),
        _ => None,
    }
}

fn whole_and_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // All integers of 64 bits are between these bounds.
    if double >= 18_446_744_073_709_551_616.0 {
        return Some(Ordering::Less);
    }
    if double < -9_223_372_036_854_775_808.0 {
        return Some(Ordering::Greater);
    }
    let floor: i128 = format!("{:.0}", double.floor()).parse().ok()?;
    Some(whole.cmp(&floor).then(if double.fract() == 0.0 { Ordering::Equal } else { Ordering::Less }))
}

fn ordered<'a>(a: &Value<'_>, b: &Value<'_>, accepts: fn(Ordering) -> bool) -> Answer<'a> {
    match compare(a, b) {
        Some(order) => Ok(Value::Bool(accepts(order))),
        None if matches!((a, b), (Value::Double(_), _) | (_, Value::Double(_))) => {
            let number = |v: &Value<'_>| matches!(v, Value::Double(_) | Value::Int(_) | Value::Uint(_));
            if number(a) && number(b) { Ok(Value::Bool(false)) } else { Err(EvalError::no_such_overload()) }
        }
        None => Err(EvalError::no_such_overload()),
    }
}

fn arithmetic<'a>(function: &str, a: &Value<'a>, b: &Value<'a>) -> Answer<'a> {
    match (function, a, b) {
        (_, Value::Int(a), Value::Int(b)) => {
            let answer = match function {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" if *b == 0 => return fail("division by zero"),
                "_/_" => a.checked_div(*b),
                _ if *b == 0 => return fail("modulus by zero"),
                _ => a.checked_rem(*b),
            };
            answer.map(Value::Int).ok_or_else(overflow)
        }
        (_, Value::Uint(a), Value::Uint(b)) => {
            let answer = match function {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" if *b == 0 => return fail("division by zero"),
                "_/_" => a.checked_div(*b),
                _ if *b == 0 => return fail("modulus by zero"),
                _ => a.checked_rem(*b),
            };
            answer.map(Value::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow"))
        }
        ("_+_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        ("_-_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        ("_*_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        ("_/_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        ("_+_", Value::Text(a), Value::Text(b)) => Ok(Value::text(format!("{a}{b}"))),
        ("_+_", Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&a[..], &b[..]].concat().into())),
        ("_+_", Value::List(a), Value::List(b)) => Ok(concatenated(a, b)),
        _ => super::time::arithmetic(function, a, b),
    }
}

/// Concatenates two lists; elements that a set or a keyed list already has are not repeated.
fn concatenated<'a>(a: &List<'a>, b: &List<'a>) -> Value<'a> {
    match (declared(a), a.is_empty(), b.is_empty()) {
        (None, true, _) => return Value::List(b.clone()),
        (None, _, true) => return Value::List(a.clone()),
        _ => {}
    }
    let mut all: Vec<Value<'a>> = a.iter().collect();
    match order_of(a) {
        ListOrder::Listed => all.extend(b.iter()),
        ListOrder::Set => unordered::add_to_set(&mut all, b),
        ListOrder::Keyed(keys) => unordered::add_to_keyed(&mut all, keys, b),
    }
    Value::List(List::Made(Arc::new(all), declared(a)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Numbers of all types that are close to each other, and to the limits of each type.
    fn number() -> impl Strategy<Value = Value<'static>> {
        let around = prop_oneof![Just(0_i64), Just(1 << 53), Just(i64::MAX), Just(i64::MIN)];
        let whole = (around, -2..3_i64).prop_map(|(around, off)| Value::Int(around.saturating_add(off)));
        let unsigned = prop_oneof![0..3_u64, (1 << 53) - 2..(1 << 53) + 3_u64, u64::MAX - 2..=u64::MAX];
        let floats = [
            0.0,
            -0.0,
            0.5,
            -1.5,
            9_007_199_254_740_992.0,
            9_223_372_036_854_775_808.0,
            18_446_744_073_709_551_616.0,
        ];
        let float = prop_oneof![prop::sample::select(floats.to_vec()), any::<f64>()];
        prop_oneof![
            whole,
            unsigned.prop_map(Value::Uint),
            (float, any::<bool>()).prop_map(|(float, negated)| Value::Double(if negated {
                -float
            } else {
                float
            })),
        ]
    }

    proptest! {
        #[test]
        fn the_order_of_numbers_is_total(numbers in vec(number(), 1..6)) {
            let compared = |a: &Value<'static>, b: &Value<'static>| compare(a, b).unwrap();
            prop_assert_eq!(plumb_testkit::total_order(&numbers, compared), Ok(()));
        }
    }
}
