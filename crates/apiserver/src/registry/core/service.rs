//! Services.

mod allocation;
mod validation;

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::allocation::Reservation;
use crate::error::ApiError;
use crate::registry::{Context, Strategy};
use crate::validation::{Errors, NameFormat};

/// The strategy of Services.
#[derive(Debug)]
pub(in crate::registry) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn allocate(
        &self,
        cx: Context<'_>,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<Reservation, ApiError> {
        allocation::allocate(cx.server, old, new)
    }

    fn canonicalize(&self, new: &mut Value) {
        allocation::drop_unused(new);
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::DnsLabel
    }

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
