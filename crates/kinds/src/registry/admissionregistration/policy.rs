//! Validation of admission policies and their bindings.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_cel::{Env, Type, Variables};
use plumb_validation::field::{FieldError, Path};
use plumb_validation::names;
use serde_json::Value;

use super::webhook;
use plumb_apiserver::expression::{Expression, Reads, apply_configuration, environment, json_patch};
use plumb_apiserver::validation::json::{list, shown, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid, conditions, format, labels, typed};

const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION_LENGTH: usize = 5 * 1024;
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];

/// Validates a new `ValidatingAdmissionPolicy`.
pub(super) fn validate_validating_admission_policy(policy: &Value, errors: &mut Errors) {
    validate_validating_policy_spec(policy, true, errors);
}

pub(super) fn validate_validating_admission_policy_update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_validating_policy_spec(new, match_conditions_changed(old, new), errors);
}

/// An update validates the match conditions only if they or their environment changed.
fn match_conditions_changed(old: &Value, new: &Value) -> bool {
    let conditions = |policy: &Value| policy["spec"]["matchConditions"].clone();
    let params = |policy: &Value| policy["spec"]["paramKind"].is_object();
    conditions(old) != conditions(new) || params(old) != params(new)
}

pub(super) fn validate_validating_admission_policy_status(new: &Value, errors: &mut Errors) {
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
    conditions::validate_conditions(&new["status"], &root.child("conditions"), errors);
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

fn validate_validating_policy_spec(policy: &Value, with_match_conditions: bool, errors: &mut Errors) {
    let (spec, path) = (&policy["spec"], Path::root("spec"));
    validate_common_policy_spec(spec, with_match_conditions, &path, errors, |_, _, _| {});
    let mut envs = Environments::of(spec, !list(spec, "variables").is_empty());
    validate_variables(spec, &mut envs, &path.child("variables"), errors);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let rule = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(path.child("validations"), rule));
        errors.push(FieldError::required(path.child("auditAnnotations"), rule));
        return;
    }
    for (index, one) in validations.iter().enumerate() {
        validate_validation(one, &envs, &path.child("validations").index(index), errors);
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let rule = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(path, shown(spec.get("auditAnnotations")), rule));
    }
    let mut keys = BTreeSet::new();
    for (index, one) in annotations.iter().enumerate() {
        let path = path.index(index);
        validate_audit_annotation(one, text(&policy["metadata"], "name"), &envs.rules, &path, errors);
        if !keys.insert(text(one, "key")) {
            errors.push(FieldError::duplicate(path.child("key"), text(one, "key")));
        }
    }
}

/// Validates the fields that both kinds of policies have.
fn validate_common_policy_spec(
    spec: &Value,
    with_match_conditions: bool,
    path: &Path<'_>,
    errors: &mut Errors,
    constraints_of_kind: fn(&Value, &Path<'_>, &mut Errors),
) {
    match text(spec, "failurePolicy") {
        "" => errors.push(FieldError::required(path.child("failurePolicy"), "")),
        value if FAILURE_POLICIES.contains(&value) => {}
        value => {
            errors.push(FieldError::not_supported(path.child("failurePolicy"), value, &FAILURE_POLICIES));
        }
    }
    if spec["paramKind"].is_object() {
        validate_param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let constraints = path.child("matchConstraints");
    if spec["matchConstraints"].is_object() {
        validate_match_resources(&spec["matchConstraints"], &constraints, errors);
        if list(&spec["matchConstraints"], "resourceRules").is_empty() {
            errors.push(FieldError::required(constraints.child("resourceRules"), ""));
        }
        constraints_of_kind(&spec["matchConstraints"], &constraints, errors);
    } else {
        errors.push(FieldError::required(constraints, ""));
    }
    if with_match_conditions {
        let env = environment(Reads { params: spec["paramKind"].is_object(), authorizer: true });
        webhook::validate_match_conditions(spec, &env, &path.child("matchConditions"), errors);
    }
}

fn validate_param_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
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

fn validate_match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let supported = ["Equivalent", "Exact"];
    match text(resources, "matchPolicy") {
        "" => errors.push(FieldError::required(path.child("matchPolicy"), "")),
        value if supported.contains(&value) => {}
        value => errors.push(FieldError::not_supported(path.child("matchPolicy"), value, &supported)),
    }
    for field in ["namespaceSelector", "objectSelector"] {
        validate_required_selector(resources, field, path, errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in list(resources, field).iter().enumerate() {
            validate_named_rule_with_operations(rule, &path.child(field).index(index), errors);
        }
    }
}

fn validate_required_selector(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    match object.get(field).filter(|selector| selector.is_object()) {
        None => errors.push(FieldError::required(path.child(field), "")),
        Some(selector) => {
            if let Some(selector) = typed::<LabelSelector>(selector, errors) {
                labels::validate_label_selector(&selector, &path.child(field), errors);
            }
        }
    }
}

fn validate_named_rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("resourceNames");
    let mut seen = BTreeSet::new();
    for (index, name) in texts(rule, "resourceNames").enumerate() {
        add_invalid(errors, &field.index(index), name, format::path_segment(name));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(field.index(index), name));
        }
    }
    webhook::validate_rule_with_operations(rule, path, errors);
}

/// Compiles an expression and adds its compilation error.
fn validate_expression(given: &str, env: &Env, types: &[Type], path: Path<'_>, errors: &mut Errors) {
    if let Some(error) = Expression::compile(given, env, types).compilation_error() {
        errors.push(error.field_error(path, given));
    }
}

fn validate_variables(spec: &Value, envs: &mut Environments, path: &Path<'_>, errors: &mut Errors) {
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

fn validate_validation(validation: &Value, envs: &Environments, path: &Path<'_>, errors: &mut Errors) {
    let given = text(validation, "expression");
    if given.trim().is_empty() {
        errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
    } else {
        validate_expression(given, &envs.rules, &[Type::Bool], path.child("expression"), errors);
    }
    let (given, field) = (text(validation, "messageExpression"), path.child("messageExpression"));
    if !given.is_empty() && given.trim().is_empty() {
        errors.push(FieldError::invalid(field, given, "must be non-empty if specified"));
    } else if !given.is_empty() {
        validate_expression(given, &envs.messages, &[Type::Text], field, errors);
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

fn validate_audit_annotation(
    annotation: &Value,
    policy: &str,
    env: &Env,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (key, field) = (text(annotation, "key"), path.child("key"));
    if policy.is_empty() {
        errors.push(FieldError::invalid(field, key, "requires metadata.name be non-empty"));
    } else {
        let full = format!("{policy}/{key}");
        add_invalid(errors, &field, &full, names::qualified_name(&full));
    }
    let (given, field) = (text(annotation, "valueExpression"), path.child("valueExpression"));
    let trimmed = given.trim();
    if trimmed.is_empty() {
        errors.push(FieldError::required(field, "valueExpression is not specified"));
    } else if trimmed.len() > MAX_VALUE_EXPRESSION_LENGTH {
        let rule = format!("must not exceed {MAX_VALUE_EXPRESSION_LENGTH} bytes in length");
        errors.push(FieldError::required(field, rule));
    } else if let Some(error) =
        Expression::compile(trimmed, env, &[Type::Text, Type::Null]).compilation_error()
    {
        errors.push(error.field_error(field, given));
    }
}

/// Validates a new `ValidatingAdmissionPolicyBinding`.
pub(super) fn validate_validating_admission_policy_binding(binding: &Value, errors: &mut Errors) {
    let (spec, path) = (&binding["spec"], Path::root("spec"));
    validate_common_binding_spec(spec, &path, errors);
    validate_validation_actions(spec, &path.child("validationActions"), errors);
}

/// Validates the fields that both kinds of bindings have.
fn validate_common_binding_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        errors.push(FieldError::required(path.child("policyName"), ""));
    } else {
        add_invalid(errors, &path.child("policyName"), policy, names::dns_subdomain(policy));
    }
    if spec["paramRef"].is_object() {
        validate_param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    if spec["matchResources"].is_object() {
        validate_match_resources(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}

fn validate_param_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, selects) = (text(reference, "name"), reference["selector"].is_object());
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        add_invalid(errors, &path.child("name"), name, format::path_segment(name));
        if selects {
            errors.push(FieldError::forbidden(path.child("name"), exclusive));
        }
    }
    if selects {
        validate_required_selector(reference, "selector", path, errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(path.child("selector"), exclusive));
        }
    }
    if name.is_empty() && !selects {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let (action, supported) = (text(reference, "parameterNotFoundAction"), ["Deny", "Allow"]);
    if action.is_empty() {
        errors.push(FieldError::required(path.child("parameterNotFoundAction"), ""));
    } else if !supported.contains(&action) {
        let path = path.child("parameterNotFoundAction");
        errors.push(FieldError::not_supported(path, action, &supported));
    }
}

fn validate_validation_actions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
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
pub(super) fn validate_mutating_admission_policy(policy: &Value, errors: &mut Errors) {
    validate_mutating_policy_spec(policy, true, errors);
}

pub(super) fn validate_mutating_admission_policy_update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_mutating_policy_spec(new, match_conditions_changed(old, new), errors);
}

fn validate_mutating_policy_spec(policy: &Value, with_match_conditions: bool, errors: &mut Errors) {
    let (spec, path) = (&policy["spec"], Path::root("spec"));
    validate_common_policy_spec(spec, with_match_conditions, &path, errors, validate_mutating_operations);
    let mut envs = Environments::of(spec, true);
    validate_variables(spec, &mut envs, &path.child("variables"), errors);
    let mutations = list(spec, "mutations");
    if mutations.is_empty() {
        let rule = "mutations must contain at least one item";
        errors.push(FieldError::required(path.child("mutations"), rule));
    }
    let env = envs.rules.with_patch_types();
    for (index, one) in mutations.iter().enumerate() {
        validate_mutation(one, &env, &path.child("mutations").index(index), errors);
    }
    let supported = ["IfNeeded", "Never"];
    match text(spec, "reinvocationPolicy") {
        "" => errors.push(FieldError::required(path.child("reinvocationPolicy"), "")),
        value if supported.contains(&value) => {}
        value => errors.push(FieldError::not_supported(path.child("reinvocationPolicy"), value, &supported)),
    }
}

/// Validates that a mutating policy does not match DELETE: a deleted object cannot be mutated.
fn validate_mutating_operations(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known = ["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = path.child("resourceRules");
    for operation in list(resources, "resourceRules").iter().flat_map(|rule| texts(rule, "operations")) {
        if !known.contains(&operation) {
            errors.push(FieldError::not_supported(rules.child("operations"), operation, &known));
        }
    }
}

fn validate_mutation(mutation: &Value, env: &Env, path: &Path<'_>, errors: &mut Errors) {
    let kinds = ["ApplyConfiguration", "JSONPatch"];
    let (own, field, other, compile): (_, _, _, fn(&str, &Env) -> Expression) =
        match text(mutation, "patchType") {
            "" => return errors.push(FieldError::required(path.child("patchType"), "")),
            "JSONPatch" => ("JSONPatch", "jsonPatch", "applyConfiguration", json_patch),
            "ApplyConfiguration" => {
                ("ApplyConfiguration", "applyConfiguration", "jsonPatch", apply_configuration)
            }
            other => return errors.push(FieldError::not_supported(path.child("patchType"), other, &kinds)),
        };
    if mutation[field].is_object() {
        let (given, path) = (text(&mutation[field], "expression").trim(), path.child(field));
        if given.is_empty() {
            errors.push(FieldError::required(path.child("expression"), ""));
        } else if let Some(error) = compile(given, env).compilation_error() {
            errors.push(error.field_error(path.child("expression"), given));
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
pub(super) fn validate_mutating_admission_policy_binding(binding: &Value, errors: &mut Errors) {
    let (spec, path) = (&binding["spec"], Path::root("spec"));
    validate_common_binding_spec(spec, &path, errors);
    if spec["matchResources"].is_object() {
        validate_mutating_operations(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}
