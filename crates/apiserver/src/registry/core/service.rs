//! Services.

mod allocation;
mod validation;
mod warnings;

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::allocation::Reservation;
use crate::error::ApiError;
use crate::registry::{Context, Strategy};
use crate::validation::{Errors, NameFormat};
use crate::warnings::addresses;

/// The strategy of Services.
#[derive(Debug)]
pub(in crate::registry) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::DnsLabel
    }

    fn allocate(
        &self,
        cx: Context<'_>,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<Reservation, ApiError> {
        allocation::allocate(cx.server, old, new)
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

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        warnings::of(new)
    }

    fn warnings_on_update(&self, _old: &Value, new: &Value) -> Vec<String> {
        warnings::of(new)
    }

    fn warnings_on_status_update(&self, new: &Value) -> Vec<String> {
        addresses::of_list(&new["status"]["loadBalancer"]["ingress"], "status.loadBalancer.ingress", "")
    }

    fn canonicalize(&self, new: &mut Value) {
        allocation::drop_unused(new);
    }
}
