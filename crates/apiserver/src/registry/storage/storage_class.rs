//! `StorageClasses`.

use crate::registry::{MetadataChecks, Strategy};

/// The strategy of `StorageClasses`.
#[derive(Debug)]
pub(in crate::registry) struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }
}
