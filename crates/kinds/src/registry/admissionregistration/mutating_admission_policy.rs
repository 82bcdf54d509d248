//! `MutatingAdmissionPolicies`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::{policy, print};
use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;

/// The strategy of `MutatingAdmissionPolicies`.
#[derive(Debug)]
pub(in crate::registry) struct MutatingAdmissionPolicyStrategy;

impl Strategy for MutatingAdmissionPolicyStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &print::MUTATING_POLICY
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validate_mutating_admission_policy(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        policy::validate_mutating_admission_policy_update(old, new, errors);
    }
}
