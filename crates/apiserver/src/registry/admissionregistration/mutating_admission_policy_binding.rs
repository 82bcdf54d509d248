//! `MutatingAdmissionPolicyBindings`.

use crate::registry::Strategy;

/// The strategy of `MutatingAdmissionPolicyBindings`.
#[derive(Debug)]
pub(in crate::registry) struct MutatingAdmissionPolicyBindingStrategy;

impl Strategy for MutatingAdmissionPolicyBindingStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
