//! Validation of `spec.conversion`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_validation::field::{BadValue, FieldError};
use plumb_validation::names::dns_1035_label;
use plumb_validation::webhook::{Service, url};
use serde_json::Value;

use super::{Errors, SPEC, text};
use crate::names::is_condition_true;

/// The versions of `ConversionReview`, in the order of error messages.
const KNOWN_REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Validates `spec.conversion`.
pub(super) fn check(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let conversion = &definition["spec"]["conversion"];
    let path = SPEC.child("conversion");
    if conversion.is_null() {
        return;
    }
    let config = &conversion["webhook"]["clientConfig"];
    let versions = review_versions(definition);
    // Upstream's errors have the paths of its internal type.
    match text(&conversion["strategy"]) {
        "" => errors.push(FieldError::required(path.child("strategy"), "")),
        "None" | "Webhook" => {}
        other => {
            errors.push(FieldError::not_supported(path.child("strategy"), other, &["None", "Webhook"]));
        }
    }
    if conversion["strategy"] == "Webhook" {
        check_client_config(definition, old, errors);
        check_review_versions(&versions, old, errors);
        return;
    }
    let rule = "should not be set when strategy is not set to Webhook";
    if config.is_object() {
        errors.push(FieldError::forbidden(path.child("webhookClientConfig"), rule));
    }
    if !versions.is_empty() {
        errors.push(FieldError::forbidden(path.child("conversionReviewVersions"), rule));
    }
}

fn review_versions(definition: &Value) -> Vec<&str> {
    let list = definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn check_client_config(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let config = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    let conversion = SPEC.child("conversion");
    let path = conversion.child("webhookClientConfig");
    if !config.is_object() {
        errors.push(FieldError::required(path, "required when strategy is set to Webhook"));
        return;
    }
    match (config["url"].as_str(), config.get("service").filter(|service| service.is_object())) {
        (Some(given), None) => errors.extend(url(given, &path.child("url"))),
        (None, Some(service)) => {
            // SPEC: upstream swaps name and namespace, so a missing name is reported as a missing namespace.
            let service = Service {
                name: text(&service["namespace"]),
                namespace: text(&service["name"]),
                path: text(&service["path"]),
                port: service["port"].as_i64().unwrap_or(443),
            };
            errors.extend(service.errors(&path.child("service")));
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    let bundle = |definition: &Value| -> Option<Vec<u8>> {
        let text = definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].as_str()?;
        STANDARD.decode(text).ok().filter(|bundle| !bundle.is_empty())
    };
    // A definition that was stored with an invalid CA bundle can still be updated.
    let strict = old.is_some_and(|old| {
        is_condition_true(old, "Established") && bundle(old).is_none_or(|bundle| has_certificate(&bundle))
    });
    if strict && let Some(given) = bundle(definition).filter(|bundle| !has_certificate(bundle)) {
        let rule = "unable to load root certificates: unable to parse bytes as PEM block";
        let bad_value = BadValue::Bare(format!("{given:?}"));
        errors.push(FieldError::invalid(path.child("caBundle"), bad_value, rule));
    }
}

fn has_certificate(bundle: &[u8]) -> bool {
    let header = b"-----BEGIN CERTIFICATE-----";
    bundle.windows(header.len()).any(|part| part == header)
}

fn check_review_versions(versions: &[&str], old: Option<&Value>, errors: &mut Errors) {
    let conversion = SPEC.child("conversion");
    let path = conversion.child("conversionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let known = |versions: &[&str]| versions.iter().any(|version| KNOWN_REVIEW_VERSIONS.contains(version));
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(path.index(index), *version, "duplicate version"));
            continue;
        }
        for message in dns_1035_label(version) {
            errors.push(FieldError::invalid(path.index(index), *version, message));
        }
    }
    let was_unknown = old.map(review_versions).is_some_and(|old| !old.is_empty() && !known(&old));
    if !known(versions) && !was_unknown {
        let bad_value = BadValue::Bare(serde_json::json!(versions).to_string());
        let rule = format!("must include at least one of {}", KNOWN_REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, bad_value, rule));
    }
}
