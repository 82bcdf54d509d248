//! `SubjectAccessReview`, `LocalSubjectAccessReview` and `SelfSubjectAccessReview`.

use plumb_validation::field::{BadValue, FieldError};
use serde_json::{Value, json};

use super::{text, texts};
use crate::authz::{Ask, Authorizer, Objects};
use crate::call::Call;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::meta;
use crate::selector::{FieldSelector, LabelSelector, any_field};
use crate::user::User;

/// `SubjectAccessReview`.
pub(super) fn subject(call: &Call, mut review: Value) -> Result<Value, ApiError> {
    let mut errors = spec_errors(&review["spec"]);
    errors.extend(metadata_error(&review, "must be empty"));
    judge(&call.row, &errors)?;
    let user = somebody(&review["spec"]);
    answer(call.cluster().authorizer(), &user, &mut review);
    Ok(review)
}

/// `LocalSubjectAccessReview`.
pub(super) fn local(call: &Call, mut review: Value) -> Result<Value, ApiError> {
    let namespace = call.namespace().unwrap_or_default().to_owned();
    let given = meta(&review, "namespace");
    if !given.is_empty() && given != namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(why));
    }
    review["metadata"]["namespace"] = json!(namespace);
    let spec = &review["spec"];
    let mut errors = spec_errors(spec);
    let mut rest = review.clone();
    rest["metadata"].as_object_mut().map(|fields| fields.remove("namespace"));
    errors.extend(metadata_error(&rest, "must be empty except for namespace"));
    let about = &spec["resourceAttributes"];
    if about.is_object() && text(about, "namespace") != namespace {
        let path = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(path, text(about, "namespace"), "must match metadata.namespace"));
    }
    if spec["nonResourceAttributes"].is_object() {
        let shown = shown_path(&spec["nonResourceAttributes"]);
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", shown, why));
    }
    judge(&call.row, &errors)?;
    let user = somebody(spec);
    answer(call.cluster().authorizer(), &user, &mut review);
    Ok(review)
}

/// `SelfSubjectAccessReview`.
pub(super) fn own(call: &Call, mut review: Value) -> Result<Value, ApiError> {
    let mut errors = attributes_errors(&review["spec"]);
    errors.extend(selector_errors(&review["spec"]["resourceAttributes"]));
    errors.extend(metadata_error(&review, "must be empty"));
    judge(&call.row, &errors)?;
    answer(call.cluster().authorizer(), &call.user, &mut review);
    Ok(review)
}

/// Upstream's errors have no kind here, only the group.
fn judge(row: &Row, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(row.group(), "", "", errors)) }
}

fn somebody(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(key, values)| (key.clone(), texts(values))).collect();
    User::exactly(text(spec, "user"), text(spec, "uid"), texts(&spec["groups"])).with_extra(extra)
}

fn answer(authorizer: &Authorizer, user: &User, review: &mut Value) {
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
        let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_good = |requirement: &&Value| {
            matches!(text(requirement, "operator"), "In" | "NotIn")
                && texts(&requirement["values"]).len() == 1
        };
        let good: Vec<&Value> = requirements.iter().filter(is_good).collect();
        let on_node = good
            .iter()
            .find(|one| text(one, "operator") == "In" && text(one, "key") == "spec.nodeName")
            .and_then(|one| texts(&one["values"]).into_iter().next());
        Self { on_node, trouble: trouble(requirements.len(), good.len()) }
    }

    fn labels(selector: &Value) -> Self {
        let raw = text(selector, "rawSelector");
        if !raw.is_empty() {
            let trouble = LabelSelector::parse(raw).is_err().then_some("ignored");
            return Self { on_node: None, trouble };
        }
        let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
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

fn metadata_error(review: &Value, why: &str) -> Option<FieldError> {
    let fields = review["metadata"].as_object()?;
    let is_empty = fields
        .iter()
        .all(|(key, value)| matches!(key.as_str(), "managedFields" | "creationTimestamp") || value == "");
    (!is_empty).then(|| FieldError::invalid("metadata", BadValue::Bare(review["metadata"].to_string()), why))
}

fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = attributes_errors(spec);
    if text(spec, "user").is_empty() && texts(&spec["groups"]).is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", why));
    }
    errors.extend(selector_errors(&spec["resourceAttributes"]));
    errors
}

/// A review has either resource or non-resource attributes.
fn attributes_errors(spec: &Value) -> Vec<FieldError> {
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

/// With the names of kube-apiserver's internal type.
fn shown_path(attributes: &Value) -> BadValue {
    let field = |name: &str| json!(text(attributes, name)).to_string();
    BadValue::Bare(format!(r#"{{"Path":{},"Verb":{}}}"#, field("path"), field("verb")))
}

fn selector_errors(about: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in ["fieldSelector", "labelSelector"] {
        let selector = &about[name];
        if !selector.is_object() {
            continue;
        }
        let path = format!("spec.resourceAttributes.{name}");
        let raw = text(selector, "rawSelector");
        let requirements = selector["requirements"].as_array().is_some_and(|list| !list.is_empty());
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
