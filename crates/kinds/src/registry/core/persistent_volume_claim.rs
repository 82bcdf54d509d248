//! `PersistentVolumeClaims`.

mod data_source;
pub(in crate::registry) mod validation;
pub(in crate::registry) mod warnings;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::persistent_volume::{attributes_class, class, modes, phase};
use crate::registry::{Context, MetadataChecks, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::Errors;

/// The strategy of `PersistentVolumeClaims`.
#[derive(Debug)]
pub(in crate::registry) struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        data_source::prepare(None, &mut new["spec"]);
        new["status"] = json!({ "phase": "Pending" });
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        data_source::prepare(Some(&old["spec"]), &mut new["spec"]);
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        warnings::of(new)
    }

    fn warnings_on_update(&self, _old: &Value, new: &Value) -> Vec<String> {
        warnings::of(new)
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Status", "whether the claim is bound"),
        Column::text("Volume", "the volume that it is bound to"),
        Column::text("Capacity", "how much that volume holds"),
        Column::text("Access Modes", "in which ways that volume can be mounted"),
        Column::text("StorageClass", "the class that is asked for"),
        Column::text("VolumeAttributesClass", "the class of changeable attributes that is asked for"),
        AGE,
        Column::text("VolumeMode", "whether a file system or a block device is asked for").wide(),
    ],
    claim,
);

fn claim(claim: View<'_>) -> Value {
    let volume = claim.text("/spec/volumeName");
    let (capacity, modes) = match volume {
        "" => ("", String::new()),
        _ => (claim.text_or("/status/capacity/storage", "0"), modes(&claim.texts("/status/accessModes"))),
    };
    json!([
        claim.name(),
        phase(claim),
        volume,
        capacity,
        modes,
        class(claim),
        attributes_class(claim),
        claim.age(),
        claim.text_or("/spec/volumeMode", "Filesystem"),
    ])
}
