//! `CSINodes`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};

/// The strategy of `CSINodes`.
#[derive(Debug)]
pub(in crate::registry) struct CsiNodeStrategy;

impl Strategy for CsiNodeStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns =
    PrintColumns::new(&[NAME, Column::integer("Drivers", "how many drivers the node has"), AGE], |object| {
        json!([object.name(), object.count("/spec/drivers"), object.age()])
    });
