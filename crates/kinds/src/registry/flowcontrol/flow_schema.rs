//! `FlowSchemas`.

use plumb_flowcontrol::EXEMPT;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use plumb_validation::names::{dns_label, dns_subdomain};
use serde_json::{Value, json};

use super::validation::{validate_level_name, validate_mandatory, validate_status};
use crate::registry::{FieldPaths, Strategy};
use crate::warnings::no_effect;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::json::{boolean, int, internal, list, raw, shown_as_json, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid};
use plumb_validation::field::BadValue;

/// The largest precedence.
const MAX_PRECEDENCE: i64 = 10_000;
/// The verbs that rules can have, sorted as upstream lists them.
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// The strategy of `FlowSchemas`.
#[derive(Debug)]
pub(in crate::registry) struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_spec(&new["spec"], text(&new["metadata"], "name"), errors);
        validate_mandatory(new, "FlowSchema", None, errors);
        validate_status(new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_status(new, errors);
    }

    fn warnings(&self, _new: &Value) -> Vec<String> {
        vec![no_effect::of_kind(no_effect::NO_FAIRNESS)]
    }
}

fn validate_spec(spec: &Value, name: &str, errors: &mut Errors) {
    let path = Path::root("spec");
    let precedence = int(spec, "matchingPrecedence").unwrap_or(0);
    let mut invalid = |rule: String| {
        errors.push(FieldError::invalid(path.child("matchingPrecedence"), precedence, rule));
    };
    if precedence <= 0 {
        invalid("must be a positive value".to_owned());
    }
    if precedence > MAX_PRECEDENCE {
        invalid(format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && name != EXEMPT {
        invalid("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
    }
    if let Some(method) = spec.get("distinguisherMethod").filter(|method| !method.is_null()) {
        let methods = ["ByNamespace", "ByUser"];
        let type_ = text(method, "type");
        if !methods.contains(&type_) {
            let value = BadValue::Bare(internal(&[("Type", raw(&type_))]));
            let path = path.child("distinguisherMethod").child("type").to_string();
            errors.push(FieldError::not_supported(path, value, &methods));
        }
    }
    let level = text(&spec["priorityLevelConfiguration"], "name");
    validate_level_name(level, &path.child("priorityLevelConfiguration").child("name"), errors);
    for (i, rule) in list(spec, "rules").iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(i), errors);
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let subjects = list(rule, "subjects");
    if subjects.is_empty() {
        errors.push(FieldError::required(path.child("subjects"), "subjects must contain at least one value"));
    }
    for (i, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &path.child("subjects").index(i), errors);
    }
    let (resources, paths) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        let needs = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, needs));
    }
    for (i, rule) in resources.iter().enumerate() {
        validate_resource_rule(rule, &path.child("resourceRules").index(i), errors);
    }
    for (i, rule) in paths.iter().enumerate() {
        validate_path_rule(rule, &path.child("nonResourceRules").index(i), errors);
    }
}

fn validate_subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let fields = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "kind");
    let Some((_, own)) = fields.iter().find(|(known, _)| *known == kind) else {
        let kinds = ["Group", "ServiceAccount", "User"];
        errors.push(FieldError::not_supported(path.child("kind"), kind, &kinds));
        return;
    };
    let given = &subject[own];
    let own_path = path.child(own);
    if given.is_null() {
        let rule = format!("{own} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(own_path, rule));
    } else {
        let name = text(given, "name");
        if name.is_empty() {
            errors.push(FieldError::required(own_path.child("name"), ""));
        } else if kind == "ServiceAccount" && name != "*" {
            add_invalid(errors, &own_path.child("name"), name, dns_subdomain(name));
        }
        if kind == "ServiceAccount" {
            let (namespace, path) = (text(given, "namespace"), own_path.child("namespace"));
            if namespace.is_empty() {
                errors.push(FieldError::required(path, "must specify namespace for service account"));
            } else {
                add_invalid(errors, &path, namespace, dns_label(namespace));
            }
        }
    }
    for (other, field) in fields.iter().filter(|(other, _)| *other != kind) {
        if !subject[field].is_null() {
            let rule = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.push(FieldError::forbidden(path.child(field), rule));
        }
    }
}

/// Validates a list of a rule: not empty, and a wildcard only by itself. Returns its members if there is no wildcard.
fn validate_members<'a>(
    rule: &'a Value,
    (field, what): (&'static str, &str),
    missing: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Vec<&'a str> {
    let members: Vec<&str> = texts(rule, field).collect();
    if members.is_empty() {
        errors.push(FieldError::required(path.child(field), missing));
    }
    if !members.contains(&"*") {
        return members;
    }
    if members.len() > 1 {
        let rule = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(path.child(field), shown_as_json(&members), rule));
    }
    Vec::new()
}

fn validate_verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let missing = "verbs must contain at least one value";
    let verbs = validate_members(rule, ("verbs", "verbs"), missing, path, errors);
    if !verbs.iter().all(|verb| VERBS.contains(verb)) {
        errors.push(FieldError::not_supported(path.child("verbs"), shown_as_json(&verbs), &VERBS));
    }
}

fn validate_resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let missing = "resource rules must supply at least one api group";
    validate_members(rule, ("apiGroups", "api groups"), missing, path, errors);
    let missing = "resource rules must supply at least one resource";
    validate_members(rule, ("resources", "resources"), missing, path, errors);
    let is_without = list(rule, "namespaces").is_empty();
    if is_without && boolean(rule, "clusterScope") {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    let namespaces = validate_members(rule, ("namespaces", "namespaces"), missing, path, errors);
    for (i, namespace) in namespaces.into_iter().enumerate() {
        let messages = dns_label(namespace).into_iter();
        let member = |message| format!("each member of this list must be '*' or a DNS-1123 label; {message}");
        add_invalid(errors, &path.child("namespaces").index(i), namespace, messages.map(member).collect());
    }
}

fn validate_path_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let missing = "nonResourceURLs must contain at least one value";
    let field = ("nonResourceURLs", "non-resource URLs");
    for (i, url) in validate_members(rule, field, missing, path, errors).into_iter().enumerate() {
        if let Some(rule) = url_rule(url) {
            errors.push(FieldError::invalid(path.child("nonResourceURLs").index(i), url, rule));
        }
    }
}

/// The rule that a non-resource URL breaks.
fn url_rule(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        url if !url.starts_with('/') => Some("must start with slash"),
        url if url.contains(' ') => Some("must not contain white-space"),
        url if url.contains("//") => Some("must not contain double slash"),
        url if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("PriorityLevel", "the level that its requests are of"),
        Column::text("MatchingPrecedence", "which schema is tried first; the lower goes first"),
        Column::text("DistinguisherMethod", "how the flows of its requests are distinguished"),
        AGE,
        Column::text("MissingPL", "whether its level is not there"),
    ],
    flow_schema,
);

fn flow_schema(schema: View<'_>) -> Value {
    let dangling = schema.condition("Dangling").map_or("?", |condition| condition.text("/status"));
    // A precedence of 0 means the default.
    let precedence = match schema.number("/spec/matchingPrecedence") {
        0 => 1000,
        given => given,
    };
    json!([
        schema.name(),
        schema.text("/spec/priorityLevelConfiguration/name"),
        precedence,
        schema.text_or("/spec/distinguisherMethod/type", "<none>"),
        schema.age(),
        dangling,
    ])
}
