//! `CSIStorageCapacities`.

use crate::registry::Strategy;

/// The strategy of `CSIStorageCapacities`.
#[derive(Debug)]
pub(in crate::registry) struct CsiStorageCapacityStrategy;

impl Strategy for CsiStorageCapacityStrategy {
    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
