//! Validation of `ResourceQuotas`.

use std::collections::BTreeSet;

use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use crate::validation::resource_name;
use plumb_apiserver::validation::Errors;
use plumb_apiserver::validation::json::{
    entries, internal, is_empty, list, raw, raw_list, shown, text, texts,
};

const SPEC: Path<'_> = Path::root("spec");
const STATUS: Path<'_> = Path::root("status");
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const EXCLUSIVE: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["NotTerminating", "Terminating"]];

/// Validates a new quota.
pub(super) fn create(quota: &Value, errors: &mut Errors) {
    validate_resource_quota_spec(&quota["spec"], errors);
    validate_quantities(&quota["status"], &["hard", "used"], &STATUS, errors);
}

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_resource_quota_spec(&new["spec"], errors);
    let scopes = |quota: &Value| texts(&quota["spec"], "scopes").map(str::to_owned).collect::<BTreeSet<_>>();
    if scopes(old) != scopes(new) {
        let value = shown(new["spec"].get("scopes"));
        errors.push(FieldError::invalid(SPEC.child("scopes"), value, "field is immutable"));
    }
}

pub(super) fn update_status(new: &Value, errors: &mut Errors) {
    validate_quantities(&new["status"], &["hard", "used"], &STATUS, errors);
}

fn validate_resource_quota_spec(spec: &Value, errors: &mut Errors) {
    validate_quantities(spec, &["hard"], &SPEC, errors);
    validate_scopes(spec, errors);
    if spec.get("scopeSelector").is_some() {
        validate_scope_selector(spec, errors);
    }
}

fn validate_quantities(object: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        for (name, amount) in entries(object, field) {
            let list = path.child(field);
            let path = list.key(name);
            resource_name::validate_quota_resource_name(name, &path, errors);
            resource_name::validate_resource_quantity_value(
                name,
                amount.as_str().unwrap_or_default(),
                &path,
                errors,
            );
        }
    }
}

fn validate_scopes(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("scopes");
    let value = || shown(spec.get("scopes"));
    for scope in texts(spec, "scopes") {
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(path, value(), "unsupported scope"));
        }
        for _ in unsupported_resources(spec, scope) {
            errors.push(FieldError::invalid(path, value(), "unsupported scope applied to resource"));
        }
    }
    for pair in EXCLUSIVE {
        if pair.iter().all(|one| texts(spec, "scopes").any(|scope| scope == *one)) {
            errors.push(FieldError::invalid(path, value(), "conflicting scopes"));
        }
    }
}

/// The resources of a quota that a scope does not support.
fn unsupported_resources<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a String> {
    let fits = move |resource: &str| match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => {
            let compute = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
            resource == "pods" || compute.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    };
    let names = entries(spec, "hard").map(|(name, _)| name);
    names.filter(move |name| resource_name::is_standard_quota_resource_name(name) && !fits(name))
}

/// A scope selector as error messages show it.
fn shown_selector(requirements: &[Value]) -> BadValue {
    let shown = requirements.iter().map(|requirement| {
        internal(&[
            ("ScopeName", raw(&text(requirement, "scopeName"))),
            ("Operator", raw(&text(requirement, "operator"))),
            ("Values", raw(&requirement.get("values"))),
        ])
    });
    BadValue::Bare(internal(&[("MatchExpressions", raw_list(Some(shown.collect())))]))
}

fn validate_scope_selector(spec: &Value, errors: &mut Errors) {
    let selector = SPEC.child("scopeSelector");
    let path = selector.child("matchExpressions");
    let requirements = list(&spec["scopeSelector"], "matchExpressions");
    for requirement in requirements {
        let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(path.child("scopeName"), scope, "unsupported scope"));
        }
        for _ in unsupported_resources(spec, scope) {
            let rule = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path, shown_selector(requirements), rule));
        }
        if SCOPES.contains(&scope)
            && !["PriorityClass", "VolumeAttributesClass"].contains(&scope)
            && operator != "Exists"
        {
            let rule = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                        ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                        ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(path.child("operator"), operator, rule));
        }
        match operator {
            "In" | "NotIn" if is_empty(requirement, "values") => {
                let rule = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(path.child("values"), rule));
            }
            "Exists" | "DoesNotExist" if !is_empty(requirement, "values") => {
                let rule = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(
                    path.child("values"),
                    shown(requirement.get("values")),
                    rule,
                ));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(
                    path.child("operator"),
                    other,
                    "not a valid selector operator",
                ));
            }
        }
    }
    for pair in EXCLUSIVE {
        if pair.iter().all(|one| requirements.iter().any(|other| text(other, "scopeName") == *one)) {
            errors.push(FieldError::invalid(path, shown(spec.get("scopes")), "conflicting scopes"));
        }
    }
}
