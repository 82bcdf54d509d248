//! Keys of objects, which are paths of segments, and subtrees of them.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

/// The maximum length of a key in bytes: twice that of a key with a resource, a namespace and a name of maximum length.
pub const MAX_KEY: usize = 1024;

/// The name of an object: non-empty segments joined by `/`, for example `pods/default/web-0`.
///
/// Keys are ordered by their bytes, and so are lists.
///
/// ```
/// use plumb_store::{Key, Prefix};
/// let key: Key = "pods/default/web-0".parse()?;
/// assert!(Prefix::from_str("pods/default")?.covers(&key));
/// assert!(!Prefix::from_str("pods/def")?.covers(&key));
/// # use std::str::FromStr;
/// # Ok::<(), plumb_store::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// Why a string is not a [`Key`] or [`Prefix`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// An empty string, an empty segment, or a slash at either end.
    #[error("key {0:?} has an empty segment")]
    EmptySegment(String),
    /// More than [`MAX_KEY`] bytes.
    #[error("key of {0} bytes is longer than {MAX_KEY}")]
    TooLong(usize),
}

fn check(text: &str) -> Result<(), KeyError> {
    if text.len() > MAX_KEY {
        return Err(KeyError::TooLong(text.len()));
    }
    if text.split('/').any(str::is_empty) {
        return Err(KeyError::EmptySegment(text.to_owned()));
    }
    Ok(())
}

impl Key {
    /// Parses a key.
    pub fn new(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        check(text)?;
        Ok(Self(text.into()))
    }

    /// The whole path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments from left to right.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The collection of the key: its first two segments, without the last one of the key. For Kubernetes, these are the
    /// objects of one resource: `core/pods` for `core/pods/default/web-0`, and `core/nodes` for `core/nodes/n1`.
    pub(crate) fn collection(&self) -> &str {
        let last = self.0.rfind('/').unwrap_or(0);
        let second = self.0.match_indices('/').nth(COLLECTION_SEGMENTS - 1).map_or(last, |(at, _)| at);
        &self.0[..second]
    }

    /// The namespace of the key: the third of four segments. `None` for a key with fewer segments, which in Kubernetes is a
    /// cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        let mut segments = self.segments().skip(COLLECTION_SEGMENTS);
        let namespace = segments.next()?;
        segments.next().map(|_| namespace)
    }

    /// Every subtree that contains this key, from the widest (all keys) to the key itself.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').map(|(at, _)| at).chain([self.0.len()]);
        [0].into_iter().chain(ends).map(|end| &self.0[..end])
    }
}

/// The maximum number of segments in the name of a collection.
pub(crate) const COLLECTION_SEGMENTS: usize = 2;

impl FromStr for Key {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A subtree of keys: a key and its descendants, or all keys.
///
/// Only whole segments match: `pods/default` covers `pods/default/web-0` but not `pods/default-2/web-0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// The subtree of all keys.
    pub fn everything() -> Self {
        Self("".into())
    }

    /// Parses a prefix; the empty string is everything.
    pub fn new(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        if !text.is_empty() {
            check(text)?;
        }
        Ok(Self(text.into()))
    }

    /// The path of the subtree's root; empty for everything.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the key is in this subtree.
    pub fn covers(&self, key: &Key) -> bool {
        match key.as_str().strip_prefix(&*self.0) {
            None => false,
            Some(rest) => self.0.is_empty() || rest.is_empty() || rest.starts_with('/'),
        }
    }

    /// The range of the descendants of the root: the first string that can be a descendant, and the first after all of them.
    ///
    /// The root itself is not in the range, since siblings such as `root-2` sort between it and its descendants.
    pub(crate) fn descendants(&self) -> Option<(String, String)> {
        // '0' follows '/' in ASCII.
        (!self.0.is_empty()).then(|| (format!("{}/", self.0), format!("{}0", self.0)))
    }
}

impl From<&Key> for Prefix {
    fn from(key: &Key) -> Self {
        Self(key.0.clone())
    }
}

impl FromStr for Prefix {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_no_empty_segment_and_an_end() {
        for bad in ["", "/", "/a", "a/", "a//b"] {
            assert_eq!(Key::new(bad), Err(KeyError::EmptySegment(bad.into())), "{bad:?}");
        }
        assert_eq!(Key::new("k".repeat(MAX_KEY + 1)), Err(KeyError::TooLong(MAX_KEY + 1)));
        assert!(Key::new("k".repeat(MAX_KEY)).is_ok());
    }

    #[test]
    fn the_ancestors_of_a_key_are_exactly_the_prefixes_that_cover_it() {
        let key = Key::new("pods/default/web-0").unwrap();
        let found: Vec<_> = key.ancestors().collect();
        assert_eq!(found, ["", "pods", "pods/default", "pods/default/web-0"]);
        assert!(found.iter().all(|text| Prefix::new(text).unwrap().covers(&key)));
    }

    #[test]
    fn the_collection_of_a_key_is_its_resource() {
        let cases = [
            ("core/pods/default/web-0", "core/pods"),
            ("core/nodes/n1", "core/nodes"),
            ("pods/a", "pods"),
            ("a", ""),
        ];
        for (key, collection) in cases {
            assert_eq!(Key::new(key).unwrap().collection(), collection, "{key}");
        }
    }

    #[test]
    fn the_namespace_of_a_key_is_between_its_resource_and_its_name() {
        for (key, namespace) in
            [("core/pods/default/web-0", Some("default")), ("core/nodes/n1", None), ("a", None)]
        {
            assert_eq!(Key::new(key).unwrap().namespace(), namespace, "{key}");
        }
    }

    #[test]
    fn a_prefix_covers_whole_segments_only() {
        let cases = [("pods", true), ("pods/default", true), ("pods/def", false), ("pod", false), ("", true)];
        let key = Key::new("pods/default/web-0").unwrap();
        for (prefix, covers) in cases {
            assert_eq!(Prefix::new(prefix).unwrap().covers(&key), covers, "{prefix:?}");
        }
    }
}
