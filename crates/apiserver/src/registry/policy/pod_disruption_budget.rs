//! `PodDisruptionBudgets`.

use crate::registry::Strategy;

/// The strategy of `PodDisruptionBudgets`.
#[derive(Debug)]
pub(in crate::registry) struct PodDisruptionBudgetStrategy;

impl Strategy for PodDisruptionBudgetStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
