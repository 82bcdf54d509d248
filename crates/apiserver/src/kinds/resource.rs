//! What is served under a name in a URL, whoever defined it.

use std::borrow::Cow;

use plumb_apischema::schema::{self, Scope};

/// A name: of the table for the kinds of Kubernetes, of its own for those that were defined later.
pub type Name = Cow<'static, str>;

/// A row of discovery.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The group; empty for the core.
    pub group: Name,
    /// The version within the group.
    pub version: Name,
    /// The kind of its objects.
    pub kind: Name,
    /// The kind of a list of them.
    pub list_kind: Name,
    /// The name in URLs.
    pub plural: Name,
    /// The name for one of them.
    pub singular: Name,
    /// Whether they live in namespaces.
    pub scope: Scope,
    /// Names for hasty people.
    pub short_names: Vec<Name>,
    /// Groups of resources it belongs to, such as `all`.
    pub categories: Vec<Name>,
    /// What can be asked of it, in alphabetical order.
    pub verbs: Vec<&'static str>,
    /// What hangs below each object.
    pub subresources: Vec<Subresource>,
}

/// A part of an object, or an action on it, with an address of its own.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the URL.
    pub name: Name,
    /// The group of what is exchanged there.
    pub group: Name,
    /// The version of what is exchanged there.
    pub version: Name,
    /// The kind of what is exchanged there.
    pub kind: Name,
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
        if self.group.is_empty() {
            self.version.clone().into_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl From<&'static schema::Resource> for Resource {
    fn from(row: &'static schema::Resource) -> Self {
        let names = |names: &[&'static str]| names.iter().copied().map(Cow::Borrowed).collect();
        Self {
            group: row.group.into(),
            version: row.version.into(),
            kind: row.kind.into(),
            list_kind: format!("{}List", row.kind).into(),
            plural: row.plural.into(),
            singular: row.singular.into(),
            scope: row.scope,
            short_names: names(&row.short_names),
            categories: names(&row.categories),
            verbs: row.verbs.clone(),
            subresources: row.subresources.iter().map(Subresource::from).collect(),
        }
    }
}

impl From<&'static schema::Subresource> for Subresource {
    fn from(row: &'static schema::Subresource) -> Self {
        Self {
            name: row.name.into(),
            group: row.group.into(),
            version: row.version.into(),
            kind: row.kind.into(),
            verbs: row.verbs.clone(),
        }
    }
}
