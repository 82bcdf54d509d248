//! `ValidatingAdmissionPolicyBindings`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::{policy, print};
use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;

/// The strategy of `ValidatingAdmissionPolicyBindings`.
#[derive(Debug)]
pub(in crate::registry) struct ValidatingAdmissionPolicyBindingStrategy;

impl Strategy for ValidatingAdmissionPolicyBindingStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &print::POLICY_BINDING
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validate_validating_admission_policy_binding(new, errors);
    }
}
