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
mod metrics;
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

use layout::Layout;
use view::View;

pub use duration::human_duration;

/// Objects as a `Table`. `included` is what comes of an object beside its row; `columns` says whether the columns are
/// described, which a watch does once.
pub(crate) fn table(
    group: &str,
    kind: &str,
    objects: Vec<Value>,
    included: impl Fn(Value) -> Value,
    now: Timestamp,
    columns: bool,
) -> Value {
    let layout = Layout::of(group, kind);
    let rows = objects.into_iter().map(|object| {
        let view = View::new(&object, now);
        let (cells, conditions) =
            ((layout.cells)(view), layout.conditions.and_then(|conditions| conditions(view)));
        let mut row = json!({ "cells": cells, "object": included(object) });
        if let Some(conditions) = conditions {
            row["conditions"] = conditions;
        }
        row
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": columns.then_some(layout.columns), "rows": rows.collect::<Vec<_>>(),
    })
}
