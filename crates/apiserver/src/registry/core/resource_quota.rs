//! `ResourceQuotas`.

mod validation;

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::registry::Strategy;
use crate::validation::Errors;

/// The strategy of `ResourceQuotas`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceQuotaStrategy;

impl Strategy for ResourceQuotaStrategy {
    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(new, errors);
    }
}
