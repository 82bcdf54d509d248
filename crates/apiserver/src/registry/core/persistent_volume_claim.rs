//! `PersistentVolumeClaims`.

mod data_source;
pub(in crate::registry) mod validation;
pub(in crate::registry) mod warnings;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::registry::{Context, MetadataChecks, Strategy};
use crate::validation::Errors;

/// The strategy of `PersistentVolumeClaims`.
#[derive(Debug)]
pub(in crate::registry) struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
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
}
