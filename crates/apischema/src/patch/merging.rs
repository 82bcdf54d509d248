use serde_json::{Map, Value};

/// Applies a JSON merge patch (RFC 7386).
///
/// Like upstream, and unlike the RFC, nulls are also removed from objects inside new lists.
///
/// ```
/// use plumb_apischema::patch::merge;
/// use serde_json::json;
///
/// let patched = merge(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null, "d": 3}}));
/// assert_eq!(patched, json!({"a": {"c": 2, "d": 3}}));
/// ```
pub fn merge(target: Value, patch: Value) -> Value {
    match (target, patch) {
        (Value::Object(mut target), Value::Object(patch)) => {
            merge_into(&mut target, patch);
            Value::Object(target)
        }
        (Value::Object(_), patch) => patch,
        (_, mut patch) => {
            without_nulls(&mut patch);
            patch
        }
    }
}

fn merge_into(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            let before = target.remove(&key).unwrap_or(Value::Null);
            target.insert(key, merge(before, value));
        }
    }
}

/// Removes fields that are null from a value, recursively. A null that is an element of a list stays.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, inner| !inner.is_null());
            object.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
