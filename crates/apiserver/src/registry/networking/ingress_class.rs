//! `IngressClasses`.

use crate::registry::Strategy;

/// The strategy of `IngressClasses`.
#[derive(Debug)]
pub(in crate::registry) struct IngressClassStrategy;

impl Strategy for IngressClassStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
