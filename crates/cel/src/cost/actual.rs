//! The actual cost of a call, from its arguments.

use super::range::{scaled, truncated};
use super::{CALL, LIST, PATTERN, TRAVERSAL};
use crate::macros::SORT_BY;
use crate::value::Value;

/// The cost of a call, computed before the call is evaluated.
pub(crate) fn call_cost(function: &str, args: &[Value<'_>]) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    let new_list = |size: u64| size.saturating_add(CALL + LIST);
    let matching = || scaled(size(0).saturating_add(1), TRAVERSAL).saturating_mul(scaled(size(1), PATTERN));
    match function {
        "check" if matches!(args.first(), Some(Value::Access(_))) => super::AUTHORIZATION,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(1, traversal),
        "ip" if matches!(args.first(), Some(Value::Cidr(..))) => 1,
        "ip" | "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
        | "quantity" | "isQuantity" | "semver" | "isSemver" | "startsWith" | "endsWith" | "bytes"
        | "strings.quote" => scaled(size(0), TRAVERSAL),
        "replace" | "split" | "ip.isCanonical" => scaled(size(0), 2.0 * TRAVERSAL),
        "join" => {
            let texts = match args.first() {
                Some(Value::List(list)) => {
                    let lengths: u64 = list.iter().map(|element| element.size()).sum();
                    lengths.saturating_add(size(1).saturating_mul(list.len() as u64))
                }
                _ => 1,
            };
            scaled(texts, 2.0 * TRAVERSAL)
        }
        "find" | "findAll" | "matches" => matching(),
        "containsIP" | "containsCIDR" => {
            let both = scaled(size(0).saturating_mul(2), TRAVERSAL).saturating_add(1);
            let text = matches!(args.get(1), Some(Value::Text(_)));
            if text { both.saturating_add(scaled(size(1), TRAVERSAL)) } else { both }
        }
        // A named format costs as much as a pattern of 128 characters.
        "validate" => scaled(size(1).saturating_add(1), TRAVERSAL).saturating_mul(32),
        "format" => scaled(size(0), TRAVERSAL)
            .saturating_add(args.get(1).map_or(0, |values| scaled(traversal(values), TRAVERSAL))),
        "string" if matches!(args.first(), Some(Value::Bytes(_))) => scaled(size(0), TRAVERSAL),
        "contains" => scaled(size(0), TRAVERSAL).saturating_mul(scaled(size(1), TRAVERSAL)),
        "@in" if matches!(args.get(1), Some(Value::List(_))) => size(1),
        "_==_" | "_!=_" => match args {
            [Value::List(a), Value::List(b)] => a.len().min(b.len()).max(1) as u64,
            _ => scaled(size(0).min(size(1)), TRAVERSAL).max(1),
        },
        "_<_" | "_<=_" | "_>_" | "_>=_" => scaled(size(0).min(size(1)), TRAVERSAL).max(1),
        "_+_" if matches!(args.first(), Some(Value::Text(_) | Value::Bytes(_))) => {
            scaled(size(0).saturating_add(size(1)), TRAVERSAL)
        }
        // SPEC: upstream charges nothing for these; here they cost what they create or compare.
        "_+_" if matches!(args.first(), Some(Value::List(_))) => {
            scaled(size(0).saturating_add(size(1)), TRAVERSAL).max(1)
        }
        "sets.contains" | "sets.intersects" => size(0).saturating_mul(size(1)).saturating_add(CALL),
        "sets.equivalent" => size(0).saturating_mul(size(1)).saturating_mul(2).saturating_add(CALL),
        "distinct" | "sort" => new_list(pairwise(args.first())),
        SORT_BY => new_list(pairwise(args.get(1))),
        "slice" => match args {
            [_, Value::Int(from), Value::Int(to)] => {
                new_list(u64::try_from(to.saturating_sub(*from)).unwrap_or(0).min(size(0)))
            }
            _ => new_list(size(0)),
        },
        "reverse" => new_list(size(0)),
        "flatten" => match args.get(1) {
            Some(Value::Int(depth)) => new_list(size(0).saturating_mul(u64::try_from(*depth).unwrap_or(0))),
            _ => new_list(size(0)),
        },
        "lists.range" => match args.first() {
            Some(Value::Int(end)) => new_list(u64::try_from(*end).unwrap_or(0)),
            _ => new_list(0),
        },
        _ => 1,
    }
}

/// The cost of comparing all elements of a list with each other.
fn pairwise(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 0 };
    let size = list.len() as u64;
    let texts = matches!(list.get(0), Some(Value::Text(_) | Value::Bytes(_)));
    truncated(size.saturating_mul(size), if texts { 2.0 + TRAVERSAL } else { 2.0 })
}

/// The cost of traversing a value with all its elements.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::Text(text) => scaled(text.len() as u64, TRAVERSAL),
        Value::Bytes(bytes) => scaled(bytes.len() as u64, TRAVERSAL),
        Value::List(list) => list.iter().map(|element| traversal(&element)).fold(0, u64::saturating_add),
        Value::Map(map) => map
            .entries()
            .map(|(key, value)| traversal(&key).saturating_add(traversal(&value)))
            .fold(0, u64::saturating_add),
        _ => 1,
    }
}
