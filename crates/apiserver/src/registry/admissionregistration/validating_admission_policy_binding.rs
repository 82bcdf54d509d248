//! `ValidatingAdmissionPolicyBindings`.

use crate::registry::Strategy;

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
}
