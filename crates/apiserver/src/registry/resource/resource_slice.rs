//! `ResourceSlices`.

use crate::registry::Strategy;

/// The strategy of `ResourceSlices`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceSliceStrategy;

impl Strategy for ResourceSliceStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
