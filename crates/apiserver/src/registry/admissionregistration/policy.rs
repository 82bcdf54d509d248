//! Validation of admission policies and their bindings.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_cel::{Env, Type, Variables};
use plumb_validation::field::{FieldError, Path};
use plumb_validation::names;
use serde_json::Value;

use super::webhook;
use crate::admission::expression::{Expression, Reads, environment};
use crate::admission::policy::compiled;
use crate::validation::json::{list, shown, text, texts};
use crate::validation::{Errors, complain, conditions, format, labels, typed};

const MOST_ANNOTATIONS: usize = 20;
const LONGEST_ANNOTATION: usize = 5 * 1024;
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];

/// Validates a new `ValidatingAdmissionPolicy`.
pub(super) fn validating(policy: &Value, errors: &mut Errors) {
    check_validating(policy, true, errors);
}

pub(super) fn validating_update(old: &Value, new: &Value, errors: &mut Errors) {
    check_validating(new, conditions_changed(old, new), errors);
}

/// An update validates the match conditions only if they or their environment changed.
fn conditions_changed(old: &Value, new: &Value) -> bool {
    let conditions = |policy: &Value| policy["spec"]["matchConditions"].clone();
    let params = |policy: &Value| policy["spec"]["paramKind"].is_object();
    conditions(old) != conditions(new) || params(old) != params(new)
}

pub(super) fn validating_status(new: &Value, errors: &mut Errors) {
    let root = Path::root("status");
    let checking = root.child("typeChecking");
    let path = checking.child("expressionWarnings");
    for (index, warning) in list(&new["status"]["typeChecking"], "expressionWarnings").iter().enumerate() {
        let path = path.index(index);
        if text(warning, "warning").is_empty() {
            errors.push(FieldError::required(path.child("warning"), ""));
        }
        if text(warning, "fieldRef").trim().is_empty() {
            errors.push(FieldError::required(path.child("fieldRef"), ""));
        }
    }
    conditions::check(&new["status"], &root.child("conditions"), errors);
}

/// The CEL environments of a policy's expressions.
struct Environments {
    /// The environment of validations, mutations and audit annotations, with the policy's variables.
    rules: Env,
    /// The environment of message expressions, which cannot use the authorizer.
    messages: Env,
}

impl Environments {
    /// With `composed`, expressions can use the policy's variables.
    fn of(spec: &Value, composed: bool) -> Self {
        let params = spec["paramKind"].is_object();
        let env = |authorizer: bool| {
            let env = environment(Reads { params, authorizer });
            if composed { env.composed() } else { env }
        };
        Self { rules: env(true), messages: env(false) }
    }
}

fn check_validating(policy: &Value, with_conditions: bool, errors: &mut Errors) {
    let (spec, path) = (&policy["spec"], Path::root("spec"));
    common(spec, with_conditions, &path, errors, |_, _, _| {});
    let mut envs = Environments::of(spec, !list(spec, "variables").is_empty());
    variables(spec, &mut envs, &path.child("variables"), errors);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let rule = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(path.child("validations"), rule));
        errors.push(FieldError::required(path.child("auditAnnotations"), rule));
        return;
    }
    for (index, one) in validations.iter().enumerate() {
        validation(one, &envs, &path.child("validations").index(index), errors);
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > MOST_ANNOTATIONS {
        let rule = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(path, shown(spec.get("auditAnnotations")), rule));
    }
    let mut keys = BTreeSet::new();
    for (index, one) in annotations.iter().enumerate() {
        let path = path.index(index);
        annotation(one, text(&policy["metadata"], "name"), &envs.rules, &path, errors);
        if !keys.insert(text(one, "key")) {
            errors.push(FieldError::duplicate(path.child("key"), text(one, "key")));
        }
    }
}

/// Validates the fields that both kinds of policies have.
fn common(
    spec: &Value,
    with_conditions: bool,
    path: &Path<'_>,
    errors: &mut Errors,
    constraints_of_kind: fn(&Value, &Path<'_>, &mut Errors),
) {
    match text(spec, "failurePolicy") {
        "" => errors.push(FieldError::required(path.child("failurePolicy"), "")),
        word if FAILURE_POLICIES.contains(&word) => {}
        word => errors.push(FieldError::not_supported(path.child("failurePolicy"), word, &FAILURE_POLICIES)),
    }
    if spec["paramKind"].is_object() {
        param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let constraints = path.child("matchConstraints");
    if spec["matchConstraints"].is_object() {
        match_resources(&spec["matchConstraints"], &constraints, errors);
        if list(&spec["matchConstraints"], "resourceRules").is_empty() {
            errors.push(FieldError::required(constraints.child("resourceRules"), ""));
        }
        constraints_of_kind(&spec["matchConstraints"], &constraints, errors);
    } else {
        errors.push(FieldError::required(constraints, ""));
    }
    if with_conditions {
        let env = environment(Reads { params: spec["paramKind"].is_object(), authorizer: true });
        webhook::conditions(spec, &env, &path.child("matchConditions"), errors);
    }
}

fn param_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (given, field) = (text(kind, "apiVersion"), path.child("apiVersion"));
    match given.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(field, "")),
        ["", ""] => errors.push(FieldError::invalid(field, given, "version must be specified")),
        parts if parts.len() > 2 => {
            let rule = format!("unexpected GroupVersion string: {given}");
            errors.push(FieldError::invalid(field, given, rule));
        }
        parts => {
            let (group, version) =
                if let [group, version] = parts { (*group, *version) } else { ("", given) };
            let wrong = names::dns_subdomain(group);
            if !group.is_empty() && !wrong.is_empty() {
                errors.push(FieldError::invalid(field, group, wrong.join(",")));
            }
            let wrong = names::dns_1035_label(version);
            if version.is_empty() {
                errors.push(FieldError::invalid(field, given, "version must be specified"));
            } else if !wrong.is_empty() {
                errors.push(FieldError::invalid(field, version, wrong.join(",")));
            }
        }
    }
    let (given, field) = (text(kind, "kind"), path.child("kind"));
    if given.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let wrong = names::dns_1035_label(&given.to_lowercase());
    if !wrong.is_empty() {
        let rule = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(FieldError::invalid(field, given, rule));
    }
}

fn match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let words = ["Equivalent", "Exact"];
    match text(resources, "matchPolicy") {
        "" => errors.push(FieldError::required(path.child("matchPolicy"), "")),
        word if words.contains(&word) => {}
        word => errors.push(FieldError::not_supported(path.child("matchPolicy"), word, &words)),
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector(resources, field, path, errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in list(resources, field).iter().enumerate() {
            named_rule(rule, &path.child(field).index(index), errors);
        }
    }
}

fn selector(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    match object.get(field).filter(|selector| selector.is_object()) {
        None => errors.push(FieldError::required(path.child(field), "")),
        Some(selector) => {
            if let Some(selector) = typed::<LabelSelector>(selector, errors) {
                labels::selector(&selector, &path.child(field), errors);
            }
        }
    }
}

fn named_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("resourceNames");
    let mut seen = BTreeSet::new();
    for (index, name) in texts(rule, "resourceNames").enumerate() {
        complain(errors, &field.index(index), name, format::path_segment(name));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(field.index(index), name));
        }
    }
    webhook::rule(rule, path, errors);
}

/// Compiles an expression and adds its compilation error.
fn expression(given: &str, env: &Env, types: &[Type], path: Path<'_>, errors: &mut Errors) {
    if let Some(mistake) = Expression::compile(given, env, types).mistake() {
        errors.push(mistake.error(path, given));
    }
}

fn variables(spec: &Value, envs: &mut Environments, path: &Path<'_>, errors: &mut Errors) {
    let mut declared = Variables::default();
    for (index, variable) in list(spec, "variables").iter().enumerate() {
        let (path, name) = (path.index(index), text(variable, "name"));
        if name.trim().is_empty() {
            errors.push(FieldError::required(path.child("name"), "name is not specified"));
        } else if !plumb_cel::is_identifier(name) {
            errors.push(FieldError::invalid(path.child("name"), name, "must be a valid CEL identifier"));
        }
        let given = text(variable, "expression");
        if given.trim().is_empty() {
            errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
        } else if let Err(issues) = declared.compile(name, given, &mut envs.rules) {
            let why = format!("compilation failed: {issues}");
            errors.push(FieldError::invalid(path.child("expression"), given, why));
        }
    }
    envs.messages.declare_variables_of(&envs.rules);
}

fn validation(validation: &Value, envs: &Environments, path: &Path<'_>, errors: &mut Errors) {
    let given = text(validation, "expression");
    if given.trim().is_empty() {
        errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
    } else {
        expression(given, &envs.rules, &[Type::Bool], path.child("expression"), errors);
    }
    let (given, field) = (text(validation, "messageExpression"), path.child("messageExpression"));
    if !given.is_empty() && given.trim().is_empty() {
        errors.push(FieldError::invalid(field, given, "must be non-empty if specified"));
    } else if !given.is_empty() {
        expression(given, &envs.messages, &[Type::Text], field, errors);
    }
    let (given, field) = (text(validation, "message"), path.child("message"));
    if !given.is_empty() && given.trim().is_empty() {
        errors.push(FieldError::invalid(field, given, "must be non-empty if specified"));
    } else if given.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(field, given, "must not contain line breaks"));
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    if let Some(reason) = validation["reason"].as_str().filter(|reason| !reasons.contains(reason)) {
        errors.push(FieldError::not_supported(path.child("reason"), reason, &reasons));
    }
}

fn annotation(annotation: &Value, policy: &str, env: &Env, path: &Path<'_>, errors: &mut Errors) {
    let (key, field) = (text(annotation, "key"), path.child("key"));
    if policy.is_empty() {
        errors.push(FieldError::invalid(field, key, "requires metadata.name be non-empty"));
    } else {
        let full = format!("{policy}/{key}");
        complain(errors, &field, &full, names::qualified_name(&full));
    }
    let (given, field) = (text(annotation, "valueExpression"), path.child("valueExpression"));
    let trimmed = given.trim();
    if trimmed.is_empty() {
        errors.push(FieldError::required(field, "valueExpression is not specified"));
    } else if trimmed.len() > LONGEST_ANNOTATION {
        let rule = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
        errors.push(FieldError::required(field, rule));
    } else if let Some(mistake) = Expression::compile(trimmed, env, &[Type::Text, Type::Null]).mistake() {
        errors.push(mistake.error(field, given));
    }
}

/// Validates a new `ValidatingAdmissionPolicyBinding`.
pub(super) fn validating_binding(binding: &Value, errors: &mut Errors) {
    let (spec, path) = (&binding["spec"], Path::root("spec"));
    binding_common(spec, &path, errors);
    actions(spec, &path.child("validationActions"), errors);
}

/// Validates the fields that both kinds of bindings have.
fn binding_common(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        errors.push(FieldError::required(path.child("policyName"), ""));
    } else {
        complain(errors, &path.child("policyName"), policy, names::dns_subdomain(policy));
    }
    if spec["paramRef"].is_object() {
        param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    if spec["matchResources"].is_object() {
        match_resources(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}

fn param_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, selects) = (text(reference, "name"), reference["selector"].is_object());
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        complain(errors, &path.child("name"), name, format::path_segment(name));
        if selects {
            errors.push(FieldError::forbidden(path.child("name"), exclusive));
        }
    }
    if selects {
        selector(reference, "selector", path, errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(path.child("selector"), exclusive));
        }
    }
    if name.is_empty() && !selects {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let (action, words) = (text(reference, "parameterNotFoundAction"), ["Deny", "Allow"]);
    if action.is_empty() {
        errors.push(FieldError::required(path.child("parameterNotFoundAction"), ""));
    } else if !words.contains(&action) {
        let path = path.child("parameterNotFoundAction");
        errors.push(FieldError::not_supported(path, action, &words));
    }
}

fn actions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known = ["Audit", "Deny", "Warn"];
    let mut seen = BTreeSet::new();
    for (index, action) in texts(spec, "validationActions").enumerate() {
        if !known.contains(&action) {
            errors.push(FieldError::not_supported(path.index(index), action, &known));
        }
        if !seen.insert(action) {
            errors.push(FieldError::duplicate(path.index(index), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let rule = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                    API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, shown(spec.get("validationActions")), rule));
    }
    if seen.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}

/// Validates a new `MutatingAdmissionPolicy`.
pub(super) fn mutating(policy: &Value, errors: &mut Errors) {
    check_mutating(policy, true, errors);
}

pub(super) fn mutating_update(old: &Value, new: &Value, errors: &mut Errors) {
    check_mutating(new, conditions_changed(old, new), errors);
}

fn check_mutating(policy: &Value, with_conditions: bool, errors: &mut Errors) {
    let (spec, path) = (&policy["spec"], Path::root("spec"));
    common(spec, with_conditions, &path, errors, operations);
    let mut envs = Environments::of(spec, true);
    variables(spec, &mut envs, &path.child("variables"), errors);
    let mutations = list(spec, "mutations");
    if mutations.is_empty() {
        let rule = "mutations must contain at least one item";
        errors.push(FieldError::required(path.child("mutations"), rule));
    }
    let env = envs.rules.with_patch_types();
    for (index, one) in mutations.iter().enumerate() {
        mutation(one, &env, &path.child("mutations").index(index), errors);
    }
    let words = ["IfNeeded", "Never"];
    match text(spec, "reinvocationPolicy") {
        "" => errors.push(FieldError::required(path.child("reinvocationPolicy"), "")),
        word if words.contains(&word) => {}
        word => errors.push(FieldError::not_supported(path.child("reinvocationPolicy"), word, &words)),
    }
}

/// Validates that a mutating policy does not match DELETE: a deleted object cannot be mutated.
fn operations(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known = ["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = path.child("resourceRules");
    for operation in list(resources, "resourceRules").iter().flat_map(|rule| texts(rule, "operations")) {
        if !known.contains(&operation) {
            errors.push(FieldError::not_supported(rules.child("operations"), operation, &known));
        }
    }
}

fn mutation(mutation: &Value, env: &Env, path: &Path<'_>, errors: &mut Errors) {
    let kinds = ["ApplyConfiguration", "JSONPatch"];
    let (own, field, other, compile): (_, _, _, fn(&str, &Env) -> Expression) =
        match text(mutation, "patchType") {
            "" => return errors.push(FieldError::required(path.child("patchType"), "")),
            "JSONPatch" => ("JSONPatch", "jsonPatch", "applyConfiguration", compiled::json_patch),
            "ApplyConfiguration" => {
                ("ApplyConfiguration", "applyConfiguration", "jsonPatch", compiled::apply_configuration)
            }
            other => return errors.push(FieldError::not_supported(path.child("patchType"), other, &kinds)),
        };
    if mutation[field].is_object() {
        let (given, path) = (text(&mutation[field], "expression").trim(), path.child(field));
        if given.is_empty() {
            errors.push(FieldError::required(path.child("expression"), ""));
        } else if let Some(mistake) = compile(given, env).mistake() {
            errors.push(mistake.error(path.child("expression"), given));
        }
    } else {
        let rule = format!("must be specified when patchType is {own}");
        errors.push(FieldError::required(path.child(field), rule));
    }
    if mutation[other].is_object() {
        let rule = format!("must not be specified when patchType is {own}");
        errors.push(FieldError::invalid(path.child(other), format!("{{{other}}}"), rule));
    }
}

/// Validates a new `MutatingAdmissionPolicyBinding`.
pub(super) fn mutating_binding(binding: &Value, errors: &mut Errors) {
    let (spec, path) = (&binding["spec"], Path::root("spec"));
    binding_common(spec, &path, errors);
    if spec["matchResources"].is_object() {
        operations(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}
