//! Which writes match a webhook or policy, and in which version it receives them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Attributes, Operation};
use crate::custom::{between_versions, has_converter};
use crate::error::ApiError;
use crate::kinds::Row;
use crate::kinds::conversion::ServedVersion;
use crate::object::meta;
use crate::selector::LabelSelector;
use crate::stored;

/// The match criteria: `rules` and selectors of a webhook, `matchConstraints` of a policy, `matchResources` of a
/// binding.
#[derive(Debug)]
pub(super) struct Criteria {
    /// None matches all writes.
    rules: Option<Vec<Rule>>,
    /// `excludeResourceRules`.
    excluded: Vec<Rule>,
    /// Whether the rules match equivalent versions of a resource (`matchPolicy: Equivalent`).
    equivalent: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

/// A rule (`RuleWithOperations`): operations on resources.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// `pods`, `pods/resize`, `*/scale`, `*/*`.
    resources: Vec<String>,
    scope: Scope,
    /// The names of objects; empty means all.
    names: Vec<String>,
}

/// The scope of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
}

/// The version in which a webhook or policy receives a write: that of the request, or an equivalent one of a rule.
///
/// Objects of a kind with a conversion webhook are converted beforehand, by [`Invocation::converted`].
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    pub(super) row: Row,
    /// The objects of the write, if a conversion webhook converted them.
    converted: Option<Arc<Converted>>,
}

/// The objects of a write in another version.
#[derive(Debug)]
struct Converted {
    object: Value,
    old: Value,
}

/// A cache of the objects of a write as conversion webhooks converted them. It is cleared when the object changes.
#[derive(Debug, Default)]
pub(super) struct Versions(Vec<(String, Arc<Converted>)>);

impl Invocation {
    /// The invocation with the objects of the write, where a conversion webhook has to convert them.
    pub(super) async fn converted(
        mut self,
        attributes: &Attributes<'_>,
        new: &Value,
        versions: &mut Versions,
    ) -> Result<Self, ApiError> {
        if !self.converts(attributes) || !has_converter(attributes.row) {
            return Ok(self);
        }
        let version = self.row.api_version();
        if let Some((_, known)) = versions.0.iter().find(|(own, _)| *own == version) {
            self.converted = Some(Arc::clone(known));
            return Ok(self);
        }
        // A write that called webhooks is retried less often on conflicts.
        attributes.called_webhooks.store(true, Ordering::Relaxed);
        let both = [new, attributes.old].into_iter().filter(|object| object.is_object()).cloned().collect();
        let both = between_versions(attributes.row, &self.row, both).await?;
        let mut both = both.into_iter();
        let mut next =
            |given: &Value| if given.is_object() { both.next().unwrap_or_default() } else { Value::Null };
        let converted = Arc::new(Converted { object: next(new), old: next(attributes.old) });
        versions.0.push((version, Arc::clone(&converted)));
        self.converted = Some(converted);
        Ok(self)
    }

    /// The object of the write in this version.
    pub(super) fn object<'a>(&'a self, attributes: &Attributes<'_>, new: &'a Value) -> Cow<'a, Value> {
        match &self.converted {
            Some(converted) => Cow::Borrowed(&converted.object),
            None => self.convert(attributes, new),
        }
    }

    /// The stored object in this version.
    pub(super) fn old_object<'a>(&'a self, attributes: &Attributes<'a>) -> Cow<'a, Value> {
        match &self.converted {
            Some(converted) => Cow::Borrowed(&converted.old),
            None => self.convert(attributes, attributes.old),
        }
    }

    /// A stored object in this version.
    fn convert<'a>(&self, attributes: &Attributes<'_>, object: &'a Value) -> Cow<'a, Value> {
        if !self.converts(attributes) || !object.is_object() {
            return Cow::Borrowed(object);
        }
        if let Some(shown) = self.served_version() {
            return Cow::Owned(shown.serve(object.clone()));
        }
        let mut object = object.clone();
        object["apiVersion"] = json!(self.row.api_version());
        Cow::Owned(object)
    }

    /// An object in this version as it is stored.
    pub(super) async fn convert_back(
        &self,
        attributes: &Attributes<'_>,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        if !self.converts(attributes) || !object.is_object() {
            return Ok(object);
        }
        if let Some(shown) = self.served_version() {
            self.row.apply_defaults(&mut object, attributes.cluster.rules());
            return Ok(shown.store(attributes.row, object));
        }
        if let Some(custom) = self.row.custom().filter(|_| has_converter(attributes.row)) {
            custom.version.complete(&mut object);
            let back = between_versions(&self.row, attributes.row, vec![object]).await;
            let back = back.map_err(|error| ApiError::internal(error.message))?;
            return Ok(back.into_iter().next().unwrap_or_default());
        }
        object["apiVersion"] = json!(attributes.row.api_version());
        Ok(object)
    }

    /// Whether the objects need conversion from the storage version. Subresource objects have one version.
    fn converts(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_whole() && !self.row.is_same_resource(attributes.row)
    }

    fn served_version(&self) -> Option<ServedVersion> {
        let stored_as = self.row.stored_as.as_ref()?;
        Some(ServedVersion::new(self.row.clone(), stored_as.conversion))
    }
}

impl Criteria {
    /// The criteria of a webhook, which without rules matches nothing.
    pub(super) fn of_webhook(webhook: &Value) -> Self {
        Self::read(webhook, Some(rules(&webhook["rules"])))
    }

    /// The criteria of a policy or binding, which without rules matches everything.
    pub(super) fn of_resources(resources: &Value) -> Self {
        let rules = rules(&resources["resourceRules"]);
        Self::read(resources, (!rules.is_empty()).then_some(rules))
    }

    fn read(given: &Value, own: Option<Vec<Rule>>) -> Self {
        Self {
            rules: own,
            excluded: rules(&given["excludeResourceRules"]),
            equivalent: given["matchPolicy"] != "Exact",
            namespaces: LabelSelector::of(&given["namespaceSelector"]),
            objects: LabelSelector::of(&given["objectSelector"]),
        }
    }

    /// The resources in the rules, without subresources; none if a rule has a wildcard.
    pub(super) fn resources(&self) -> Option<Vec<&str>> {
        let items = self.rules.as_ref()?.iter().flat_map(|rule| &rule.resources);
        let plurals = items.map(|item| item.split_once('/').map_or(item.as_str(), |(plural, _)| plural));
        let plurals: Vec<&str> = plurals.collect();
        (!plurals.contains(&"*")).then_some(plurals)
    }

    /// The version in which the webhook or policy receives a write, if the write matches.
    pub(super) fn invocation(
        &self,
        attributes: &Attributes<'_>,
        new: &Value,
    ) -> Result<Option<Invocation>, ApiError> {
        if self.find(&self.excluded, attributes, new).is_some() {
            return Ok(None);
        }
        let row = match &self.rules {
            Some(rules) => self.find(rules, attributes, new),
            None => Some(attributes.request_row().clone()),
        };
        let Some(row) = row else { return Ok(None) };
        let matches = self.selects_object(attributes, new) && self.selects_namespace(attributes, new)?;
        Ok(matches.then_some(Invocation { row, converted: None }))
    }

    /// The version of the resource that one of the rules matches.
    fn find(&self, rules: &[Rule], attributes: &Attributes<'_>, new: &Value) -> Option<Row> {
        if rules.is_empty() {
            return None;
        }
        let (stored, requested) = (attributes.row, attributes.request_row());
        if rules.iter().any(|rule| rule.matches(attributes, new, requested)) {
            return Some(requested.clone());
        }
        if !self.equivalent {
            return None;
        }
        let kinds = attributes.cluster.kinds();
        let equivalent: Vec<&Row> = kinds
            .iter()
            .filter(|other| other.is_stored_with(stored) && !other.is_same_resource(requested))
            .collect();
        let of_rule = |rule: &Rule| equivalent.iter().find(|row| rule.matches(attributes, new, row));
        rules.iter().find_map(of_rule).map(|row| (*row).clone())
    }

    /// Whether `namespaceSelector` matches. It matches all cluster-scoped objects other than namespaces.
    fn selects_namespace(&self, attributes: &Attributes<'_>, new: &Value) -> Result<bool, ApiError> {
        let Some(namespace) = attributes.namespace else { return Ok(true) };
        if self.namespaces.is_everything() {
            return Ok(true);
        }
        if attributes.is("", "namespaces") && attributes.operation != Operation::Delete {
            return Ok(self.namespaces.matches(&labels(new)));
        }
        let found = stored::one(attributes.cluster.store(), ("", "namespaces"), None, namespace)?;
        let found = found.ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
        Ok(self.namespaces.matches(&labels(&found)))
    }

    /// Whether `objectSelector` matches the new or the old object.
    fn selects_object(&self, attributes: &Attributes<'_>, new: &Value) -> bool {
        let wanted = |object: &Value| !object.is_null() && self.objects.matches(&labels(object));
        self.objects.is_everything() || wanted(new) || wanted(attributes.old)
    }
}

impl Rule {
    fn matches(&self, attributes: &Attributes<'_>, new: &Value, row: &Row) -> bool {
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
            && (self.names.is_empty() || self.names.iter().any(|own| own == name(attributes, new)))
    }
}

fn rules(list: &Value) -> Vec<Rule> {
    list.as_array().into_iter().flatten().map(rule).collect()
}

fn rule(rule: &Value) -> Rule {
    Rule {
        operations: texts(&rule["operations"]),
        groups: texts(&rule["apiGroups"]),
        versions: texts(&rule["apiVersions"]),
        resources: texts(&rule["resources"]),
        scope: match rule["scope"].as_str() {
            Some("Namespaced") => Scope::Namespaced,
            Some("Cluster") => Scope::Cluster,
            _ => Scope::All,
        },
        names: texts(&rule["resourceNames"]),
    }
}

/// A list of strings.
pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The labels of an object.
pub(super) fn labels(object: &Value) -> BTreeMap<&str, &str> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

/// The name of the object after the write.
pub(super) fn name<'a>(attributes: &Attributes<'a>, new: &'a Value) -> &'a str {
    match attributes.name {
        "" => meta(new, "name"),
        name => name,
    }
}
