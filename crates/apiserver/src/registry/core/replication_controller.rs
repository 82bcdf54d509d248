//! `ReplicationControllers`.

use crate::registry::Strategy;

/// The strategy of `ReplicationControllers`.
#[derive(Debug)]
pub(in crate::registry) struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some("/spec/template")
    }
}
