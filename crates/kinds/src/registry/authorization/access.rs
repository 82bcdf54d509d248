//! What the reviews of access share.

use plumb_validation::field::{BadValue, FieldError};
use serde_json::{Value, json};

use plumb_apiserver::authz::{Ask, Authorizer, Objects};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::Row;
use plumb_apiserver::selector::{FieldSelector, LabelSelector, any_field};
use plumb_apiserver::user::User;
use plumb_apiserver::validation::json::{entries, list, text, texts};

/// Rejects a review with errors. Upstream's errors have no kind here, only the group.
pub(super) fn reject(row: &Row, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(row.group(), "", "", errors)) }
}

/// The user in the spec of a review.
pub(super) fn user_of(spec: &Value) -> User {
    let extra = entries(spec, "extra").map(|(key, _)| (key.clone(), strings(&spec["extra"], key))).collect();
    User::exactly(text(spec, "user"), text(spec, "uid"), strings(spec, "groups")).with_extra(extra)
}

fn strings(object: &Value, field: &str) -> Vec<String> {
    texts(object, field).map(str::to_owned).collect()
}

/// Sets the status of a review: whether the user may do what the review asks about, and why.
pub(super) fn decide(authorizer: &Authorizer, user: &User, review: &mut Value) {
    let spec = &review["spec"];
    let about = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let fields = Selector::fields(&about["fieldSelector"]);
    let labels = Selector::labels(&about["labelSelector"]);
    let ask = if about.is_object() {
        let objects = Objects {
            group: text(about, "group"),
            resource: text(about, "resource"),
            subresource: text(about, "subresource"),
            namespace: text(about, "namespace"),
            name: text(about, "name"),
            on_node: fields.on_node.as_deref(),
        };
        Ask::about_objects(user, text(about, "verb"), objects)
    } else {
        Ask::about_path(user, text(path, "verb"), text(path, "path"))
    };
    let decision = authorizer.decide(&ask);
    let mut status = json!({ "allowed": decision.is_allowed() });
    let reason = decision.reason();
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    let errors: Vec<String> = [("fieldSelector", fields.trouble), ("labelSelector", labels.trouble)]
        .into_iter()
        .filter_map(|(name, trouble)| Some((name, trouble?)))
        .map(|(name, how)| format!("spec.resourceAttributes.{name} {how} due to parse error"))
        .collect();
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors.join("; "));
    }
    review["status"] = status;
}

/// A selector of a review, for authorization.
#[derive(Default)]
struct Selector {
    on_node: Option<String>,
    /// The errors of requirements that are invalid.
    trouble: Option<&'static str>,
}

impl Selector {
    fn fields(selector: &Value) -> Self {
        let raw = text(selector, "rawSelector");
        if !raw.is_empty() {
            return match FieldSelector::parse(raw, any_field) {
                Ok(parsed) => {
                    Self { on_node: parsed.exact("spec.nodeName").map(str::to_owned), trouble: None }
                }
                Err(_) => Self { on_node: None, trouble: Some("ignored") },
            };
        }
        let requirements = list(selector, "requirements");
        let is_good = |requirement: &&Value| {
            matches!(text(requirement, "operator"), "In" | "NotIn")
                && texts(requirement, "values").count() == 1
        };
        let good: Vec<&Value> = requirements.iter().filter(is_good).collect();
        let on_node = good
            .iter()
            .find(|one| text(one, "operator") == "In" && text(one, "key") == "spec.nodeName")
            .and_then(|one| texts(one, "values").next().map(str::to_owned));
        Self { on_node, trouble: trouble(requirements.len(), good.len()) }
    }

    fn labels(selector: &Value) -> Self {
        let raw = text(selector, "rawSelector");
        if !raw.is_empty() {
            let trouble = LabelSelector::parse(raw).is_err().then_some("ignored");
            return Self { on_node: None, trouble };
        }
        let requirements = list(selector, "requirements");
        let known = |requirement: &&Value| {
            matches!(text(requirement, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
        };
        let good = requirements.iter().filter(known).count();
        Self { on_node: None, trouble: trouble(requirements.len(), good) }
    }
}

fn trouble(all: usize, good: usize) -> Option<&'static str> {
    match (all, good) {
        (all, good) if all == good => None,
        (_, 0) => Some("ignored"),
        _ => Some("partially ignored"),
    }
}

/// The error of a review whose metadata has other fields than the server sets.
pub(super) fn metadata_error(review: &Value, why: &str) -> Option<FieldError> {
    let fields = review["metadata"].as_object()?;
    let is_empty = fields
        .iter()
        .all(|(key, value)| matches!(key.as_str(), "managedFields" | "creationTimestamp") || value == "");
    (!is_empty).then(|| FieldError::invalid("metadata", BadValue::Bare(review["metadata"].to_string()), why))
}

/// The errors of the spec of a review that names a user.
pub(super) fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = attributes_errors(spec);
    if text(spec, "user").is_empty() && texts(spec, "groups").next().is_none() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", why));
    }
    errors.extend(selector_errors(&spec["resourceAttributes"]));
    errors
}

/// A review has either resource or non-resource attributes.
pub(super) fn attributes_errors(spec: &Value) -> Vec<FieldError> {
    let path = &spec["nonResourceAttributes"];
    match (spec["resourceAttributes"].is_object(), path.is_object()) {
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            vec![FieldError::invalid("spec.nonResourceAttributes", shown_path(path), why)]
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![FieldError::invalid("spec.resourceAttributes", BadValue::Bare("null".to_owned()), why)]
        }
        _ => Vec::new(),
    }
}

/// Non-resource attributes as error messages show them: with the names of kube-apiserver's internal type.
pub(super) fn shown_path(attributes: &Value) -> BadValue {
    let field = |name: &str| json!(text(attributes, name)).to_string();
    BadValue::Bare(format!(r#"{{"Path":{},"Verb":{}}}"#, field("path"), field("verb")))
}

/// The errors of the selectors of a review.
pub(super) fn selector_errors(about: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in ["fieldSelector", "labelSelector"] {
        let selector = &about[name];
        if !selector.is_object() {
            continue;
        }
        let path = format!("spec.resourceAttributes.{name}");
        let raw = text(selector, "rawSelector");
        let requirements = !list(selector, "requirements").is_empty();
        if !raw.is_empty() && requirements {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, why));
        }
        if raw.is_empty() && !requirements {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), &why));
        }
    }
    errors
}
