//! Requests for certificates.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::duration::human_duration;
use super::layout::Layout;
use super::view::View;

pub(super) const LAYOUTS: &[Layout] = &[Layout::new(
    "certificates.k8s.io",
    "CertificateSigningRequest",
    &[
        NAME,
        AGE,
        Column::text("SignerName", "who is asked to sign"),
        Column::text("Requestor", "who asks"),
        Column::text("RequestedDuration", "for how long the certificate is to be valid"),
        Column::text("Condition", "whether it is granted, and whether the certificate is there"),
    ],
    request,
)];

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
