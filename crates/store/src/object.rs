//! Objects and their attributes.

use bytes::Bytes;

use crate::{Key, Revision};

/// One version of one object. It is immutable: a write creates a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The key of the object.
    pub key: Key,
    /// The encoded object, as the writer passed it.
    pub value: Bytes,
    /// The attributes by which watchers may select the object, as the writer passed them.
    pub attributes: Attributes,
    /// The revision at which the key was last created.
    pub create_revision: Revision,
    /// The revision of this version.
    pub mod_revision: Revision,
    /// The version of the object: 1 at creation, incremented by each write.
    pub version: u64,
}

/// Named strings besides the value, for example `spec.nodeName`. A watch may select by one of them.
///
/// They are sorted by name, one value per name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Box<[(Box<str>, Box<str>)]>);

/// The maximum number of attributes of one object.
pub const MAX_ATTRIBUTES: usize = 16;
/// The maximum length of the name or the value of an attribute, in bytes.
pub const MAX_ATTRIBUTE: usize = 1024;

impl Attributes {
    /// No attributes.
    pub fn none() -> Self {
        Self::default()
    }

    /// One attribute.
    pub fn one(name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        Self(Box::new([(name.into(), value.into())]))
    }

    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// All attributes, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether the attributes are within the limits.
    pub(crate) fn fit(&self) -> bool {
        self.0.len() <= MAX_ATTRIBUTES
            && self.iter().all(|(name, value)| name.len() <= MAX_ATTRIBUTE && value.len() <= MAX_ATTRIBUTE)
    }

    pub(crate) fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl<N: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(N, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut all: Vec<(Box<str>, Box<str>)> =
            pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup_by(|later, first| later.0 == first.0);
        Self(all.into())
    }
}

impl Object {
    /// The bytes of its strings and its value: its cost in memory and on disk, without fixed overhead.
    pub(crate) fn size(&self) -> usize {
        self.key.as_str().len() + self.value.len() + self.attributes.size()
    }
}
