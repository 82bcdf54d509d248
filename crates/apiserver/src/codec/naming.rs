//! The kind and version in the body of an object. A custom resource must have both.

use plumb_validation::field::FieldError;
use serde_json::Value;
use std::fmt;

use crate::error::{ApiError, Cause};
use crate::kinds::Readable;
use crate::object::meta;

/// Why the kind of an object is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// Its kind is missing, or its kind or version is malformed.
    Unrecognized(String),
    /// Its version is null.
    Unreadable(String),
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unrecognized(why) | Self::Unreadable(why)) = self;
        f.write_str(why)
    }
}

/// Checks that kind and version of an object, if it has them, can be decoded.
pub(crate) fn is_legible(object: &Value) -> Result<(), Unnamed> {
    for field in ["apiVersion", "kind"] {
        let sort = match &object[field] {
            Value::Null | Value::String(_) => continue,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        return Err(Unnamed::Unrecognized(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {sort} into Go struct field \
             .{field} of type string"
        )));
    }
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Err(Unnamed::Unrecognized(format!("unexpected GroupVersion string: {version}")));
    }
    Ok(())
}

/// Checks that a custom resource has a kind and a version. `text` is its body.
pub(crate) fn is_named(object: &Value, text: &dyn fmt::Display) -> Result<(), Unnamed> {
    is_legible(object)?;
    if object["kind"].as_str().unwrap_or_default().is_empty() {
        return Err(Unnamed::Unrecognized(format!("Object 'Kind' is missing in '{text}'")));
    }
    if object.get("apiVersion").is_some_and(Value::is_null) {
        let why = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
        return Err(Unnamed::Unreadable(why.to_owned()));
    }
    Ok(())
}

/// The error of a patch that changes the version of an object.
pub(crate) fn patched_to_another(kind: &impl Readable, object: &Value) -> Option<ApiError> {
    let said = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, expected) = (said("apiVersion"), kind.api_version());
    if version.is_empty() {
        // SPEC: upstream reports an internal error here.
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        let cause = Cause { message: why.to_owned(), ..Cause::default() };
        return Some(ApiError::internal(why).because(cause));
    }
    if version == expected {
        return None;
    }
    let (field, expected) = match said("kind") {
        other if other != kind.name() => ("kind", kind.name()),
        _ => ("apiVersion", expected.as_str()),
    };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let wrong = FieldError::invalid(field, said(field), format!("must be {expected}"));
    Some(ApiError::invalid(group, said("kind"), meta(object, "name"), &[wrong]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_error_of_an_object_without_kind_or_version_names_the_missing_field() {
        let parsed = |sort: &str, field: &str| {
            format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {sort} into Go struct field \
                 .{field} of type string"
            )
        };
        for (object, expected) in [
            (json!({"apiVersion": "a/v1", "kind": "A"}), None),
            (json!({"kind": "A"}), None),
            (json!({"apiVersion": 5, "kind": []}), Some(parsed("number", "apiVersion"))),
            (json!({"apiVersion": "a/v1", "kind": []}), Some(parsed("array", "kind"))),
            (json!({"apiVersion": "a/b/c"}), Some("unexpected GroupVersion string: a/b/c".to_owned())),
            (
                json!({"apiVersion": "a/v1", "kind": null}),
                Some("Object 'Kind' is missing in 'it'".to_owned()),
            ),
            (
                json!({"apiVersion": null, "kind": "A"}),
                Some(".apiVersion accessor error: <nil> is of the type <nil>, expected string".to_owned()),
            ),
        ] {
            let message = is_named(&object, &"it").err().map(|error| error.to_string());
            assert_eq!(message, expected, "{object}");
        }
    }
}
