//! `ResourceClaims`.

use crate::registry::Strategy;

/// The strategy of `ResourceClaims`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceClaimStrategy;

impl Strategy for ResourceClaimStrategy {
    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }
}
