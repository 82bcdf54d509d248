//! Pruning, defaulting and validation of custom resources by their schema.

mod default;
mod embedded;
mod lists;
mod prune;
mod types;

pub(crate) use default::{defaults, without_nulls};
pub(crate) use embedded::{decode_error, embedded, for_each_embedded};
pub(crate) use lists::lists;
pub(crate) use prune::{prune, prune_root};
pub(crate) use types::{Patterns, types};

use plumb_validation::field::BadValue;
use serde_json::Value;

/// A value as error messages display it.
pub(crate) fn bad_value(value: &Value) -> BadValue {
    match value {
        Value::String(text) => BadValue::from(text),
        other => BadValue::Bare(other.to_string()),
    }
}

/// Finds the old element of a list with map keys that has the same keys as an element.
pub(crate) fn counterpart<'a>(keys: &[String], old: &'a [Value], element: &Value) -> Option<&'a Value> {
    let same = |other: &&Value| keys.iter().all(|key| other.get(key) == element.get(key));
    element.is_object().then(|| old.iter().find(same))?
}
