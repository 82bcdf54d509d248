//! The list library.

use std::cmp::Ordering;

use super::operator::compare;
use super::{Answer, Regexes, count, equal, fail};
use crate::decl::DeclKind;
use crate::error::EvalError;
use crate::macros::SORT_BY;
use crate::value::{List, Value};

/// The maximum length of the list that `lists.range` creates.
const MAX_RANGE: i64 = 1_000_000;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    if let ("lists.range", [Value::Int(end)]) = (function, args) {
        if *end > MAX_RANGE {
            return Some(fail("lists.range() is too long"));
        }
        return Some(Ok(Value::list((0..*end).map(Value::Int).collect())));
    }
    let (Value::List(list), rest) = args.split_first()? else { return None };
    Some(match (function, rest) {
        ("isSorted", []) => {
            let sorted =
                list.iter().zip(list.iter().skip(1)).all(|(a, b)| compare(&a, &b) != Some(Ordering::Greater));
            Ok(Value::Bool(sorted))
        }
        ("min", []) => extreme(list, Ordering::Less, "min"),
        ("max", []) => extreme(list, Ordering::Greater, "max"),
        ("sum", []) => sum(list),
        ("indexOf", [value]) => {
            Ok(list.iter().position(|element| equal(&element, value)).map_or(Value::Int(-1), count))
        }
        ("lastIndexOf", [value]) => {
            Ok(list.iter().rposition(|element| equal(&element, value)).map_or(Value::Int(-1), count))
        }
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(list, *from, *to),
        ("flatten", []) => Ok(Value::list(flatten(list, 1))),
        ("flatten", [Value::Int(depth)]) => match usize::try_from(*depth) {
            Ok(depth) => Ok(Value::list(flatten(list, depth.min(64)))),
            Err(_) => fail("level must be non-negative"),
        },
        // Returned unchanged, so that an empty list keeps its declaration.
        ("distinct", []) if list.is_empty() => Ok(Value::List(list.clone())),
        ("distinct", []) => {
            let mut unique: Vec<Value<'a>> = Vec::new();
            for element in list.iter() {
                if !unique.iter().any(|other| equal(other, &element)) {
                    unique.push(element);
                }
            }
            Ok(Value::list(unique))
        }
        ("reverse", []) => Ok(Value::list(list.iter().rev().collect())),
        ("first", []) => Ok(Value::Optional(list.get(0).map(Box::new))),
        ("last", []) => Ok(Value::Optional(list.iter().next_back().map(Box::new))),
        ("sort", []) => sort(list, list),
        (SORT_BY, [Value::List(keys)]) => sort(list, keys),
        ("optional.unwrap" | "unwrapOpt", []) => {
            let mut all = Vec::new();
            for element in list.iter() {
                match element {
                    Value::Optional(inner) => all.extend(inner.map(|inner| *inner)),
                    other => return Some(fail(format!("value {} is not optional", super::display(&other)))),
                }
            }
            Ok(Value::list(all))
        }
        _ => return None,
    })
}

/// Sorts a list by keys.
fn sort<'a>(list: &List<'a>, keys: &List<'a>) -> Answer<'a> {
    if list.is_empty() {
        return Ok(Value::List(list.clone()));
    }
    let mut all: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    let is_comparable = |(key, _): &(Value<'a>, Value<'a>)| {
        !matches!(
            key,
            Value::Null
                | Value::List(_)
                | Value::Map(_)
                | Value::Optional(_)
                | Value::Type(_)
                | Value::Message(_)
        )
    };
    if !all.first().is_some_and(is_comparable) {
        return fail("list elements must be comparable");
    }
    if all.iter().any(|(key, _)| key.type_name() != all[0].0.type_name()) {
        return fail("list elements must have the same type");
    }
    all.sort_by(|(a, _), (b, _)| match (a, b) {
        // NaN is neither smaller nor larger than any number, but a sort order has to be total.
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        _ => compare(a, b).unwrap_or(Ordering::Equal),
    });
    Ok(Value::list(all.into_iter().map(|(_, element)| element).collect()))
}

fn extreme<'a>(list: &List<'a>, wanted: Ordering, name: &str) -> Answer<'a> {
    let mut all = list.iter();
    let Some(mut best) = all.next() else { return fail(format!("{name} called on empty list")) };
    for element in all {
        if compare(&element, &best) == Some(wanted) {
            best = element;
        }
    }
    Ok(best)
}

fn sum<'a>(list: &List<'a>) -> Answer<'a> {
    let mut all = list.iter();
    let Some(mut total) = all.next() else {
        let element_kind = match list {
            List::Data(_, decl) | List::Made(_, Some(decl)) => decl.element().map(|of| &of.kind),
            List::Made(_, None) => None,
        };
        return Ok(match element_kind {
            Some(DeclKind::Double) => Value::Double(0.0),
            Some(DeclKind::Duration) => Value::Duration(0),
            _ => Value::Int(0),
        });
    };
    for element in all {
        total = super::operator::call("_+_", &[total, element], &Regexes::default())
            .unwrap_or_else(|| Err(EvalError::no_such_overload()))?;
    }
    Ok(total)
}

fn slice<'a>(list: &List<'a>, from: i64, to: i64) -> Answer<'a> {
    let (Ok(begin), Ok(end)) = (usize::try_from(from), usize::try_from(to)) else {
        return fail(format!("cannot slice({from}, {to}), negative indexes not supported"));
    };
    if begin > end {
        return fail(format!(
            "cannot slice({from}, {to}), start index must be less than or equal to end index"
        ));
    }
    if end > list.len() {
        return fail(format!("cannot slice({from}, {to}), list is length {}", list.len()));
    }
    Ok(Value::list(list.iter().skip(begin).take(end - begin).collect()))
}

fn flatten<'a>(list: &List<'a>, depth: usize) -> Vec<Value<'a>> {
    let mut out = Vec::new();
    for element in list.iter() {
        match element {
            Value::List(inner) if depth > 0 => out.extend(flatten(&inner, depth - 1)),
            other => out.push(other),
        }
    }
    out
}
