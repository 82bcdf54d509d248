//! Ingresses.

use crate::registry::{MetadataChecks, Strategy};

/// The strategy of Ingresses.
#[derive(Debug)]
pub(in crate::registry) struct IngressStrategy;

impl Strategy for IngressStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn counts_generation(&self) -> bool {
        true
    }
}
