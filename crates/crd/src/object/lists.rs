//! Validation of lists with the type `set` or `map`.

use std::collections::BTreeMap;

use plumb_validation::field::{FieldError, Path};
use serde_json::{Map, Value};

use super::bad_value;
use crate::schema::Schema;

/// The duplicates in lists with the type `set` or `map`.
pub(crate) fn lists(object: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(object, schema, &Path::NOWHERE, &mut errors);
    errors
}

fn visit(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                match (schema.properties.get(name), schema.additional_schema()) {
                    (Some(field_schema), _) => visit(inner, field_schema, &path.child(name), errors),
                    (None, Some(field_schema)) => visit(inner, field_schema, &path.key(name), errors),
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type.as_deref() {
                Some("set") => add_duplicates(list.iter().cloned(), path, errors),
                Some("map") => add_duplicate_keys(list, &schema.list_keys, path, errors),
                _ => {}
            }
            if let Some(items) = &schema.items {
                for (i, element) in list.iter().enumerate() {
                    visit(element, items, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

/// Adds an error for the first duplicate of each value; a value that occurs three times is reported once.
fn add_duplicates(values: impl Iterator<Item = Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (i, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path.index(i), bad_value(&value)));
        }
    }
}

fn add_duplicate_keys(list: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((i, wrong)) =
        list.iter().enumerate().find(|(_, value)| !value.is_object() && !value.is_null())
    {
        let rule = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i), bad_value(wrong), rule));
        return;
    }
    let key_of = |element: &Value| {
        let entries = keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
        Value::Object(entries.collect::<Map<String, Value>>())
    };
    add_duplicates(list.iter().map(key_of), path, errors);
}
