//! The kinds that cases are about: a valid object of each, and what may be laid over it.

use std::sync::LazyLock;

use plumb_apischema::Schema;
use plumb_apischema::schema::{Scope, StructId};
use serde::Deserialize;
use serde_json::Value;

/// A kind, and what its objects are made of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Kind {
    /// Its address: `v1/pods`, `apps/v1/deployments`.
    #[serde(rename = "kind")]
    pub(super) address: String,
    /// How often it is chosen, compared with the others.
    pub(super) weight: usize,
    /// A valid object, without a name.
    pub(super) base: Value,
    /// What may be laid over it. Each is valid by itself.
    #[serde(default)]
    pub(super) with: Vec<Value>,
    /// What an update may bring: of kinds whose fields mostly don't change, those that do.
    #[serde(default)]
    pub(super) changes: Vec<Value>,
    /// What may be laid over its status; none if it has no status of its own.
    #[serde(default)]
    pub(super) status: Vec<Value>,
    /// Where a pod's template is, as a JSON pointer.
    #[serde(default)]
    pub(super) template: Option<String>,
}

/// The group of the kind that is defined for the cases.
const DEFINED: &str = "differential.example.com";

/// What may be laid over every object: labels, annotations, owners.
static COMMON: LazyLock<Vec<Value>> = LazyLock::new(|| read(include_str!("../../differential/common.yaml")));

/// Every kind, pods first.
static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut kinds = vec![read(include_str!("../../differential/pods.yaml"))];
    kinds.extend(read::<Vec<Kind>>(include_str!("../../differential/others.yaml")));
    kinds.extend(read::<Vec<Kind>>(include_str!("../../differential/limited.yaml")));
    kinds
});

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    #[expect(clippy::expect_used, reason = "the text is embedded, and a test reads it")]
    serde_saphyr::from_str(text).expect("the embedded tables are sound")
}

/// Every kind, pods first.
pub(super) fn all() -> &'static [Kind] {
    &KINDS
}

/// What may be laid over every object.
pub(super) fn common() -> &'static [Value] {
    &COMMON
}

impl Kind {
    /// What is known of it.
    pub(super) fn resource(&self) -> Option<Resource> {
        resource(&self.address)
    }
}

/// What is known of a kind.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// Its version, with the group.
    pub(super) api_version: String,
    /// Its name.
    pub(super) kind: String,
    /// Its name in addresses.
    pub(super) plural: String,
    /// Whether its objects are in namespaces.
    pub(super) namespaced: bool,
    /// The fields of its objects, if it is one of the table.
    pub(super) body: Option<StructId>,
    /// The parts that can be written as if they were objects.
    pub(super) parts: Vec<&'static str>,
}

/// What is known of a kind, by its address. Where a case takes place can stand before it: `limited:v1/pods`.
pub(super) fn resource(kind: &str) -> Option<Resource> {
    let kind = kind.rsplit(':').next()?;
    let mut parts = kind.rsplitn(3, '/');
    let (plural, version) = (parts.next()?, parts.next()?);
    let group = parts.next().unwrap_or_default();
    if group == DEFINED {
        return Some(Resource {
            api_version: format!("{group}/{version}"),
            kind: "Widget".to_owned(),
            plural: plural.to_owned(),
            namespaced: true,
            body: None,
            parts: vec!["status"],
        });
    }
    let found = Schema::builtin().resource(group, version, plural)?;
    let written = |name: &&str| ["status", "resize"].contains(name);
    let own = found.subresources.iter().filter(|part| part.kind == found.kind).map(|part| part.name);
    Some(Resource {
        api_version: found.api_version(),
        kind: found.kind.to_owned(),
        plural: found.plural.to_owned(),
        namespaced: found.scope == Scope::Namespaced,
        body: Some(found.body),
        parts: own.filter(written).collect(),
    })
}

/// Where objects of a kind are.
pub(super) fn collection(kind: &str, namespace: &str) -> Option<String> {
    let resource = resource(kind)?;
    let namespace = match kind.split_once(':') {
        Some((place, _)) => format!("{namespace}-{place}"),
        None => namespace.to_owned(),
    };
    let Resource { api_version, plural, .. } = &resource;
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    Some(if resource.namespaced {
        format!("{root}/{api_version}/namespaces/{namespace}/{plural}")
    } else {
        format!("{root}/{api_version}/{plural}")
    })
}

/// Lays one value over another: objects are merged, elements of lists are merged by their name or else added.
pub(super) fn lay_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                match under.get_mut(key) {
                    Some(under) => lay_over(under, value),
                    None => {
                        under.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(under), Value::Array(over)) => {
            for element in over {
                let name = element.get("name");
                let same = under.iter_mut().find(|other| name.is_some() && other.get("name") == name);
                match same {
                    Some(under) => lay_over(under, element),
                    None => under.push(element.clone()),
                }
            }
        }
        (under, over) => *under = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_and_the_tables_can_be_read() {
        assert!(!common().is_empty());
        for kind in all() {
            assert!(kind.resource().is_some(), "{}", kind.address);
            assert!(kind.weight > 0, "{}", kind.address);
        }
    }
}
