//! `MutatingWebhookConfigurations`.

use crate::registry::Strategy;

/// The strategy of `MutatingWebhookConfigurations`.
#[derive(Debug)]
pub(in crate::registry) struct MutatingWebhookConfigurationStrategy;

impl Strategy for MutatingWebhookConfigurationStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
