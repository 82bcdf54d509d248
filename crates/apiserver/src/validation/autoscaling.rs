//! Horizontal pod autoscalers.

use plumb_resize::Quantity;
use plumb_resize::field::{FieldError, Path};
use plumb_resize::rules::Rules;
use serde_json::Value;

use super::json::{int, list, text};
use super::{Errors, all_nonnegative, complain, format};

const SPEC: Path<'_> = Path::root("spec");
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// A new autoscaler.
pub(super) fn create(autoscaler: &Value, _rules: &Rules, errors: &mut Errors) {
    check(autoscaler, None, errors);
}

/// A changed one, whose target need not be better than it was.
pub(super) fn update(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    check(new, Some(&old["spec"]["scaleTargetRef"]), errors);
}

fn check(autoscaler: &Value, old_target: Option<&Value>, errors: &mut Errors) {
    let spec = &autoscaler["spec"];
    let (min, max) = (int(spec, "minReplicas"), int(spec, "maxReplicas").unwrap_or(0));
    if let Some(min) = min.filter(|min| *min < 1) {
        let rule = "must be greater than or equal to 1";
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
    target(&spec["scaleTargetRef"], old_target, &SPEC.child("scaleTargetRef"), errors);
    for (i, metric) in list(spec, "metrics").iter().enumerate() {
        let all = SPEC.child("metrics");
        metric_source(metric, &all.index(i), errors);
    }
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = spec.get("behavior").and_then(|behavior| behavior.get(direction)) {
            let behavior = SPEC.child("behavior");
            scaling_rules(rules, &behavior.child(direction), errors);
        }
    }
}

pub(super) fn status(_old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    let fields = ["currentReplicas", "desiredReplicas"];
    all_nonnegative(&new["status"], &fields, &Path::root("status"), errors);
}

fn target(target: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let word = text(target, field);
        if word.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        } else {
            complain(errors, &path.child(field), word, format::path_segment(word));
        }
    }
    let same = |field: &str| old.is_some_and(|old| text(old, field) == text(target, field));
    if same("apiVersion") && same("kind") {
        return;
    }
    let version = text(target, "apiVersion");
    let rule = match version.trim_start_matches('/').split('/').count() {
        3.. => format!("unexpected GroupVersion string: {version}"),
        // Of the core group, only controllers of the first generation can be scaled.
        1 if text(target, "kind") != "ReplicationController" => {
            "apiVersion must specify API group".to_owned()
        }
        _ => return,
    };
    errors.push(FieldError::invalid(path.child("apiVersion"), version, rule));
}

/// A metric names one source, the one that its type says.
fn metric_source(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(metric, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("type"), "must specify a metric source type"));
    }
    let Some((_, own)) = SOURCES.iter().find(|(name, _)| *name == kind) else {
        let known = SOURCES.map(|(name, _)| name);
        // SPEC: kube-apiserver says so twice.
        errors.push(FieldError::not_supported(path.child("type"), kind, &known));
        errors.push(FieldError::not_supported(path.child("type"), kind, &known));
        return;
    };
    if metric.get(*own).is_none() {
        let rule = "must populate information for the given metric source";
        errors.push(FieldError::required(path.child(own), rule));
    }
    for (_, other) in SOURCES.iter().filter(|(_, field)| field != own && metric.get(*field).is_some()) {
        let rule = "must populate the given metric source only";
        errors.push(FieldError::forbidden(path.child(other), rule));
    }
}

fn scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
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
