//! `CSIDrivers`.

use crate::registry::Strategy;

/// The strategy of `CSIDrivers`.
#[derive(Debug)]
pub(in crate::registry) struct CsiDriverStrategy;

impl Strategy for CsiDriverStrategy {
    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
