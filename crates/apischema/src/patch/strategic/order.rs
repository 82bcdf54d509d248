//! The order of a list after a merge, and the identity of its elements.
//!
//! Elements of the patch are in the order of the patch, the others in the order of the live list. Both sequences are merged by
//! the order of the live list.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::StrategicError;
use crate::patch::go_format::go_format;

/// The type of the elements of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elements {
    Objects,
    Scalars,
}

/// A string that identifies a value. A quote distinguishes the string `1` from the number.
pub(super) fn identity(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{text}"),
        other => other.to_string(),
    }
}

/// The type of the elements of both lists, which must be the same.
pub(super) fn element_kind(left: &[Value], right: &[Value]) -> Result<Elements, StrategicError> {
    let mut all = left.iter().chain(right);
    let Some(first) = all.next() else {
        return Err(StrategicError::Other("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(StrategicError::ListOfLists);
    }
    if all.any(|other| tag(other) != tag(first)) {
        let both = format!(
            "[{} {}]",
            go_format(&Value::Array(left.to_vec())),
            go_format(&Value::Array(right.to_vec()))
        );
        return Err(StrategicError::Other(format!("list element types are not identical: {both}")));
    }
    Ok(if first.is_object() { Elements::Objects } else { Elements::Scalars })
}

fn tag(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(number) => 2 + u8::from(number.is_f64()),
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

/// Validates that `$setElementOrder` contains all elements of the patch in their order.
pub(super) fn check(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut waiting = Vec::with_capacity(patch.len());
    for element in patch {
        match (key, element) {
            (None, _) => waiting.push(element),
            (Some(_), Value::Object(object)) => {
                if object.get(super::PATCH).and_then(Value::as_str) != Some("delete") {
                    waiting.push(element);
                }
            }
            (Some(_), other) => return Err(StrategicError::not_a("map[string]interface {}", other)),
        }
    }
    let mut waiting = waiting.into_iter().peekable();
    for wanted in order {
        while waiting.next_if(|next| next.get(super::PATCH).is_some()).is_some() {}
        let Some(next) = waiting.peek() else { return Ok(()) };
        if named(next, key)? == named(wanted, key)? {
            waiting.next();
        }
    }
    if waiting.peek().is_none() {
        return Ok(());
    }
    Err(StrategicError::Other(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        go_format(&Value::Array(patch.to_vec())),
        go_format(&Value::Array(order.to_vec()))
    )))
}

/// The value that identifies an element.
fn named<'v>(element: &'v Value, key: Option<&str>) -> Result<&'v Value, StrategicError> {
    let Some(key) = key else { return Ok(element) };
    let Value::Object(object) = element else {
        return Err(StrategicError::not_a("map[string]interface {}", element));
    };
    object.get(key).ok_or_else(|| StrategicError::no_merge_key(object, key))
}

/// The index of each element by its key; of several elements with the same key, the first.
#[derive(Debug)]
pub(super) struct Indexes(HashMap<String, usize>);

impl Indexes {
    pub(super) fn new(list: &[Value], key: &str) -> Result<Self, StrategicError> {
        let mut indexes = Self(HashMap::with_capacity(list.len()));
        for (index, element) in list.iter().enumerate() {
            let Value::Object(object) = element else {
                return Err(StrategicError::Other(format!("value for key {index} is not a map")));
            };
            if let Some(value) = object.get(key) {
                indexes.note(value, index);
            }
        }
        Ok(indexes)
    }

    pub(super) fn find(&self, value: &Value) -> Option<usize> {
        self.0.get(&identity(value)).copied()
    }

    pub(super) fn note(&mut self, value: &Value, index: usize) {
        self.0.entry(identity(value)).or_insert(index);
    }
}

/// Removes the elements that another list contains.
pub(super) fn without(list: Vec<Value>, named: &[Value]) -> Vec<Value> {
    let named: HashSet<String> = named.iter().map(identity).collect();
    list.into_iter().filter(|value| !named.contains(&identity(value))).collect()
}

/// Concatenates lists of scalars without duplicates. Like upstream, the last element replaces a removed duplicate.
pub(super) fn distinct(mut list: Vec<Value>, more: Vec<Value>) -> Vec<Value> {
    list.extend(more);
    let mut seen = HashSet::with_capacity(list.len());
    let mut index = 0;
    while index < list.len() {
        if seen.insert(identity(&list[index])) {
            index += 1;
        } else {
            list.swap_remove(index);
        }
    }
    list
}

/// Orders a merged list: elements of the patch in its order, the others in that of the live list.
pub(super) fn arrange(
    merged: Vec<Value>,
    in_patch: &Ranks,
    in_live: &Ranks,
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicError> {
    let mut patched = Vec::new();
    let mut untouched = Vec::new();
    for value in merged {
        let name = identity(named(&value, key)?);
        let patch_rank = in_patch.rank(&name);
        let live_rank = in_live.rank(&name);
        if patch_rank.is_some() {
            patched.push((patch_rank, live_rank, value));
        } else {
            untouched.push((live_rank, live_rank, value));
        }
    }
    let patched = sorted(patched);
    let untouched = sorted(untouched);
    let mut out = Vec::with_capacity(patched.len() + untouched.len());
    let mut untouched = untouched.into_iter().peekable();
    for (rank, value) in patched {
        while let Some((Some(before), _)) = untouched.peek()
            && rank.is_some_and(|rank| *before < rank)
        {
            out.extend(untouched.next().map(|(_, value)| value));
        }
        out.push(value);
    }
    out.extend(untouched.map(|(_, value)| value));
    Ok(out)
}

/// Sorts by the first rank. Returns the second rank with each element.
///
/// Upstream's comparison takes an element without a rank for the smaller one, whichever side it is on, and Go sorts short
/// lists by insertion, which reverses such elements. The result here is the same.
fn sorted(mut list: Vec<(Option<usize>, Option<usize>, Value)>) -> Vec<(Option<usize>, Value)> {
    if list.iter().all(|(rank, _, _)| rank.is_some()) {
        list.sort_by_key(|(rank, _, _)| *rank);
    } else {
        list.reverse();
    }
    list.into_iter().map(|(_, live, value)| (live, value)).collect()
}

/// The index of each element of a list by its identity; of several equal elements, the first.
#[derive(Debug, Default)]
pub(super) struct Ranks(HashMap<String, usize>);

impl Ranks {
    pub(super) fn new(list: &[Value], key: Option<&str>) -> Result<Self, StrategicError> {
        let mut ranks = HashMap::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            ranks.entry(identity(named(value, key)?)).or_insert(index);
        }
        Ok(Self(ranks))
    }

    /// Ranks the elements that have the key. Those without it are rejected later, with upstream's message.
    pub(super) fn skipping_unnamed(list: &[Value], key: &str) -> Self {
        let mut ranks = HashMap::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            if let Some(value) = value.get(key) {
                ranks.entry(identity(value)).or_insert(index);
            }
        }
        Self(ranks)
    }

    fn rank(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}
