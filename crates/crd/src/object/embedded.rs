//! Embedded resources (`x-kubernetes-embedded-resource`).

use plumb_validation::field::{FieldError, Path};
use plumb_validation::names::dns_1035_label;
use serde_json::{Map, Value};

use super::bad_value;
use crate::schema::Schema;

/// Validates the kinds and API versions of embedded resources. Their metadata is already decoded.
pub(crate) fn embedded(object: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(object, schema, &Path::NOWHERE, &mut errors);
    errors
}

/// The error of an object that cannot be decoded: the kind or API version of an embedded resource is not a string.
pub(crate) fn decode_error(object: &Value, schema: &Schema) -> Option<FieldError> {
    embedded(object, schema).into_iter().find(|error| error.detail == NOT_A_STRING)
}

const NOT_A_STRING: &str = "must be a string";

fn visit(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                check_type_meta(value, path, errors);
            }
            for (name, inner) in map {
                match (schema.properties.get(name), schema.additional_schema()) {
                    (Some(field_schema), _) => visit(inner, field_schema, &path.child(name), errors),
                    (None, Some(field_schema)) => visit(inner, field_schema, &path.key(name), errors),
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            for (i, element) in list.iter().enumerate() {
                if let Some(items) = &schema.items {
                    visit(element, items, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

/// Visits the embedded resources of an object with their paths, until the visitor fails.
pub(crate) fn for_each_embedded<E>(
    value: &mut Value,
    schema: &Schema,
    path: &Path<'_>,
    visitor: &mut impl FnMut(&mut Map<String, Value>, &Path<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                visitor(map, path)?;
            }
            for (name, inner) in map {
                match (schema.properties.get(name), schema.additional_schema()) {
                    (Some(field_schema), _) => {
                        for_each_embedded(inner, field_schema, &path.child(name), visitor)?;
                    }
                    (None, Some(field_schema)) => {
                        for_each_embedded(inner, field_schema, &path.key(name), visitor)?;
                    }
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return Ok(()) };
            for (i, element) in list.iter_mut().enumerate() {
                for_each_embedded(element, items, &path.index(i), visitor)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_type_meta(object: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["apiVersion", "kind"] {
        let path = path.child(field);
        match object.get(field) {
            None => errors.push(FieldError::required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
            Some(Value::String(text)) if field == "apiVersion" && text.matches('/').count() > 1 => {
                let rule = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(path, text, rule));
            }
            Some(Value::String(text)) if field == "kind" => {
                let wrong = dns_1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let rule =
                        format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                    errors.push(FieldError::invalid(path, text, rule));
                }
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(path, bad_value(other), NOT_A_STRING)),
        }
    }
}
