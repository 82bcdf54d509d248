//! Where objects are in etcd.
//!
//! The key of an object is its key in the store under a prefix: `/registry/core/pods/default/web-0`. All knowledge of it is in
//! this module.

use plumb_store::{Key, KeyError};

/// The prefix of kube-apiserver.
pub const DEFAULT_PREFIX: &str = "/registry";

/// The keys of objects under a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The prefix and a slash.
    root: String,
}

impl Layout {
    /// The keys under a prefix. As with kube-apiserver, it begins with a slash, given or not.
    pub fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/');
        Self { root: if prefix.is_empty() { "/".to_owned() } else { format!("/{prefix}/") } }
    }

    /// The prefix and a slash.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The first key that an object may have, and the first one after those of all objects.
    pub fn range(&self) -> (Vec<u8>, Vec<u8>) {
        // '0' follows '/' in ASCII.
        let end = format!("{}0", &self.root[..self.root.len() - 1]);
        (self.root.clone().into_bytes(), end.into_bytes())
    }

    /// The key that is written to learn when the watch has received all earlier changes. It is in the range of objects, but
    /// not the key of one, which has no empty segment.
    pub fn barrier(&self) -> Vec<u8> {
        format!("{}/barrier", self.root).into_bytes()
    }

    /// Whether a key is not that of an object, but written by [`crate::open`].
    pub fn is_internal(&self, path: &[u8]) -> bool {
        path == self.barrier()
    }

    /// The key of an object in etcd.
    pub fn path(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}", self.root).into_bytes()
    }

    /// The key of an object by its key in etcd.
    pub fn key(&self, path: &[u8]) -> Result<Key, KeyError> {
        let text = String::from_utf8_lossy(path);
        Key::new(text.strip_prefix(&self.root).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_under_the_prefix_and_back() {
        for (prefix, path) in [
            ("/registry", "/registry/core/pods/default/web-0"),
            ("registry/", "/registry/core/pods/default/web-0"),
            ("/a/b", "/a/b/core/pods/default/web-0"),
            ("", "/core/pods/default/web-0"),
        ] {
            let (layout, key) = (Layout::new(prefix), Key::new("core/pods/default/web-0").unwrap());
            assert_eq!(layout.path(&key), path.as_bytes());
            assert_eq!(layout.key(path.as_bytes()), Ok(key));
            let (start, end) = layout.range();
            assert!(start.as_slice() < path.as_bytes() && path.as_bytes() < end.as_slice(), "{prefix}");
        }
    }

    #[test]
    fn a_key_outside_of_the_prefix_is_none() {
        let layout = Layout::new("/registry");
        for path in ["/registry-2/a/b", "/registry", "/registry/", "/registry//a", ""] {
            assert!(layout.key(path.as_bytes()).is_err(), "{path:?}");
        }
    }
}
