//! Custom resources as rows of a `Table`.

use jiff::Timestamp;
use plumb_crd::{Column, Version};
use serde_json::{Value, json};

use crate::table::human_duration;

/// Objects as a `Table` with the `additionalPrinterColumns` of the definition.
pub(crate) fn table(
    version: &Version,
    objects: Vec<Value>,
    included: impl Fn(Value) -> Value,
    now: Timestamp,
    columns: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| {
            let mut cells = vec![object["metadata"]["name"].clone()];
            cells.extend(version.columns.iter().map(|column| cell(column, &object, now)));
            json!({ "cells": cells, "object": included(object) })
        })
        .collect();
    let described = columns.then(|| {
        let mut all = vec![json!({
            "name": "Name", "type": "string", "format": "name", "description": "what the object is called",
            "priority": 0,
        })];
        all.extend(version.columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.ty, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        }));
        all
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": described, "rows": rows,
    })
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let Some(value) = column.path.first(object) else { return Value::Null };
    match (column.ty.as_str(), value) {
        ("string", Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            #[expect(clippy::cast_possible_truncation, reason = "the whole part is what the column shows")]
            (None, Some(double)) => json!(double as i64),
            _ => Value::Null,
        },
        ("string", Value::String(_)) | ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => {
            value.clone()
        }
        ("string", other) => json!(other.to_string()),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => json!(human_duration(now.duration_since(time).as_secs())),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}
