//! `EndpointSlices`.

use crate::registry::Strategy;

/// The strategy of `EndpointSlices`.
#[derive(Debug)]
pub(in crate::registry) struct EndpointSliceStrategy;

impl Strategy for EndpointSliceStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
