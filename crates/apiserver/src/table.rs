//! Objects as rows for people, and as metadata only.
//!
//! A kind's table is data: a `Layout` names its columns and has a function from an object to cells. A kind
//! without one shows its name and its age. Names, order, types, priorities and texts are those that
//! kube-apiserver answers with, so that `kubectl get` and `get -o wide` show what people know.
//!
//! A field that is absent is shown as what its absence means: its default if the API gives it one.

mod admissionregistration;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod column;
mod coordination;
mod core;
mod discovery;
mod duration;
mod events;
mod flowcontrol;
mod labels;
mod layout;
mod networking;
mod nodes;
mod pods;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod services;
mod storage;
mod view;
mod volumes;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Row;
use crate::target::Query;
use layout::Layout;
use view::View;

pub use duration::human_duration;

/// An object with nothing but its metadata.
pub fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

/// Objects as a `Table`. `columns` says whether the columns are described, which a watch does once.
pub(crate) fn table(
    row: &Row,
    query: &Query,
    objects: &[Value],
    revision: &str,
    now: Timestamp,
    columns: bool,
) -> Value {
    let layout = Layout::of(row.group(), row.kind());
    let rows = objects.iter().map(|object| {
        let view = View::new(object, now);
        let mut row = json!({ "cells": (layout.cells)(view), "object": included(query, object) });
        if let Some(conditions) = layout.conditions.and_then(|conditions| conditions(view)) {
            row["conditions"] = conditions;
        }
        row
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": revision },
        "columnDefinitions": columns.then_some(layout.columns), "rows": rows.collect::<Vec<_>>(),
    })
}

/// How much of the object comes with its row.
fn included(query: &Query, object: &Value) -> Value {
    match query.get("includeObject") {
        Some("Object") => object.clone(),
        Some("None") => Value::Null,
        _ => metadata_only(object),
    }
}
