//! `CSINodes`.

use crate::registry::Strategy;

/// The strategy of `CSINodes`.
#[derive(Debug)]
pub(in crate::registry) struct CsiNodeStrategy;

impl Strategy for CsiNodeStrategy {
    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
