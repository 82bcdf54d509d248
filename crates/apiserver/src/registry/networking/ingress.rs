//! Ingresses.

use crate::registry::Strategy;

/// The strategy of Ingresses.
#[derive(Debug)]
pub(in crate::registry) struct IngressStrategy;

impl Strategy for IngressStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
