//! Disruption budgets, priority classes, leases.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_resize::rules::Rules;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::json::{int, internal, raw, text, truth};
use super::{
    Errors, all_nonnegative, complain, conditions, format, immutable, labels, one_of, percent, typed,
};

const SPEC: Path<'_> = Path::root("spec");

/// The highest priority that is not the system's own.
const HIGHEST: i64 = 1_000_000_000;

/// What a controller reports of a `PodDisruptionBudget`.
pub(super) fn disruption_budget_status(_old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    let (status, path) = (&new["status"], Path::root("status"));
    conditions::check(status, &path.child("conditions"), errors);
    let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    all_nonnegative(status, &numbers, &path, errors);
}

/// A selector as upstream shows it within its own types.
fn shown_selector(spec: &Value, errors: &mut Errors) -> String {
    let selector = spec.get("selector").filter(|selector| !selector.is_null());
    let selector = selector.and_then(|selector| typed::<LabelSelector>(selector, errors));
    selector.map_or_else(|| "null".to_owned(), |selector| labels::shown(&selector).to_string())
}

/// A new `PodDisruptionBudget`.
pub(super) fn disruption_budget(budget: &Value, _rules: &Rules, errors: &mut Errors) {
    let spec = &budget["spec"];
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let rule = "minAvailable and maxUnavailable cannot be both set";
        let shown = internal(&[
            ("MinAvailable", raw(&spec.get("minAvailable"))),
            ("Selector", shown_selector(spec, errors)),
            ("MaxUnavailable", raw(&spec.get("maxUnavailable"))),
            ("UnhealthyPodEvictionPolicy", raw(&spec.get("unhealthyPodEvictionPolicy"))),
        ]);
        errors.push(FieldError::invalid(SPEC, BadValue::Bare(shown), rule));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(number) = spec.get(field) {
            percent::number_or_percent(number, &SPEC.child(field), errors);
            percent::at_most_all(number, &SPEC.child(field), errors);
        }
    }
    if let Some(selector) = spec.get("selector")
        && let Some(selector) = typed::<LabelSelector>(selector, errors)
    {
        labels::selector(&selector, &SPEC.child("selector"), errors);
    }
    if let Some(policy) = spec.get("unhealthyPodEvictionPolicy").and_then(Value::as_str) {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        if !known.contains(&policy) {
            errors.push(FieldError::not_supported(SPEC.child("unhealthyPodEvictionPolicy"), policy, &known));
        }
    }
}

pub(super) fn disruption_budget_update(_old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    disruption_budget(new, rules, errors);
}

/// A new `PriorityClass`.
pub(super) fn priority_class(class: &Value, _rules: &Rules, errors: &mut Errors) {
    let name = text(&class["metadata"], "name");
    let value = int(class, "value").unwrap_or(0);
    if name.starts_with("system-") {
        if let Err(error) = system_class(name, value, truth(class, "globalDefault")) {
            let rule = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {error}"
            );
            errors.push(FieldError::forbidden("metadata.name", rule));
        }
    } else if value > HIGHEST {
        let rule = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", rule));
    }
    if let Some(policy) = class.get("preemptionPolicy").and_then(Value::as_str) {
        let policies = ["PreemptLowerPriority", "Never"];
        one_of(Some(policy), &policies, &Path::root("preemptionPolicy"), errors);
    }
}

pub(super) fn priority_class_update(old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
    if int(old, "value").unwrap_or(0) != int(new, "value").unwrap_or(0) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    let path = Path::root("preemptionPolicy");
    immutable(old.get("preemptionPolicy"), new.get("preemptionPolicy"), &path, errors);
}

/// Why a `PriorityClass` may not have a name that is reserved for the system.
#[derive(Debug, thiserror::Error)]
enum SystemClassError<'a> {
    #[error("{0} is not a known system priority class")]
    Unknown(&'a str),
    #[error("value of {name} PriorityClass must be {expected}")]
    Value { name: &'a str, expected: i64 },
    #[error("globalDefault of {0} PriorityClass must be false")]
    GlobalDefault(&'a str),
}

fn system_class(name: &str, value: i64, default: bool) -> Result<(), SystemClassError<'_>> {
    let expected = match name {
        "system-node-critical" => 2 * HIGHEST + 1000,
        "system-cluster-critical" => 2 * HIGHEST,
        _ => return Err(SystemClassError::Unknown(name)),
    };
    if value != expected {
        return Err(SystemClassError::Value { name, expected });
    }
    if default {
        return Err(SystemClassError::GlobalDefault(name));
    }
    Ok(())
}

/// A new Lease.
pub(super) fn lease(lease: &Value, _rules: &Rules, errors: &mut Errors) {
    let spec = &lease["spec"];
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let path = SPEC.child("leaseDurationSeconds");
        errors.push(FieldError::invalid(path, seconds, "must be greater than 0"));
    }
    super::all_nonnegative(spec, &["leaseTransitions"], &SPEC, errors);
    let strategy = spec.get("strategy").and_then(Value::as_str);
    if let Some(strategy) = strategy {
        let outer = SPEC.child("strategy");
        let path = outer.child("strategy");
        if strategy.contains('/') {
            complain(errors, &path, strategy, format::qualified_name(strategy));
        } else if strategy != "OldestEmulationVersion" {
            errors.push(FieldError::not_supported(path, strategy, &["OldestEmulationVersion"]));
        }
    }
    if !text(spec, "preferredHolder").is_empty() && strategy.unwrap_or_default().is_empty() {
        let rule = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden(SPEC.child("preferredHolder"), rule));
    }
}

pub(super) fn lease_update(_old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    lease(new, rules, errors);
}
