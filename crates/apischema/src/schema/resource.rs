use super::StructId;

/// A row of discovery: what is served under a name in a URL.
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
    /// The name in URLs.
    pub plural: &'static str,
    /// The name for one of them.
    pub singular: &'static str,
    /// Whether they live in namespaces.
    pub scope: Scope,
    /// Names for hasty people.
    pub short_names: Vec<&'static str>,
    /// Groups of resources it belongs to, such as `all`.
    pub categories: Vec<&'static str>,
    /// What can be asked of it, in alphabetical order.
    pub verbs: Vec<&'static str>,
    /// What hangs below each object.
    pub subresources: Vec<Subresource>,
}

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One set for the whole cluster.
    Cluster,
    /// A set for each namespace.
    Namespaced,
}

/// A part of an object, or an action on it, with an address of its own.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the URL.
    pub name: &'static str,
    /// The group of what is exchanged there.
    pub group: &'static str,
    /// The version of what is exchanged there.
    pub version: &'static str,
    /// The kind of what is exchanged there.
    pub kind: &'static str,
    /// What can be asked of it.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether a verb can be asked of it.
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
