//! `ValidatingAdmissionPolicies`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::{policy, print};
use crate::registry::{FieldPaths, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;

/// The strategy of `ValidatingAdmissionPolicies`.
#[derive(Debug)]
pub(in crate::registry) struct ValidatingAdmissionPolicyStrategy;

impl Strategy for ValidatingAdmissionPolicyStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &print::VALIDATING_POLICY
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validate_validating_admission_policy(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validate_validating_admission_policy_update(old, new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validate_validating_admission_policy_status(new, errors);
    }
}
