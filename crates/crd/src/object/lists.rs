//! Validation of lists with the type `set` or `map`.

use std::collections::BTreeMap;

use plumb_validation::field::{FieldError, Path};
use serde_json::{Map, Value};

use super::shown;
use crate::schema::Schema;

/// The duplicates in lists with the type `set` or `map`.
pub fn lists(object: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(object, schema, &Path::NOWHERE, &mut errors);
    errors
}

fn visit(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                match (schema.properties.get(name), schema.additional_schema()) {
                    (Some(below), _) => visit(inner, below, &path.child(name), errors),
                    (None, Some(below)) => visit(inner, below, &path.key(name), errors),
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type.as_deref() {
                Some("set") => repeated(list.iter().cloned(), path, errors),
                Some("map") => keyed(list, &schema.list_keys, path, errors),
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

/// Adds an error for the first duplicate of each value.
fn repeated(values: impl Iterator<Item = Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (i, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path.index(i), shown(&value)));
        }
    }
}

fn keyed(list: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((i, wrong)) =
        list.iter().enumerate().find(|(_, value)| !value.is_object() && !value.is_null())
    {
        let rule = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i), shown(wrong), rule));
        return;
    }
    let key_of = |element: &Value| {
        let own = keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
        Value::Object(own.collect::<Map<String, Value>>())
    };
    repeated(list.iter().map(key_of), path, errors);
}
