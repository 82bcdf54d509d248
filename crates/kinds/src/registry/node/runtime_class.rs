//! `RuntimeClasses`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};

/// The strategy of `RuntimeClasses`.
#[derive(Debug)]
pub(in crate::registry) struct RuntimeClassStrategy;

impl Strategy for RuntimeClassStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("Handler", "the runtime configuration that runs the class's pods"), AGE],
    |object| json!([object.name(), object.text("/handler"), object.age()]),
);
