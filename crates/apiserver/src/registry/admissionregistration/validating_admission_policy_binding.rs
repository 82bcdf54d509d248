//! `ValidatingAdmissionPolicyBindings`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::policy;
use crate::registry::Strategy;
use crate::validation::Errors;

/// The strategy of `ValidatingAdmissionPolicyBindings`.
#[derive(Debug)]
pub(in crate::registry) struct ValidatingAdmissionPolicyBindingStrategy;

impl Strategy for ValidatingAdmissionPolicyBindingStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validating_binding(new, errors);
    }

    fn validate_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validating_binding(new, errors);
    }
}
