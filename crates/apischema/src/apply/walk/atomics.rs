//! Atomic lists and maps.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Identity, Type};
use crate::json::MAX_DEPTH;

/// The paths of all atomic lists and maps in a value.
pub(in crate::apply) fn atomics(ty: Type<'_>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit(ty, value, &mut String::new(), 0, &mut found);
    found
}

fn visit(ty: Type<'_>, value: &Value, path: &mut String, depth: usize, found: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    let node = ty.node();
    let length = path.len();
    match value {
        Value::Object(map) => {
            let Some(object) = &node.object else { return };
            if object.atomic {
                found.push(path.clone());
            }
            for (name, inner) in map {
                // Like upstream, values of undeclared map entries are skipped.
                let Some(field) = object.field(name) else { continue };
                path.push('.');
                path.push_str(name);
                visit(ty.at(field.node), inner, path, depth + 1, found);
                path.truncate(length);
            }
        }
        Value::Array(elements) => {
            let Some(list) = &node.list else { return };
            if list.identity == Identity::Atomic {
                found.push(path.clone());
            }
            for (index, inner) in elements.iter().enumerate() {
                // Writing to a string cannot fail.
                let _ = write!(path, "[{index}]");
                visit(ty.at(list.element), inner, path, depth + 1, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
