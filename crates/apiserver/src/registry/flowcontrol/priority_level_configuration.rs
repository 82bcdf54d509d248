//! `PriorityLevelConfigurations`.

use crate::registry::Strategy;

/// The strategy of `PriorityLevelConfigurations`.
#[derive(Debug)]
pub(in crate::registry) struct PriorityLevelConfigurationStrategy;

impl Strategy for PriorityLevelConfigurationStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
