//! `ValidatingWebhookConfigurations`.

use crate::registry::Strategy;

/// The strategy of `ValidatingWebhookConfigurations`.
#[derive(Debug)]
pub(in crate::registry) struct ValidatingWebhookConfigurationStrategy;

impl Strategy for ValidatingWebhookConfigurationStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
