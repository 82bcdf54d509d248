//! Pruning of unknown fields.

use serde_json::Value;

use crate::schema::{Additional, Schema};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes an object by its schema. Returns the sorted paths of the dropped fields.
pub fn prune_root(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Vec::new();
    if schema.keeps_unknown() {
        inside(object, schema, true, &mut String::new(), &mut dropped);
    } else {
        visit(object, Some(schema), true, &mut String::new(), &mut dropped);
    }
    dropped.sort();
    dropped
}

/// Prunes a part of an object by its schema.
pub fn prune(value: &mut Value, schema: &Schema) {
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
        return inside(value, schema, root, path, dropped);
    }
    match value {
        Value::Object(map) => map.retain(|name, inner| {
            if root && META.contains(&name.as_str()) {
                return true;
            }
            let before = path.len();
            let (known, below) = match schema {
                None => (false, None),
                Some(schema) => match (schema.properties.get(name), &schema.additional) {
                    (Some(own), _) => (true, Some(own)),
                    (None, Some(Additional::Schema(other))) => (true, Some(&**other)),
                    (None, Some(Additional::Allowed(_))) => (true, None),
                    (None, None) => (false, None),
                },
            };
            push(path, name);
            if known {
                visit(inner, below, below.is_some_and(|schema| schema.embedded), path, dropped);
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
                step_into(path, i);
                visit(element, items, items.is_some_and(|schema| schema.embedded), path, dropped);
                path.truncate(before);
            }
        }
        _ => {}
    }
}

/// Prunes below a schema that preserves unknown fields: only the specified fields are pruned further.
fn inside(value: &mut Value, schema: &Schema, root: bool, path: &mut String, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map.iter_mut() {
                if root && META.contains(&name.as_str()) {
                    continue;
                }
                let Some(below) = schema.field(name) else { continue };
                let before = path.len();
                push(path, name);
                visit(inner, Some(below), below.embedded, path, dropped);
                path.truncate(before);
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for (i, element) in list.iter_mut().enumerate() {
                let before = path.len();
                step_into(path, i);
                inside(element, items, items.embedded, path, dropped);
                path.truncate(before);
            }
        }
        _ => {}
    }
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn step_into(path: &mut String, index: usize) {
    path.push('[');
    path.push_str(&index.to_string());
    path.push(']');
}
