//! `ServiceCIDRs`.

use serde_json::json;

use crate::registry::{FieldPaths, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};

/// The strategy of `ServiceCIDRs`.
#[derive(Debug)]
pub(in crate::registry) struct ServiceCidrStrategy;

impl Strategy for ServiceCidrStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("CIDRs", "the ranges that services take their addresses from"), AGE],
    |object| json!([object.name(), object.texts("/spec/cidrs").join(","), object.age()]),
);
