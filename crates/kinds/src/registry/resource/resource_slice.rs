//! `ResourceSlices`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::kinds::{FieldLabelError, Row};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};

/// The strategy of `ResourceSlices`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceSliceStrategy;

impl Strategy for ResourceSliceStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["spec.nodeName", "spec.driver"])
    }

    fn unsupported_field_label(&self, row: &Row, label: &str) -> FieldLabelError {
        FieldLabelError::NotSupportedFor {
            api_version: row.api_version(),
            kind: row.kind().to_owned(),
            label: label.to_owned(),
        }
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Node", "the node that has the devices"),
        Column::text("Driver", "the driver that knows them"),
        Column::text("Pool", "the pool that they are part of"),
        AGE,
    ],
    |object| {
        json!([
            object.name(),
            object.text("/spec/nodeName"),
            object.text("/spec/driver"),
            object.text("/spec/pool/name"),
            object.age(),
        ])
    },
);
