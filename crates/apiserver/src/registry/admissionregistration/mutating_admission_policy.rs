//! `MutatingAdmissionPolicies`.

use crate::registry::Strategy;

/// The strategy of `MutatingAdmissionPolicies`.
#[derive(Debug)]
pub(in crate::registry) struct MutatingAdmissionPolicyStrategy;

impl Strategy for MutatingAdmissionPolicyStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
