//! Validation of the metrics of a `HorizontalPodAutoscaler`.

use plumb_resize::Quantity;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::{ApiVersionRule, api_version_error, validate_cross_version_object_reference};
use crate::validation::resource_name;
use plumb_apiserver::validation::json::{int, list, text};
use plumb_apiserver::validation::{Errors, add_invalid, format};

/// The types of metric sources with their fields, in the order of upstream's validation.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// Validates the metrics of an autoscaler.
pub(super) fn validate_metrics(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let described = |metric: &Value| text(&metric["object"]["describedObject"], "apiVersion").to_owned();
    let has_invalid_version = |metric: &Value| {
        text(metric, "type") == "Object"
            && api_version_error(&described(metric), ApiVersionRule::AllowEmptyGroup).is_some()
    };
    let version = if list(old, "metrics").iter().any(has_invalid_version) {
        ApiVersionRule::AllowInvalid
    } else {
        ApiVersionRule::AllowEmptyGroup
    };
    let metrics = list(spec, "metrics");
    for (i, metric) in metrics.iter().enumerate() {
        validate_metric_spec(metric, version, &path.index(i), errors);
    }
    let is_external = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if int(spec, "minReplicas") == Some(0) && !metrics.iter().any(is_external) {
        let rule = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(path, rule));
    }
}

/// Validates that a metric has exactly one source, the one that its type names.
fn validate_metric_spec(metric: &Value, version: ApiVersionRule, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(metric, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("type"), "must specify a metric source type"));
    }
    let mut known = SOURCES.map(|(name, _)| name);
    known.sort_unstable();
    let own = SOURCES.iter().find(|(name, _)| *name == kind);
    if own.is_none() {
        errors.push(FieldError::not_supported(path.child("type"), kind, &known));
    }
    let is_set = |field: &str| metric.get(field).is_some_and(|source| !source.is_null());
    let present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| is_set(field)).collect();
    // Upstream validates only the first source that is set.
    if let Some(field) = present.first() {
        validate_metric_source(field, &metric[*field], version, &path.child(field), errors);
    }
    match own {
        Some((_, own)) if !is_set(own) => {
            let rule = "must populate information for the given metric source";
            errors.push(FieldError::required(path.child(own), rule));
        }
        Some(_) => {}
        // SPEC: kube-apiserver reports this error twice.
        None => errors.push(FieldError::not_supported(path.child("type"), kind, &known)),
    }
    if present.len() == 1 {
        return;
    }
    for other in present.into_iter().filter(|field| own.is_none_or(|(_, own)| own != field)) {
        let rule = "must populate the given metric source only";
        errors.push(FieldError::forbidden(path.child(other), rule));
    }
}

fn validate_metric_source(
    field: &str,
    source: &Value,
    version: ApiVersionRule,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if field == "object" {
        validate_cross_version_object_reference(
            &source["describedObject"],
            version,
            &path.child("describedObject"),
            errors,
        );
    }
    if matches!(field, "object" | "external" | "pods") {
        let path = path.child("metric");
        match text(&source["metric"], "name") {
            "" => errors.push(FieldError::required(path.child("name"), "must specify a metric name")),
            name => add_invalid(errors, &path.child("name"), name, format::path_segment(name)),
        }
    } else {
        match text(source, "name") {
            "" => errors.push(FieldError::required(path.child("name"), "must specify a resource name")),
            name if field == "containerResource" => {
                resource_name::validate_container_resource_name(name, &path.child("name"), errors);
            }
            _ => {}
        }
    }
    if field == "containerResource" {
        match text(source, "container") {
            "" => errors.push(FieldError::required(path.child("container"), "must specify a container")),
            name => add_invalid(errors, &path.child("container"), name, format::dns_label(name)),
        }
    }
    validate_metric_target(field, &source["target"], &path.child("target"), errors);
}

/// Validates the target of a metric: each source supports some of `value`, `averageValue` and `averageUtilization`.
fn validate_metric_target(field: &str, target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let rule = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(path.child("type"), kind, rule));
    }
    let amount = |field: &str| target.get(field).and_then(Value::as_str);
    for field in ["value", "averageValue"] {
        let positive = |amount: &&str| !amount.parse::<Quantity>().is_ok_and(|amount| !amount.is_positive());
        if let Some(amount) = amount(field).filter(|amount| !positive(amount)) {
            errors.push(FieldError::invalid(path.child(field), amount, "must be positive"));
        }
    }
    let utilization = int(target, "averageUtilization");
    if let Some(share) = utilization.filter(|share| *share < 1) {
        errors.push(FieldError::invalid(path.child("averageUtilization"), share, "must be greater than 0"));
    }
    let (value, average) = (amount("value").is_some(), amount("averageValue").is_some());
    let lacks = match field {
        "object" if !value && !average => {
            Some(("averageValue", "must set either a target value or averageValue"))
        }
        "external" if !value && !average => {
            Some(("averageValue", "must set either a target value for metric or a per-pod target"))
        }
        "pods" if !average => Some(("averageValue", "must specify a positive target averageValue")),
        "resource" | "containerResource" if utilization.is_none() && !average => {
            Some(("averageUtilization", "must set either a target raw value or a target utilization"))
        }
        _ => None,
    };
    if let Some((field, rule)) = lacks {
        errors.push(FieldError::required(path.child(field), rule));
    }
    let both = match field {
        "external" if value && average => {
            Some(("value", "may not set both a target value for metric and a per-pod target"))
        }
        "resource" | "containerResource" if utilization.is_some() && average => {
            Some(("averageValue", "may not set both a target raw value and a target utilization"))
        }
        _ => None,
    };
    if let Some((field, rule)) = both {
        errors.push(FieldError::forbidden(path.child(field), rule));
    }
}
