//! `PersistentVolumeClaims`.

mod data_source;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::registry::{Context, Strategy};

/// The strategy of `PersistentVolumeClaims`.
#[derive(Debug)]
pub(in crate::registry) struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        data_source::prepare(None, &mut new["spec"]);
        new["status"] = json!({ "phase": "Pending" });
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        data_source::prepare(Some(&old["spec"]), &mut new["spec"]);
        Ok(())
    }
}
