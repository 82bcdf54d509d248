//! The subresource `/ephemeralcontainers`.

use serde_json::Value;

use super::validation;
use crate::registry::{Context, SubresourceStrategy, reset};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::invalid;

/// The strategy of `/ephemeralcontainers`: only the ephemeral containers change.
#[derive(Debug)]
pub(super) struct EphemeralContainersStrategy;

impl SubresourceStrategy for EphemeralContainersStrategy {
    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        let given = new.pointer("/spec/ephemeralContainers").cloned();
        reset::all_but(old, new, &["kind", "apiVersion", "metadata"]);
        for field in ["ownerReferences", "finalizers", "managedFields", "annotations", "labels"] {
            reset::metadata_field(old, new, field);
        }
        match given {
            Some(given) => new["spec"]["ephemeralContainers"] = given,
            None => {
                new["spec"].as_object_mut().map(|spec| spec.remove("ephemeralContainers"));
            }
        }
        Ok(())
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn validate_update(&self, cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
        invalid(cx.row, new, &validation::ephemeral_containers(old, new))
    }
}
