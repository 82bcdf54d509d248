//! One rule of a role: which verbs on what.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{About, Ask, Objects};

/// What stands for everything.
const ALL: &str = "*";

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    /// What may be done.
    pub(crate) verbs: Vec<String>,
    /// The API groups of what it may be done to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    /// The resources, with their subresources as resources of their own: `pods/resize`, `*/scale`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    /// The objects; all if none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    /// The paths that are no objects.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
}

impl Rule {
    /// Reads the rules of a role. What cannot be read gives no right.
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

    /// Whether it allows what is asked.
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

/// `*` is everything, `pods/resize` itself and nothing else, `*/scale` the scale of anything.
///
/// `pods/*` is no pattern, as it is none upstream.
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

/// Whether a path of a rule covers a path: itself, or what begins like it up to the star at its end.
pub(super) fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}
