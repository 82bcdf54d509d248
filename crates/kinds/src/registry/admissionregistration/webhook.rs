//! Validation of webhook configurations.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_cel::Env;
use plumb_validation::field::{BadValue, FieldError, Path};
use plumb_validation::webhook as client;
use serde_json::Value;

use plumb_apiserver::expression;
use plumb_apiserver::validation::json::{int, list, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid, format, labels, typed};

/// The maximum number of match conditions of a webhook.
const MAX_MATCH_CONDITIONS: usize = 64;
/// The only `AdmissionReview` version that this server sends. kube-apiserver also sends `v1beta1`.
const REVIEW_VERSION: &str = "v1";

/// Validates a `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
pub(super) fn validate_webhook_configuration(configuration: &Value, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    let root = Path::root("webhooks");
    for (index, webhook) in list(configuration, "webhooks").iter().enumerate() {
        let path = root.index(index);
        validate_webhook(webhook, &path, errors);
        validate_admission_review_versions(webhook, &path.child("admissionReviewVersions"), errors);
        let name = text(webhook, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
    }
}

fn shown(list: &[&str]) -> BadValue {
    BadValue::Bare(serde_json::json!(list).to_string())
}

fn validate_webhook(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_fully_qualified_name(text(webhook, "name"), &path.child("name"), errors);
    let rules = path.child("rules");
    for (index, one) in list(webhook, "rules").iter().enumerate() {
        validate_rule_with_operations(one, &rules.index(index), errors);
    }
    for (field, supported) in [
        ("failurePolicy", ["Fail", "Ignore"]),
        ("matchPolicy", ["Equivalent", "Exact"]),
        ("reinvocationPolicy", ["IfNeeded", "Never"]),
    ] {
        if let Some(value) = webhook[field].as_str().filter(|value| !supported.contains(value)) {
            errors.push(FieldError::not_supported(path.child(field), value, &supported));
        }
    }
    let no_side_effects = ["None", "NoneOnDryRun"];
    match webhook["sideEffects"].as_str() {
        None => {
            let rule = format!("must specify one of {}", no_side_effects.join(", "));
            errors.push(FieldError::required(path.child("sideEffects"), rule));
        }
        Some(value) if no_side_effects.contains(&value) => {}
        Some(value) => {
            errors.push(FieldError::not_supported(path.child("sideEffects"), value, &no_side_effects));
        }
    }
    if let Some(seconds) = int(webhook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let rule = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(path.child("timeoutSeconds"), seconds, rule));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = webhook.get(field).filter(|selector| selector.is_object())
            && let Some(selector) = typed::<LabelSelector>(selector, errors)
        {
            labels::validate_label_selector(&selector, &path.child(field), errors);
        }
    }
    validate_client_config(&webhook["clientConfig"], &path.child("clientConfig"), errors);
    validate_match_conditions(
        webhook,
        &expression::webhook_environment(),
        &path.child("matchConditions"),
        errors,
    );
}

fn validate_fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let messages = format::dns_subdomain(name);
    if !messages.is_empty() {
        add_invalid(errors, path, name, messages);
    } else if name.split('.').count() < 3 {
        let rule = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, rule));
    }
}

pub(super) fn validate_rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let validate_wildcard = |list: &[&str], field: &str, what: &str, errors: &mut Errors| {
        if list.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        }
        if list.len() > 1 && list.contains(&"*") {
            let rule = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(path.child(field), shown(list), rule));
        }
    };
    let operations: Vec<&str> = texts(rule, "operations").collect();
    validate_wildcard(&operations, "operations", "operations", errors);
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (index, operation) in
        operations.iter().enumerate().filter(|(_, operation)| !known.contains(operation))
    {
        errors.push(FieldError::not_supported(path.child("operations").index(index), *operation, &known));
    }
    validate_wildcard(&texts(rule, "apiGroups").collect::<Vec<_>>(), "apiGroups", "API groups", errors);
    let versions: Vec<&str> = texts(rule, "apiVersions").collect();
    validate_wildcard(&versions, "apiVersions", "API versions", errors);
    for (index, _) in versions.iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.push(FieldError::required(path.child("apiVersions").index(index), ""));
    }
    validate_resources(&texts(rule, "resources").collect::<Vec<_>>(), &path.child("resources"), errors);
    let scopes = ["*", "Cluster", "Namespaced"];
    if let Some(scope) = rule["scope"].as_str().filter(|scope| !scopes.contains(scope)) {
        errors.push(FieldError::not_supported(path.child("scope"), scope, &scopes));
    }
}

fn validate_resources(resources: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut with_wildcard_subresources, mut with_wildcard_resource) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain_resource = false;
    for (index, given) in resources.iter().enumerate() {
        if given.is_empty() {
            errors.push(FieldError::required(path.index(index), ""));
            continue;
        }
        let Some((resource, sub)) = given.split_once('/') else {
            has_plain_resource = *given != "*";
            continue;
        };
        let mut clash = |other: String| {
            let rule = format!("if '{other}' is present, must not specify {given}");
            errors.push(FieldError::invalid(path.index(index), *given, rule));
        };
        if with_wildcard_subresources.contains(resource) {
            clash(format!("{resource}/*"));
        }
        if with_wildcard_resource.contains(sub) {
            clash(format!("*/{sub}"));
        }
        if sub == "*" {
            with_wildcard_subresources.insert(resource);
        }
        if resource == "*" {
            with_wildcard_resource.insert(sub);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let rule = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, shown(resources), rule));
    }
    if resources.contains(&"*") && has_plain_resource {
        let rule = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, shown(resources), rule));
    }
}

fn validate_client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (url, service) =
        (config["url"].as_str(), config.get("service").filter(|service| service.is_object()));
    match (url, service) {
        (Some(url), None) => errors.extend(client::url(url, &path.child("url"))),
        (None, Some(service)) => {
            let service = client::Service {
                name: text(service, "name"),
                namespace: text(service, "namespace"),
                path: text(service, "path"),
                port: int(service, "port").unwrap_or(443),
            };
            errors.extend(service.errors(&path.child("service")));
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

/// Validates match conditions, which can use the variables that the environment declares.
pub(super) fn validate_match_conditions(webhook: &Value, env: &Env, path: &Path<'_>, errors: &mut Errors) {
    let count = list(webhook, "matchConditions").len();
    if count > MAX_MATCH_CONDITIONS {
        errors.push(FieldError::too_many(path, count, MAX_MATCH_CONDITIONS));
    }
    let mut names = BTreeSet::new();
    for (index, one) in list(webhook, "matchConditions").iter().enumerate() {
        let (path, name, given) = (path.index(index), text(one, "name"), text(one, "expression").trim());
        if given.is_empty() {
            errors.push(FieldError::required(path.child("expression"), ""));
        } else if let Some(error) = expression::condition(given, env).compilation_error() {
            errors.push(error.field_error(path.child("expression"), given));
        }
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else {
            add_invalid(errors, &path.child("name"), name, format::qualified_name(name));
            if !names.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
        }
    }
}

fn validate_admission_review_versions(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let versions: Vec<&str> = texts(webhook, "admissionReviewVersions").collect();
    if versions.is_empty() {
        errors.push(FieldError::required(path, format!("must specify one of {REVIEW_VERSION}")));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path.index(index), *version, "duplicate version"));
        }
    }
    if !versions.contains(&REVIEW_VERSION) {
        let rule = format!("must include at least one of {REVIEW_VERSION}");
        errors.push(FieldError::invalid(path, shown(&versions), rule));
    }
}
