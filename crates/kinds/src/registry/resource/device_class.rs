//! `DeviceClasses`.

use crate::registry::Strategy;

/// The strategy of `DeviceClasses`.
#[derive(Debug)]
pub(in crate::registry) struct DeviceClassStrategy;

impl Strategy for DeviceClassStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}
