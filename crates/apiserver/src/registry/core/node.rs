//! Nodes.

mod validation;

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::error::ApiError;
use crate::registry::{Context, MetadataChecks, Strategy, disabled_fields};
use crate::validation::Errors;

/// The strategy of Nodes.
#[derive(Debug)]
pub(in crate::registry) struct NodeStrategy;

impl Strategy for NodeStrategy {
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

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
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
}
