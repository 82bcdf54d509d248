//! JSON patches (RFC 6902), with which webhooks respond.
//!
//! `json_patch::diff` would compare lists element by element; here a changed list is replaced as a
//! whole, so that no operation depends on the index of another element.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Adds a value, or replaces the existing one.
    Add {
        /// Where, as a JSON pointer.
        path: String,
        /// What.
        value: Value,
    },
    /// Removes a value.
    Remove {
        /// Where, as a JSON pointer.
        path: String,
    },
}

impl Operation {
    /// Adds a value.
    pub fn add(path: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self::Add { path: path.to_string(), value: value.into() }
    }

    /// Adds an annotation to existing annotations.
    pub fn add_annotation(name: &str, value: impl Into<Value>) -> Self {
        Self::add(annotation(name), value)
    }

    /// Removes an existing annotation.
    pub fn remove_annotation(name: &str) -> Self {
        Self::Remove { path: annotation(name) }
    }
}

fn annotation(name: &str) -> String {
    format!("/metadata/annotations/{}", escape(name))
}

/// Escapes a name for a JSON pointer (RFC 6901).
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The operations that make one value another. Lists are replaced as a whole.
pub fn diff(before: &Value, after: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    compare("", before, after, &mut operations);
    operations
}

fn compare(path: &str, before: &Value, after: &Value, operations: &mut Vec<Operation>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        operations.push(Operation::add(path, after.clone()));
        return;
    };
    let below = |key: &str| format!("{path}/{}", escape(key));
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        operations.push(Operation::Remove { path: below(key) });
    }
    for (key, value) in new {
        match old.get(key) {
            Some(old) => compare(&below(key), old, value, operations),
            None => operations.push(Operation::add(below(key), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_changed() {
        let before =
            json!({ "a": { "b/c": 1, "d": [1, 2], "same": {} }, "gone": true, "empty": null, "same": [1] });
        let after =
            json!({ "a": { "b/c": 2, "d": [1], "same": {}, "new": { "e": 1 } }, "empty": {}, "same": [1] });
        let expected = json!([
            { "op": "remove", "path": "/gone" },
            { "op": "add", "path": "/a/b~1c", "value": 2 },
            { "op": "add", "path": "/a/d", "value": [1] },
            { "op": "add", "path": "/a/new", "value": { "e": 1 } },
            { "op": "add", "path": "/empty", "value": {} },
        ]);
        assert_eq!(serde_json::to_value(diff(&before, &after)).ok(), Some(expected));
        assert_eq!(diff(&before, &before), []);
        assert_eq!(diff(&json!(1), &json!({})), [Operation::add("", json!({}))]);
    }
}
