//! Print columns of Scales.

use serde_json::json;

use crate::table::PrintColumns;
use crate::table::column::{AGE, Column};

/// The print columns of a Scale, which exists only as a subresource of other kinds.
pub(super) static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        Column::text("Name", "what the object is called"),
        Column::integer("Desired", "how many there are to be"),
        Column::integer("Available", "how many there are"),
        AGE,
    ],
    |scale| {
        let (desired, available) = (scale.number("/spec/replicas"), scale.number("/status/replicas"));
        json!([scale.name(), desired, available, scale.age()])
    },
);
