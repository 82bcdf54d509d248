//! Resources in discovery.

use std::borrow::Cow;

use plumb_apischema::schema::{self, Scope};

/// A name: borrowed from the tables for built-in kinds, owned for custom ones.
pub type Name = Cow<'static, str>;

/// A resource in discovery.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The group; empty for the core.
    pub group: Name,
    /// The version within the group.
    pub version: Name,
    /// The kind.
    pub kind: Name,
    /// The kind of its lists.
    pub list_kind: Name,
    /// The plural name in URLs.
    pub plural: Name,
    /// The singular name.
    pub singular: Name,
    /// Whether it is namespaced.
    pub scope: Scope,
    /// The short names.
    pub short_names: Vec<Name>,
    /// The categories, such as `all`.
    pub categories: Vec<Name>,
    /// The verbs, in alphabetical order.
    pub verbs: Vec<&'static str>,
    /// The subresources.
    pub subresources: Vec<Subresource>,
}

/// A subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The name, which is the last segment of the URL.
    pub name: Name,
    /// The group of its objects.
    pub group: Name,
    /// The version of its objects.
    pub version: Name,
    /// The kind of its objects.
    pub kind: Name,
    /// The verbs.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether it has a verb.
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
