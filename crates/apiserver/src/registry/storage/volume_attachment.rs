//! `VolumeAttachments`.

use crate::registry::Strategy;

/// The strategy of `VolumeAttachments`.
#[derive(Debug)]
pub(in crate::registry) struct VolumeAttachmentStrategy;

impl Strategy for VolumeAttachmentStrategy {
    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }
}
