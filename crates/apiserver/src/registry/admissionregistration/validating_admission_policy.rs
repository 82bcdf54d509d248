//! `ValidatingAdmissionPolicies`.

use crate::registry::Strategy;

/// The strategy of `ValidatingAdmissionPolicies`.
#[derive(Debug)]
pub(in crate::registry) struct ValidatingAdmissionPolicyStrategy;

impl Strategy for ValidatingAdmissionPolicyStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }
}
