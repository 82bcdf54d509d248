//! Validation of roles and role bindings.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::{is_empty, list, shown, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, labels, typed};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Validates a Role.
pub(super) fn validate_role(role: &Value, errors: &mut Errors) {
    validate_policy_rules(role, true, errors);
}

/// Validates a `ClusterRole`.
pub(super) fn validate_cluster_role(role: &Value, errors: &mut Errors) {
    validate_policy_rules(role, false, errors);
    let Some(aggregation) = role.get("aggregationRule") else { return };
    let outer = Path::root("aggregationRule");
    let path = outer.child("clusterRoleSelectors");
    if is_empty(aggregation, "clusterRoleSelectors") {
        let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, text));
    }
    for (i, selector) in list(aggregation, "clusterRoleSelectors").iter().enumerate() {
        if let Some(selector) = typed::<LabelSelector>(selector, errors) {
            labels::validate_label_selector(&selector, &path.index(i), errors);
        }
    }
}

/// Validates a `RoleBinding`.
pub(super) fn validate_role_binding(binding: &Value, errors: &mut Errors) {
    validate_binding(binding, true, errors);
}

/// Validates a `ClusterRoleBinding`.
pub(super) fn validate_cluster_role_binding(binding: &Value, errors: &mut Errors) {
    validate_binding(binding, false, errors);
}

fn validate_policy_rules(role: &Value, namespaced: bool, errors: &mut Errors) {
    for (i, rule) in list(role, "rules").iter().enumerate() {
        let all = Path::root("rules");
        let path = all.index(i);
        if is_empty(rule, "verbs") {
            errors.push(FieldError::required(path.child("verbs"), "verbs must contain at least one value"));
        }
        if !is_empty(rule, "nonResourceURLs") {
            let path = path.child("nonResourceURLs");
            let urls = || shown(rule.get("nonResourceURLs"));
            if namespaced {
                let text = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(path, urls(), text));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !is_empty(rule, field)) {
                let text = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(path, urls(), text));
            }
            continue;
        }
        if is_empty(rule, "apiGroups") {
            let text = "resource rules must supply at least one api group";
            errors.push(FieldError::required(path.child("apiGroups"), text));
        }
        if is_empty(rule, "resources") {
            let text = "resource rules must supply at least one resource";
            errors.push(FieldError::required(path.child("resources"), text));
        }
    }
}

fn validate_binding(binding: &Value, namespaced: bool, errors: &mut Errors) {
    let role = &binding["roleRef"];
    let path = Path::root("roleRef");
    if text(role, "apiGroup") != RBAC {
        errors.push(FieldError::not_supported(path.child("apiGroup"), text(role, "apiGroup"), &[RBAC]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = text(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("kind"), kind, kinds));
    }
    let name = text(role, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    } else {
        add_invalid(errors, &path.child("name"), name, format::path_segment(name));
    }
    for (i, subject) in list(binding, "subjects").iter().enumerate() {
        validate_subject(subject, namespaced, &Path::root("subjects").index(i), errors);
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                add_invalid(errors, &path.child("name"), name, format::dns_subdomain(name));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(path.child("apiGroup"), group, &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != RBAC {
                errors.push(FieldError::not_supported(path.child("apiGroup"), group, &[RBAC]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(path.child("kind"), other, &kinds));
        }
    }
}

/// Validates that an update does not change `roleRef`; the subjects may change.
pub(super) fn validate_role_ref_unchanged(old: &Value, new: &Value, errors: &mut Errors) {
    if old["roleRef"] != new["roleRef"] {
        let role = &new["roleRef"];
        // SPEC: the error shows the fields of kube-apiserver's internal type.
        let value = format!(
            r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#,
            Value::from(text(role, "apiGroup")),
            Value::from(text(role, "kind")),
            Value::from(text(role, "name"))
        );
        let value = plumb_validation::field::BadValue::Bare(value);
        errors.push(FieldError::invalid("roleRef", value, "cannot change roleRef"));
    }
}
