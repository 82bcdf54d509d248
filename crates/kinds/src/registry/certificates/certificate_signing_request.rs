//! `CertificateSigningRequests`: the server records the requesting user, the spec is immutable, and approval and
//! signing are separate permissions.

pub(crate) mod request;
mod validation;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::{Context, FieldPaths, Strategy, SubresourceStrategy, reset};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::{Row, Validation, invalid};
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::table::{PrintColumns, human_duration};
use plumb_apiserver::validation::{Errors, NameFormat};

/// The strategy of `CertificateSigningRequests`.
#[derive(Debug)]
pub(in crate::registry) struct CertificateSigningRequestStrategy;

impl Strategy for CertificateSigningRequestStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["spec.signerName"])
    }

    fn reset_fields(&self, _row: &Row) -> FieldPaths {
        &[&["spec"], &["status"]]
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["status", "conditions"]]
    }

    fn subresource(&self, name: &str) -> Option<&'static dyn SubresourceStrategy> {
        (name == "approval").then_some(&ApprovalStrategy)
    }

    fn prepare_for_create(&self, cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        if let Some(user) = cx.user() {
            request::set_requester(new, user, cx.remote_address());
        }
        Ok(Vec::new())
    }

    /// The spec is immutable, and only the subresources `/status` and `/approval` change the status.
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
        request::prepare_conditions(old, new, false, cx.now());
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

/// The strategy of `/approval`: only the conditions of the status change.
#[derive(Debug)]
struct ApprovalStrategy;

impl SubresourceStrategy for ApprovalStrategy {
    fn reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["status", "certificate"]]
    }

    fn prepare_for_update(&self, cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        request::prepare_conditions(old, new, true, cx.now());
        let given = new.pointer("/status/conditions").cloned();
        reset::field(old, new, "spec");
        reset::field(old, new, "status");
        match given {
            Some(given) => new["status"]["conditions"] = given,
            None => {
                new["status"].as_object_mut().map(|status| status.remove("conditions"));
            }
        }
        Ok(())
    }

    fn validate_update(&self, cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
        let checks = Validation::of(cx.row);
        let mut errors = checks.common_update(old, new);
        checks.metadata_update(old, new, &mut errors);
        validation::approval(old, new, &mut errors);
        invalid(cx.row, new, &errors)
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        AGE,
        Column::text("SignerName", "who is asked to sign"),
        Column::text("Requestor", "who asks"),
        Column::text("RequestedDuration", "for how long the certificate is to be valid"),
        Column::text("Condition", "whether it is granted, and whether the certificate is there"),
    ],
    request,
);

fn request(request: View<'_>) -> Value {
    let validity = match request.at("/spec/expirationSeconds") {
        Some(seconds) => human_duration(seconds.number("")),
        None => "<none>".to_owned(),
    };
    json!([
        request.name(),
        request.age(),
        request.text_or("/spec/signerName", "<none>"),
        request.text("/spec/username"),
        validity,
        condition(request),
    ])
}

fn condition(request: View<'_>) -> String {
    let has = |kind| request.condition(kind).is_some();
    let verdict = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if request.text("/status/certificate").is_empty() { "" } else { ",Issued" };
    format!("{verdict}{failed}{issued}")
}
