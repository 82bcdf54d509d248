//! Nodes.

mod validation;

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::error::ApiError;
use crate::registry::{Context, MetadataChecks, Strategy, disabled_fields};
use crate::validation::Errors;
use crate::warnings::addresses;

/// The strategy of Nodes.
#[derive(Debug)]
pub(in crate::registry) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    /// The node agent registers its node with a status.
    fn allow_status_on_create(&self) -> bool {
        true
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        let old = old.map(|old| &old["spec"]);
        if let Some(spec) = new.get_mut("spec") {
            disabled_fields::drop_unless_used(old, spec, &["configSource"]);
        }
    }

    fn prepare_for_status_update(
        &self,
        _cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        disabled_fields::drop_unless_used(Some(&old["status"]), &mut new["status"], &["config"]);
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(old, new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        warnings(&new["spec"])
    }

    fn warnings_on_update(&self, _old: &Value, new: &Value) -> Vec<String> {
        warnings(&new["spec"])
    }
}

/// Warnings about deprecated fields and ambiguous address ranges.
fn warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if spec.get("configSource").is_some_and(|source| !source.is_null()) {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if spec["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, range) in spec["podCIDRs"].as_array().into_iter().flatten().enumerate() {
        let range = range.as_str().unwrap_or_default();
        warnings.extend(addresses::range(&format!("spec.podCIDRs[{i}]"), range));
    }
    warnings
}
