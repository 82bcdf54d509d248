//! Pruning of unknown fields.

use serde_json::Value;

use crate::schema::{Additional, Schema};

/// The fields that every object has, which its schema does not prune.
const OBJECT_META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes an object by its schema. Returns the sorted paths of the dropped fields.
pub(crate) fn prune_root(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Vec::new();
    if schema.keeps_unknown() {
        prune_preserving(object, schema, true, &mut String::new(), &mut dropped);
    } else {
        visit(object, Some(schema), true, &mut String::new(), &mut dropped);
    }
    dropped.sort();
    dropped
}

/// Prunes a part of an object by its schema.
pub(crate) fn prune(value: &mut Value, schema: &Schema) {
    visit(value, Some(schema), schema.embedded, &mut String::new(), &mut Vec::new());
}

fn visit(
    value: &mut Value,
    schema: Option<&Schema>,
    root: bool,
    path: &mut String,
    dropped: &mut Vec<String>,
) {
    if let Some(schema) = schema.filter(|schema| schema.keeps_unknown()) {
        return prune_preserving(value, schema, root, path, dropped);
    }
    match value {
        Value::Object(map) => map.retain(|name, inner| {
            if root && OBJECT_META.contains(&name.as_str()) {
                return true;
            }
            let before = path.len();
            let (known, inner_schema) = match schema {
                None => (false, None),
                Some(schema) => match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => (true, Some(property)),
                    (None, Some(Additional::Schema(other))) => (true, Some(&**other)),
                    (None, Some(Additional::Allowed(_))) => (true, None),
                    (None, None) => (false, None),
                },
            };
            push_field(path, name);
            if known {
                visit(inner, inner_schema, inner_schema.is_some_and(|schema| schema.embedded), path, dropped);
            } else {
                dropped.push(path.clone());
            }
            path.truncate(before);
            known
        }),
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            for (i, element) in list.iter_mut().enumerate() {
                let before = path.len();
                push_index(path, i);
                visit(element, items, items.is_some_and(|schema| schema.embedded), path, dropped);
                path.truncate(before);
            }
        }
        _ => {}
    }
}

/// Prunes the children of a value that preserves unknown fields: only fields with a schema are pruned further.
fn prune_preserving(
    value: &mut Value,
    schema: &Schema,
    root: bool,
    path: &mut String,
    dropped: &mut Vec<String>,
) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map.iter_mut() {
                if root && OBJECT_META.contains(&name.as_str()) {
                    continue;
                }
                let Some(inner_schema) = schema.field(name) else { continue };
                let before = path.len();
                push_field(path, name);
                visit(inner, Some(inner_schema), inner_schema.embedded, path, dropped);
                path.truncate(before);
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for (i, element) in list.iter_mut().enumerate() {
                let before = path.len();
                push_index(path, i);
                prune_preserving(element, items, items.embedded, path, dropped);
                path.truncate(before);
            }
        }
        _ => {}
    }
}

fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn push_index(path: &mut String, index: usize) {
    path.push('[');
    path.push_str(&index.to_string());
    path.push(']');
}
