//! `VolumeAttributesClasses`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};

/// The strategy of `VolumeAttributesClasses`.
#[derive(Debug)]
pub(in crate::registry) struct VolumeAttributesClassStrategy;

impl Strategy for VolumeAttributesClassStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("DriverName", "the driver that knows the attributes"), AGE],
    |object| json!([object.name(), object.text("/driverName"), object.age()]),
);
