//! `ResourceClaims`.

use serde_json::json;

use crate::registry::{FieldPaths, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `ResourceClaims`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceClaimStrategy;

impl Strategy for ResourceClaimStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("State", "whether the claim is met, and whether it is in use"), AGE],
    |object| json!([object.name(), state(object), object.age()]),
);

fn state(claim: View<'_>) -> &'static str {
    let reserved = claim.count("/status/reservedFor") > 0;
    match (claim.is_deleting(), claim.has("/status/allocation")) {
        (false, false) => "pending",
        (true, false) => "deleted",
        (false, true) if reserved => "allocated,reserved",
        (false, true) => "allocated",
        (true, true) if reserved => "deleted,allocated,reserved",
        (true, true) => "deleted,allocated",
    }
}
