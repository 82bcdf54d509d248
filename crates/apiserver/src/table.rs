//! Conversion of objects to `meta.k8s.io` Tables.
//!
//! The `PrintColumns` of a kind are its columns and a function from an object to cells; they are in the file of the
//! kind in the registry of `plumb-kinds`. A kind without them has the columns Name and Age. Names, order, types and
//! priorities are those of kube-apiserver, so that `kubectl get` and `get -o wide` show the same columns.
//!
//! A missing field is printed as its default, if it has one.

pub mod column;
mod duration;
pub mod labels;
mod print_columns;
pub mod view;

use jiff::Timestamp;
use serde_json::{Value, json};

use view::View;

pub use duration::human_duration;
pub use print_columns::{NAME_AND_AGE, NAME_AND_CREATED_AT, PrintColumns};

/// Objects as a `Table`. `included` makes the object of a row; `columns` says whether the table has column definitions,
/// which a watch sends once.
pub(crate) fn table(
    print: &PrintColumns,
    objects: Vec<Value>,
    included: impl Fn(Value) -> Value,
    now: Timestamp,
    columns: bool,
) -> Value {
    let rows = objects.into_iter().map(|object| {
        let view = View::new(&object, now);
        let (cells, conditions) =
            ((print.cells)(view), print.conditions.and_then(|conditions| conditions(view)));
        let mut row = json!({ "cells": cells, "object": included(object) });
        if let Some(conditions) = conditions {
            row["conditions"] = conditions;
        }
        row
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": columns.then_some(print.columns), "rows": rows.collect::<Vec<_>>(),
    })
}
