//! Resources with their groups, as the configuration writes them.

use std::fmt;

/// A resource of a group. `*` is any resource, and together with the group `*` any resource of any group.
///
/// ```
/// use plumb_encryption::GroupResource;
///
/// assert_eq!(GroupResource::parse("deployments.apps").group, "apps");
/// assert_eq!(GroupResource::parse("*."), GroupResource { group: String::new(), resource: "*".into() });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
}

impl GroupResource {
    /// Parses `RESOURCE.GROUP` or, for the core group, `RESOURCE`.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }

    /// Any resource of a group.
    pub(crate) fn any_in(group: &str) -> Self {
        Self { group: group.to_owned(), resource: "*".to_owned() }
    }

    pub(crate) fn is_anything(&self) -> bool {
        self.group == "*" && self.resource == "*"
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.group.as_str(), self.resource.as_str()) {
            ("", "*") => f.write_str("*."),
            ("", resource) => f.write_str(resource),
            (group, resource) => write!(f, "{resource}.{group}"),
        }
    }
}
