//! Validation of `HorizontalPodAutoscalers`.

mod metrics;

use plumb_resize::Quantity;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::{int, list, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_nonnegative_fields};

const SPEC: Path<'_> = Path::root("spec");

/// Validates a new `HorizontalPodAutoscaler`.
pub(super) fn create(autoscaler: &Value, scale_to_zero: bool, errors: &mut Errors) {
    validate_autoscaler(autoscaler, &Value::Null, scale_to_zero, errors);
}

/// Validates an updated `HorizontalPodAutoscaler`. An invalid API version of `scaleTargetRef` is tolerated if it did
/// not change.
pub(super) fn update(old: &Value, new: &Value, scale_to_zero: bool, errors: &mut Errors) {
    validate_autoscaler(new, &old["spec"], scale_to_zero, errors);
}

fn validate_autoscaler(autoscaler: &Value, old: &Value, scale_to_zero: bool, errors: &mut Errors) {
    let spec = &autoscaler["spec"];
    let (min, max) = (int(spec, "minReplicas"), int(spec, "maxReplicas").unwrap_or(0));
    let least = i64::from(!scale_to_zero && int(old, "minReplicas") != Some(0));
    if let Some(min) = min.filter(|min| *min < least) {
        let rule = format!("must be greater than or equal to {least}");
        errors.push(FieldError::invalid(SPEC.child("minReplicas"), min, rule));
    }
    if max == 0 {
        errors.push(FieldError::required(SPEC.child("maxReplicas"), "must be set and greater than 0"));
    } else if max < 0 {
        let rule = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(SPEC.child("maxReplicas"), max, rule));
    }
    if min.is_some_and(|min| max < min) {
        let rule = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(SPEC.child("maxReplicas"), max, rule));
    }
    let (target, was) = (&spec["scaleTargetRef"], &old["scaleTargetRef"]);
    let same = |field: &str| !was.is_null() && text(was, field) == text(target, field);
    let version = if same("apiVersion") && same("kind") {
        ApiVersionRule::AllowInvalid
    } else if text(target, "kind") == "ReplicationController" {
        // ReplicationController is the only scalable kind of the core group, whose name is empty.
        ApiVersionRule::AllowEmptyGroup
    } else {
        ApiVersionRule::RequireGroup
    };
    validate_cross_version_object_reference(target, version, &SPEC.child("scaleTargetRef"), errors);
    metrics::validate_metrics(spec, old, &SPEC.child("metrics"), errors);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = spec.get("behavior").and_then(|behavior| behavior.get(direction)) {
            let behavior = SPEC.child("behavior");
            validate_scaling_rules(rules, &behavior.child(direction), errors);
        }
    }
}

pub(super) fn update_status(new: &Value, errors: &mut Errors) {
    let fields = ["currentReplicas", "desiredReplicas"];
    validate_nonnegative_fields(&new["status"], &fields, &Path::root("status"), errors);
}

/// How strictly the `apiVersion` of an object reference is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiVersionRule {
    /// The version is not validated.
    AllowInvalid,
    /// The version must parse as group and version.
    AllowEmptyGroup,
    /// The version must parse and must name an API group.
    RequireGroup,
}

fn validate_cross_version_object_reference(
    object: &Value,
    version: ApiVersionRule,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in ["kind", "name"] {
        let value = text(object, field);
        if value.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        } else {
            add_invalid(errors, &path.child(field), value, format::path_segment(value));
        }
    }
    let given = text(object, "apiVersion");
    if let Some(why) = api_version_error(given, version) {
        errors.push(FieldError::invalid(path.child("apiVersion"), given, why));
    }
}

fn api_version_error(given: &str, rule: ApiVersionRule) -> Option<String> {
    // Upstream parses "/" as an empty version.
    let parts = if given == "/" { 0 } else { given.split('/').count() };
    match (rule, parts) {
        (ApiVersionRule::AllowInvalid, _) => None,
        (_, 3..) => Some(format!("unexpected GroupVersion string: {given}")),
        (ApiVersionRule::RequireGroup, 0 | 1) => Some("apiVersion must specify API group".to_owned()),
        (ApiVersionRule::RequireGroup, _) if given.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn validate_scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    let window = path.child("stabilizationWindowSeconds");
    match int(rules, "stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => {
            errors.push(FieldError::invalid(window, seconds, "must be greater than or equal to zero"));
        }
        Some(seconds) if seconds > 3600 => {
            errors.push(FieldError::invalid(window, seconds, "must be less than or equal to 3600"));
        }
        _ => {}
    }
    if let Some(policy) = rules.get("selectPolicy").and_then(Value::as_str) {
        let known = ["Disabled", "Max", "Min"];
        if !known.contains(&policy) {
            errors.push(FieldError::not_supported(path.child("selectPolicy"), policy, &known));
        }
    }
    let all = path.child("policies");
    let policies = list(rules, "policies");
    if policies.is_empty() {
        errors.push(FieldError::required(all, "must specify at least one Policy"));
    }
    for (i, policy) in policies.iter().enumerate() {
        let path = all.index(i);
        let kind = text(policy, "type");
        if !["Percent", "Pods"].contains(&kind) {
            errors.push(FieldError::not_supported(path.child("type"), kind, &["Percent", "Pods"]));
        }
        for field in ["value", "periodSeconds"] {
            let number = int(policy, field).unwrap_or(0);
            if number <= 0 {
                errors.push(FieldError::invalid(path.child(field), number, "must be greater than zero"));
            }
            if field == "periodSeconds" && number > 1800 {
                let rule = "must be less than or equal to 1800";
                errors.push(FieldError::invalid(path.child(field), number, rule));
            }
        }
    }
    if let Some(tolerance) = rules.get("tolerance").and_then(Value::as_str)
        && tolerance.parse::<Quantity>().is_ok_and(Quantity::is_negative)
    {
        let rule = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.child("tolerance"), tolerance, rule));
    }
}
