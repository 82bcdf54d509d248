//! Validation of Jobs.

mod indexes;
mod policy;
pub(super) mod status;
mod template_update;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use crate::registry::core::pod::validation as pod;
use crate::validation::template;
use crate::validation::template::Selection;
use plumb_apiserver::validation::json::{boolean, int, shown, text};
use plumb_apiserver::validation::{
    Errors, add_invalid, format, labels, typed, validate_immutable_field, validate_nonnegative_fields,
};

const SPEC: Path<'_> = Path::root("spec");

/// The labels of a Job's pods. Those without a prefix are the legacy ones.
const LABELS: [&str; 4] =
    ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];

/// Validates a new Job, whose selector its strategy has generated.
pub(super) fn create(object: &Value, errors: &mut Errors) {
    validate_job(object, true, errors);
}

/// Validates a Job. `prefixed` requires the labels with a prefix, which the pods of older Jobs lack.
fn validate_job(object: &Value, require_prefixed_labels: bool, errors: &mut Errors) {
    let spec = &object["spec"];
    validate_generated_selector(object, require_prefixed_labels, errors);
    validate_job_spec(spec, &SPEC, errors);
    validate_selector(spec, errors);
    let name = text(&object["metadata"], "name");
    if let Some(completions) = int(spec, "completions").filter(|n| *n > 0 && is_indexed(spec)) {
        let host = format!("{name}-{}", completions - 1);
        if !format::dns_label(&host).is_empty() {
            let rule = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(FieldError::invalid("metadata.name", name, rule));
        }
    }
}

/// Validates that the selector of a Job without `manualSelector` is the generated one.
fn validate_generated_selector(object: &Value, require_prefixed_labels: bool, errors: &mut Errors) {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    if boolean(spec, "manualSelector") || spec.get("selector").is_none_or(Value::is_null) {
        return;
    }
    let (uid, name) = (text(metadata, "uid"), text(metadata, "name"));
    if uid.is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let labels = spec.pointer("/template/metadata/labels");
    let mut expected = BTreeMap::new();
    for label in LABELS.into_iter().filter(|label| require_prefixed_labels || !label.contains('/')) {
        let value = if label.ends_with("uid") { uid } else { name };
        expected.insert(label.to_owned(), value.to_owned());
        let path = format!("spec.template.metadata.labels[{label}]");
        let rule = format!("must be '{value}'");
        match labels.and_then(|labels| labels.get(label)) {
            None => errors.push(FieldError::required(path, rule)),
            Some(found) if found != value => errors.push(FieldError::invalid(path, shown(labels), rule)),
            Some(_) => {}
        }
    }
    let nothing = serde_json::json!({});
    let selector = spec.get("selector").filter(|selector| !selector.is_null()).unwrap_or(&nothing);
    let Some(selector) = typed::<LabelSelector>(selector, errors) else { return };
    if labels::is_valid_selector(&selector) && !labels::matches(&selector, Some(&expected)) {
        let rule = "`selector` not auto-generated";
        errors.push(FieldError::invalid(SPEC.child("selector"), labels::shown(&selector), rule));
    }
}

pub(super) fn update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    let labels = &old["spec"]["template"]["metadata"]["labels"];
    let require_prefixed_labels =
        LABELS.iter().filter(|label| label.contains('/')).all(|label| labels.get(*label).is_some());
    validate_job(new, require_prefixed_labels, errors);
    let (before, after) = (&old["spec"], &new["spec"]);
    validate_job_spec(after, &SPEC, errors);
    validate_selector(after, errors);
    validate_completions_update(before, after, errors);
    template::validate_selector_unchanged(old, new, errors);
    template_update::validate_pod_template_update(old, new, rules, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        validate_immutable_field(before.get(field), after.get(field), &SPEC.child(field), errors);
    }
}

fn is_indexed(spec: &Value) -> bool {
    text(spec, "completionMode") == "Indexed"
}

fn validate_selector(spec: &Value, errors: &mut Errors) {
    let selection = template::validate_selector(spec, true, None, None, errors);
    if !matches!(selection, Selection::Invalid) {
        template::validate_template_labels(spec, &selection, errors);
    }
}

pub(in crate::registry::batch) fn validate_job_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    validate_nonnegative_fields(spec, &numbers, path, errors);
    let has = |field: &str| int(spec, field).is_some();
    if has("maxFailedIndexes") && !has("backoffLimitPerIndex") {
        let rule = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(path.child("backoffLimitPerIndex"), rule));
    }
    validate_managed_by(spec, &path.child("managedBy"), errors);
    if let Some(mode) = spec.get("completionMode").and_then(Value::as_str)
        && !["NonIndexed", "Indexed"].contains(&mode)
    {
        errors.push(FieldError::not_supported(
            path.child("completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        ));
    }
    if is_indexed(spec) {
        validate_indexed_job(spec, path, errors);
    } else if matches!(text(spec, "completionMode"), "" | "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = int(spec, field) {
                errors.push(FieldError::invalid(
                    path.child(field),
                    number,
                    "requires indexed completion mode",
                ));
            }
        }
    }
    let template: Option<PodTemplateSpec> = typed(&spec["template"], errors);
    if spec.get("podFailurePolicy").is_some() {
        policy::validate_pod_failure_policy(spec, template.as_ref(), &path.child("podFailurePolicy"), errors);
    }
    if let Some(policy) = spec.get("successPolicy") {
        policy::validate_success_policy(spec, policy, &path.child("successPolicy"), errors);
    }
    policy::validate_pod_replacement_policy(spec, &path.child("podReplacementPolicy"), errors);
    if let Some(template) = template {
        let path = path.child("template");
        pod::validate_pod_template_spec(&template, &path, errors);
        validate_restart_policy(spec, &template, &path, errors);
    }
}

fn validate_indexed_job(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const INDEXED_LIMIT: i64 = 100_000;
    const HIGH_COMPLETIONS_LIMIT: i64 = 10_000;
    let number = |field: &str| int(spec, field);
    if number("completions").is_none() {
        errors.push(FieldError::required(path.child("completions"), "when completion mode is Indexed"));
    }
    let parallel = path.child("parallelism");
    let failed = path.child("maxFailedIndexes");
    if let Some(n) = number("parallelism").filter(|n| *n > INDEXED_LIMIT) {
        let rule = format!("must be less than or equal to {INDEXED_LIMIT} when completion mode is Indexed");
        errors.push(FieldError::invalid(parallel, n, rule));
    }
    if let (Some(completions), Some(n)) = (number("completions"), number("maxFailedIndexes"))
        && n > completions
    {
        errors.push(FieldError::invalid(failed, n, "must be less than or equal to completions"));
    }
    if let Some(n) = number("maxFailedIndexes").filter(|n| *n > INDEXED_LIMIT) {
        errors.push(FieldError::invalid(failed, n, format!("must be less than or equal to {INDEXED_LIMIT}")));
    }
    if number("completions").is_some_and(|n| n > INDEXED_LIMIT) && number("backoffLimitPerIndex").is_some() {
        let when =
            format!("when completions are above {INDEXED_LIMIT} and used with backoff limit per index");
        if number("maxFailedIndexes").is_none() {
            let rule = format!("must be specified when completions is above {INDEXED_LIMIT}");
            errors.push(FieldError::required(failed, rule));
        }
        for (path, n) in [(parallel, number("parallelism")), (failed, number("maxFailedIndexes"))] {
            if let Some(n) = n.filter(|n| *n > HIGH_COMPLETIONS_LIMIT) {
                let rule = format!("must be less than or equal to {HIGH_COMPLETIONS_LIMIT} {when}");
                errors.push(FieldError::invalid(path, n, rule));
            }
        }
    }
}

fn validate_managed_by(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(manager) = spec.get("managedBy").and_then(Value::as_str) else { return };
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.push(FieldError::required(path, "")),
        Some((host, name)) if !host.is_empty() && !name.is_empty() => {
            add_invalid(errors, path, host, format::dns_subdomain(host));
            let inside = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !name.bytes().all(inside) {
                let rule = format::regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
                errors.push(FieldError::invalid(path, name, rule));
            }
        }
        _ => {
            let rule = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, manager, rule));
        }
    }
    if manager.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
}

/// Validates that the pod template has the restart policy `OnFailure` or `Never`.
fn validate_restart_policy(spec: &Value, template: &PodTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let pod = path.child("spec");
    let path = pod.child("restartPolicy");
    let policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or_default();
    match policy {
        "" | "Always" => {
            errors.push(FieldError::required(path, r#"valid values: "OnFailure", "Never""#));
        }
        "OnFailure" if spec.get("podFailurePolicy").is_some() => {
            let rule = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(path, policy, rule));
        }
        "Never" | "OnFailure" => {}
        other => errors.push(FieldError::not_supported(path, other, &["OnFailure", "Never"])),
    }
}

fn validate_completions_update(before: &Value, after: &Value, errors: &mut Errors) {
    let path = SPEC.child("completions");
    if !is_indexed(after) {
        validate_immutable_field(before.get("completions"), after.get("completions"), &path, errors);
        return;
    }
    let Some(completions) = int(after, "completions") else { return };
    if int(before, "completions") != Some(completions) && int(after, "parallelism") != Some(completions) {
        let rule = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(path, completions, rule));
    }
}
