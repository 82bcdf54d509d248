use super::StructId;

/// A resource of discovery.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The group; empty for the core.
    pub group: &'static str,
    /// The version within the group.
    pub version: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// The fields of its objects.
    pub body: StructId,
    /// The plural name, as in URLs.
    pub plural: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// Whether the objects are namespaced.
    pub scope: Scope,
    /// The short names.
    pub short_names: Vec<&'static str>,
    /// The categories, such as `all`.
    pub categories: Vec<&'static str>,
    /// The verbs in alphabetical order.
    pub verbs: Vec<&'static str>,
    /// The subresources.
    pub subresources: Vec<Subresource>,
}

/// The scope of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Cluster-scoped.
    Cluster,
    /// Namespaced.
    Namespaced,
}

/// A subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the URL.
    pub name: &'static str,
    /// The API group of its kind.
    pub group: &'static str,
    /// The API version of its kind.
    pub version: &'static str,
    /// The kind of its requests and responses.
    pub kind: &'static str,
    /// The verbs.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether it supports a verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        super::resource::api_version(self.group, self.version)
    }
}

/// `v1` for the core group, else `group/version`.
pub(super) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
