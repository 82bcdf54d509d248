//! `NetworkPolicies`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::labels::selector;

/// The strategy of `NetworkPolicies`.
#[derive(Debug)]
pub(in crate::registry) struct NetworkPolicyStrategy;

impl Strategy for NetworkPolicyStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("Pod-Selector", "the labels of the pods it is about"), AGE],
    |object| json!([object.name(), selector(object, "/spec/podSelector"), object.age()]),
);
