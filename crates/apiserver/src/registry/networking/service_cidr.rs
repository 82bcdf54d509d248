//! `ServiceCIDRs`.

use crate::registry::Strategy;

/// The strategy of `ServiceCIDRs`.
#[derive(Debug)]
pub(in crate::registry) struct ServiceCidrStrategy;

impl Strategy for ServiceCidrStrategy {
    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }
}
