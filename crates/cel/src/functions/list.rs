//! Lists.

use std::cmp::Ordering;

use super::operator::compare;
use super::{Answer, Regexes, count, equal, fail};
use crate::error::EvalError;
use crate::value::{List, Value};

/// The longest list that can be made of nothing.
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
            let sorted = list
                .iter()
                .zip(list.iter().skip(1))
                .all(|(a, b)| compare(&a, &b).is_some_and(|order| order != Ordering::Greater));
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
        ("flatten", []) => Ok(Value::list(flat(list, 1))),
        ("flatten", [Value::Int(depth)]) => match usize::try_from(*depth) {
            Ok(depth) => Ok(Value::list(flat(list, depth.min(64)))),
            Err(_) => fail("level must be non-negative"),
        },
        ("distinct", []) => {
            let mut seen: Vec<Value<'a>> = Vec::new();
            for element in list.iter() {
                if !seen.iter().any(|own| equal(own, &element)) {
                    seen.push(element);
                }
            }
            Ok(Value::list(seen))
        }
        ("reverse", []) => Ok(Value::list(list.iter().rev().collect())),
        ("first", []) => Ok(Value::Optional(list.get(0).map(Box::new))),
        ("last", []) => Ok(Value::Optional(list.iter().next_back().map(Box::new))),
        ("sort", []) => {
            let mut all: Vec<Value<'a>> = list.iter().collect();
            if all.windows(2).any(|pair| compare(&pair[0], &pair[1]).is_none()) {
                return Some(Err(EvalError::no_such_overload()));
            }
            all.sort_by(|a, b| compare(a, b).unwrap_or(Ordering::Equal));
            Ok(Value::list(all))
        }
        _ => return None,
    })
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
    let Some(mut total) = all.next() else { return Ok(Value::Int(0)) };
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

fn flat<'a>(list: &List<'a>, depth: usize) -> Vec<Value<'a>> {
    let mut out = Vec::new();
    for element in list.iter() {
        match element {
            Value::List(inner) if depth > 0 => out.extend(flat(&inner, depth - 1)),
            other => out.push(other),
        }
    }
    out
}
