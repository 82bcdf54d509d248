//! Deployments.

use serde_json::Value;

use crate::kinds::Row;
use crate::registry::{Strategy, generation};

/// The strategy of Deployments.
#[derive(Debug)]
pub(in crate::registry) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    /// The annotations of a Deployment are copied to its replica sets, so they are part of what is desired.
    fn is_new_generation(&self, row: &Row, old: &Value, new: &Value) -> bool {
        let annotations = |object: &Value| object["metadata"].get("annotations").cloned();
        annotations(old) != annotations(new) || generation::is_spec_changed(row, old, new)
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some("/spec/template")
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "managedFields"]
    }
}
