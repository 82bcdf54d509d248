//! Validation of `CertificateSigningRequests`.

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::request::{DECISIONS, conditions, read};
use plumb_apiserver::validation::json::{int, list, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_one_of};

const SPEC: Path<'_> = Path::root("spec");
const CONDITIONS: &str = "status.conditions";
/// The minimum of `spec.expirationSeconds`.
const MIN_EXPIRATION_SECONDS: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Validates a new `CertificateSigningRequest`.
pub(super) fn create(request: &Value, errors: &mut Errors) {
    let spec = &request["spec"];
    if let Err(why) = read(request) {
        errors.push(FieldError::invalid(SPEC.child("request"), text(spec, "request"), why.to_string()));
    }
    validate_usages(spec, errors);
    validate_signer_name(text(spec, "signerName"), errors);
    if let Some(seconds) = int(spec, "expirationSeconds").filter(|seconds| *seconds < MIN_EXPIRATION_SECONDS)
    {
        let rule = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(SPEC.child("expirationSeconds"), seconds, rule));
    }
    validate_conditions(request, errors);
}

fn validate_usages(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("usages");
    if list(spec, "usages").is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    for (index, usage) in texts(spec, "usages").enumerate() {
        if !USAGES.contains(&usage) {
            errors.push(FieldError::not_supported(path.index(index), usage, &USAGES));
        }
    }
    for (index, usage) in texts(spec, "usages").enumerate() {
        if texts(spec, "usages").take(index).any(|earlier| earlier == usage) {
            errors.push(FieldError::duplicate(path.index(index), usage));
        }
    }
}

fn validate_signer_name(name: &str, errors: &mut Errors) {
    let path = SPEC.child("signerName");
    if name == "kubernetes.io/legacy-unknown" {
        let rule = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid(path, name, rule));
        return;
    }
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let rule = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(path, name, rule));
        return;
    };
    for segment in [domain, rest] {
        add_invalid(errors, &path, segment, format::dns_subdomain(segment));
    }
}

fn validate_conditions(request: &Value, errors: &mut Errors) {
    let path = Path::root(CONDITIONS);
    let all = conditions(request);
    for (index, condition) in all.iter().enumerate() {
        let (at, kind) = (path.index(index), text(condition, "type"));
        if kind.is_empty() {
            errors.push(FieldError::required(at.child("type"), ""));
        }
        let supported: &[&str] = if matches!(kind, "Approved" | "Denied" | "Failed") {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        validate_one_of(condition["status"].as_str(), supported, &at.child("status"), errors);
        let earlier = &all[..index];
        let other = DECISIONS.into_iter().find(|other| *other != kind && DECISIONS.contains(&kind));
        if other.is_some_and(|other| earlier.iter().any(|condition| condition["type"] == other)) {
            let rule = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(path, kind, rule));
        }
        if earlier.iter().any(|condition| text(condition, "type") == kind) {
            errors.push(FieldError::duplicate(at.child("type"), kind));
        }
    }
}

/// The endpoint of an update, which decides what it can change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Main,
    Approval,
    Status,
}

/// Validates an updated request, whose spec is the stored one.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_update(old, new, Endpoint::Main, errors);
}

/// Validates an update through `/status`, which a signer makes.
pub(super) fn update_status(old: &Value, new: &Value, errors: &mut Errors) {
    validate_update(old, new, Endpoint::Status, errors);
}

/// Validates an update through `/approval`.
pub(super) fn approval(old: &Value, new: &Value, errors: &mut Errors) {
    validate_update(old, new, Endpoint::Approval, errors);
}

fn validate_update(old: &Value, new: &Value, endpoint: Endpoint, errors: &mut Errors) {
    create(new, errors);
    let of_type = |object: &Value, kind: &str| -> Vec<Value> {
        conditions(object).iter().filter(|condition| condition["type"] == kind).cloned().collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            let rule = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden(CONDITIONS, rule));
        }
    }
    if endpoint != Endpoint::Approval {
        for kind in DECISIONS {
            let (before, after) = (of_type(old, kind), of_type(new, kind));
            if after.len() > before.len() {
                let rule = format!("updates may not add a condition of type {kind:?}");
                errors.push(FieldError::forbidden(CONDITIONS, rule));
            } else if after.len() == before.len() && after != before {
                let rule = format!("updates may not modify a condition of type {kind:?}");
                errors.push(FieldError::forbidden(CONDITIONS, rule));
            }
        }
    }
    let certificate = |object: &Value| text(&object["status"], "certificate").to_owned();
    let (before, after) = (certificate(old), certificate(new));
    if before != after {
        let rule = match endpoint {
            Endpoint::Status if before.is_empty() => return,
            Endpoint::Status => "updates may not modify existing certificate content",
            _ => "updates may not set certificate content",
        };
        errors.push(FieldError::forbidden("status.certificate", rule));
    }
}
