//! `MutatingWebhookConfigurations`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::{print, webhook};
use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;

/// The strategy of `MutatingWebhookConfigurations`.
#[derive(Debug)]
pub(in crate::registry) struct MutatingWebhookConfigurationStrategy;

impl Strategy for MutatingWebhookConfigurationStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &print::WEBHOOK_CONFIGURATION
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        webhook::validate_webhook_configuration(new, errors);
    }
}
