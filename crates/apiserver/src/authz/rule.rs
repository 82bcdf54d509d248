//! A rule of a role.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{About, Ask, Objects};

/// The wildcard.
const ALL: &str = "*";

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// The verbs.
    pub verbs: Vec<String>,
    /// The API groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources. A subresource is a resource of its own: `pods/resize`, `*/scale`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names of objects; all if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// The non-resource paths.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Decodes the rules of a role. A rule that cannot be decoded grants no right.
    pub(crate) fn all_of(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array);
        rules.into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let list = |field: &str| {
            let texts = rule.get(field).and_then(Value::as_array);
            texts.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// Whether the rule allows a request.
    pub(crate) fn allows(&self, ask: &Ask<'_>) -> bool {
        has_or_all(&self.verbs, ask.verb)
            && match &ask.about {
                About::Path(path) => self.non_resource_urls.iter().any(|url| covers_path(url, path)),
                About::Objects(objects) => self.allows_objects(objects),
            }
    }

    fn allows_objects(&self, objects: &Objects<'_>) -> bool {
        has_or_all(&self.api_groups, objects.group)
            && self.resources.iter().any(|rule| matches_resource(rule, objects))
            && (self.resource_names.is_empty() || has(&self.resource_names, objects.name))
    }
}

pub(super) fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|own| own == wanted)
}

pub(super) fn has_or_all(set: &[String], wanted: &str) -> bool {
    set.iter().any(|own| own == ALL || own == wanted)
}

/// `*` matches all resources, `pods/resize` itself, `*/scale` the scale subresource of all resources.
///
/// `pods/*` is no pattern, as upstream.
fn matches_resource(rule: &str, objects: &Objects<'_>) -> bool {
    if rule == ALL {
        return true;
    }
    if objects.subresource.is_empty() {
        return rule == objects.resource;
    }
    let Some((resource, subresource)) = rule.split_once('/') else { return false };
    subresource == objects.subresource && (resource == objects.resource || resource == ALL)
}

/// Whether a path of a rule matches: they are equal, or the rule's path ends with a star and is a prefix up to it.
pub(super) fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}
