//! `ReplicaSets`.

use crate::registry::Strategy;

/// The strategy of `ReplicaSets`.
#[derive(Debug)]
pub(in crate::registry) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some("/spec/template")
    }
}
