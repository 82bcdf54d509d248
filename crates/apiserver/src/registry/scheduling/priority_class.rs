//! `PriorityClasses`.

use crate::registry::Strategy;

/// The strategy of `PriorityClasses`.
#[derive(Debug)]
pub(in crate::registry) struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
