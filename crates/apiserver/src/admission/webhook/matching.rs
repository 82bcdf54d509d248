//! Which webhooks a write concerns, and as what it is put to them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::{Attributes, Operation, condition, stored};
use super::configuration::{Hook, Rule, Scope};
use super::review;
use crate::conversion::Shown;
use crate::defaults;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::meta;

/// The version in which a webhook gets a write: that of the request, or an equivalent one that a rule names.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    pub(super) row: Row,
}

impl Invocation {
    /// A stored object in this version.
    pub(super) fn convert<'a>(&self, attributes: &Attributes<'_>, object: &'a Value) -> Cow<'a, Value> {
        if !self.converts(attributes) || !object.is_object() {
            return Cow::Borrowed(object);
        }
        if let Some(shown) = self.shown() {
            return Cow::Owned(shown.serve(object.clone()));
        }
        let mut object = object.clone();
        object["apiVersion"] = json!(self.row.api_version());
        Cow::Owned(object)
    }

    /// An object in this version as it is stored.
    pub(super) fn convert_back(&self, attributes: &Attributes<'_>, mut object: Value) -> Value {
        if !self.converts(attributes) || !object.is_object() {
            return object;
        }
        if let Some(shown) = self.shown() {
            let row = &self.row;
            defaults::apply(row.group(), row.version(), row.kind(), &mut object, attributes.server.rules());
            return shown.store(attributes.row, object);
        }
        object["apiVersion"] = json!(attributes.row.api_version());
        object
    }

    /// Whether objects are not in the version that is stored. What is written below an object has one version.
    fn converts(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_whole() && !self.row.is_same_resource(attributes.row)
    }

    fn shown(&self) -> Option<Shown> {
        let stored_as = self.row.stored_as.as_ref()?;
        Some(Shown::new(self.row.clone(), stored_as.conversion))
    }
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
        Ok(conditions) => {
            let old = invocation.convert(attributes, attributes.old);
            let new = invocation.convert(attributes, new);
            condition::hold(conditions.iter(), &old, &new, || {
                review::request("", &invocation, attributes, &Value::Null)["request"].take()
            })
        }
        Err(why) => Err(why.clone()),
    };
    match concerned {
        Ok(concerned) => Ok(concerned.then_some(invocation)),
        Err(_) if hook.ignores_failure => Ok(None),
        Err(why) => Err(attributes.forbidden(&why)),
    }
}

fn by_rules(hook: &Hook, attributes: &Attributes<'_>) -> Option<Invocation> {
    let (stored, requested) = (attributes.row, attributes.request_row());
    if hook.rules.iter().any(|rule| rule.matches(attributes, requested)) {
        return Some(Invocation { row: requested.clone() });
    }
    if !hook.equivalent {
        return None;
    }
    let kinds = attributes.server.kinds();
    let equivalent: Vec<&Row> = kinds
        .iter()
        .filter(|other| other.is_stored_with(stored) && !other.is_same_resource(requested))
        .collect();
    let of_rule = |rule: &Rule| equivalent.iter().find(|row| rule.matches(attributes, row));
    let row = hook.rules.iter().find_map(of_rule)?;
    Some(Invocation { row: (*row).clone() })
}

impl Rule {
    fn matches(&self, attributes: &Attributes<'_>, row: &Row) -> bool {
        let names = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let scoped = match self.scope {
            Scope::All => true,
            Scope::Namespaced => row.is_namespaced(),
            Scope::Cluster => !row.is_namespaced(),
        };
        let resource = |item: &String| {
            let (resource, sub) = item.split_once('/').unwrap_or((item, ""));
            (resource == "*" || resource == row.plural())
                && (sub == "*" || sub == attributes.subresource.unwrap_or_default())
        };
        scoped
            && names(&self.operations, attributes.operation.name())
            && names(&self.groups, row.group())
            && names(&self.versions, row.version())
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
