//! Which webhooks a write concerns, and as what it is put to them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{Attributes, Operation, condition, stored};
use super::configuration::{Hook, Rule, Scope};
use super::review;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::meta;

/// As what a write is put to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    /// The version of the kind in the address, if a rule names another than the request does.
    pub(super) version: Option<String>,
}

/// Whether a write concerns a webhook.
pub(super) fn invocation(
    hook: &Hook,
    attributes: &Attributes<'_>,
    new: &Value,
) -> Result<Option<Invocation>, ApiError> {
    let Some(invocation) = by_rules(hook, attributes) else { return Ok(None) };
    if !in_namespace(hook, attributes, new)? || !is_object(hook, attributes, new) {
        return Ok(None);
    }
    let concerned = match &hook.conditions {
        Ok(conditions) if conditions.is_empty() => return Ok(Some(invocation)),
        Ok(conditions) => condition::hold(conditions.iter(), attributes.old, new, || {
            review::request("", &invocation, attributes, &Value::Null)["request"].take()
        }),
        Err(why) => Err(why.clone()),
    };
    match concerned {
        Ok(concerned) => Ok(concerned.then_some(invocation)),
        Err(_) if hook.ignores_failure => Ok(None),
        Err(why) => Err(attributes.forbidden(&why)),
    }
}

fn by_rules(hook: &Hook, attributes: &Attributes<'_>) -> Option<Invocation> {
    let row = attributes.row;
    if hook.rules.iter().any(|rule| rule.matches(attributes, row.version())) {
        return Some(Invocation { version: None });
    }
    if !hook.equivalent {
        return None;
    }
    let kinds = attributes.server.kinds();
    let versions: Vec<&str> = kinds
        .iter()
        .filter(|other| (other.group(), other.plural()) == (row.group(), row.plural()))
        .map(Row::version)
        .filter(|version| *version != row.version())
        .collect();
    let of_rule = |rule: &Rule| versions.iter().find(|version| rule.matches(attributes, version));
    let version = hook.rules.iter().find_map(of_rule)?;
    Some(Invocation { version: Some((*version).to_owned()) })
}

impl Rule {
    fn matches(&self, attributes: &Attributes<'_>, version: &str) -> bool {
        let names = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let scoped = match self.scope {
            Scope::All => true,
            Scope::Namespaced => attributes.row.is_namespaced(),
            Scope::Cluster => !attributes.row.is_namespaced(),
        };
        let resource = |item: &String| {
            let (resource, sub) = item.split_once('/').unwrap_or((item, ""));
            (resource == "*" || resource == attributes.row.plural())
                && (sub == "*" || sub == attributes.subresource.unwrap_or_default())
        };
        scoped
            && names(&self.operations, attributes.operation.name())
            && names(&self.groups, attributes.row.group())
            && names(&self.versions, version)
            && self.resources.iter().any(resource)
    }
}

/// Whether the labels of the namespace are those that a webhook wants. What lives in no namespace is never left out.
fn in_namespace(hook: &Hook, attributes: &Attributes<'_>, new: &Value) -> Result<bool, ApiError> {
    let Some(namespace) = attributes.namespace else { return Ok(true) };
    if hook.namespaces.is_everything() {
        return Ok(true);
    }
    if attributes.is("", "namespaces") && attributes.operation != Operation::Delete {
        return Ok(hook.namespaces.matches(&labels(new)));
    }
    let found = stored::one(attributes.server, ("", "namespaces"), None, namespace)?;
    let found = found.ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
    Ok(hook.namespaces.matches(&labels(&found)))
}

/// Whether the labels of the object, as it is or as it was, are those that a webhook wants.
fn is_object(hook: &Hook, attributes: &Attributes<'_>, new: &Value) -> bool {
    let wanted = |object: &Value| !object.is_null() && hook.objects.matches(&labels(object));
    hook.objects.is_everything() || wanted(new) || wanted(attributes.old)
}

fn labels(object: &Value) -> BTreeMap<&str, &str> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

/// The name of the object that a write is about, as it will be.
pub(super) fn name<'a>(attributes: &Attributes<'a>, new: &'a Value) -> &'a str {
    match attributes.name {
        "" => meta(new, "name"),
        name => name,
    }
}
