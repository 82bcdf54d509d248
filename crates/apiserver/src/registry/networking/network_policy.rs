//! `NetworkPolicies`.

use crate::registry::Strategy;

/// The strategy of `NetworkPolicies`.
#[derive(Debug)]
pub(in crate::registry) struct NetworkPolicyStrategy;

impl Strategy for NetworkPolicyStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
