//! `CertificateSigningRequests`: the server records who requests, the spec never changes, and to approve and to sign are
//! two permissions.

mod validation;

use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::Value;

use crate::certificates;
use crate::error::ApiError;
use crate::registry::validate::Validation;
use crate::registry::{Context, Strategy};
use crate::validation::{Errors, NameFormat};

/// The strategy of `CertificateSigningRequests`.
#[derive(Debug)]
pub(in crate::registry) struct CertificateSigningRequestStrategy;

impl Strategy for CertificateSigningRequestStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    /// The spec never changes, and the status has subresources of its own.
    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        new["spec"] = old["spec"].clone();
        Ok(())
    }

    fn prepare_for_status_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        certificates::prepare_conditions(old, new, false, cx.server.now());
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(old, new, errors);
    }
}

/// Checks an update through `/approval`. All other fields are the stored ones.
pub(crate) fn validate_approval(old: &Value, new: &Value) -> Vec<FieldError> {
    let checks = Validation::new(&CertificateSigningRequestStrategy, false);
    let mut errors = checks.common_update(old, new);
    checks.metadata_update(old, new, &mut errors);
    validation::approval(old, new, &mut errors);
    errors
}
