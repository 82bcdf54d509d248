//! What this machine allows, and groups of our own to work in.

use std::sync::atomic::{AtomicU32, Ordering};

use plumb_runtime::cgroup::{Layout, Tree};

/// A cgroup tree of this test's own, removed in the end.
pub(crate) struct OwnTree(pub(crate) Tree);

impl OwnTree {
    /// `None`, and it is said why, where groups cannot be made.
    pub(crate) fn new(test: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let layout = match Layout::detect() {
            Ok(layout) => layout,
            Err(error) => {
                plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: {error}"));
                return None;
            }
        };
        let name = format!("plumb-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let tree = Tree::new(layout, name);
        match tree.create() {
            Ok(()) => Some(Self(tree)),
            Err(error) => {
                plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: {error}"));
                None
            }
        }
    }
}

impl Drop for OwnTree {
    fn drop(&mut self) {
        self.0.delete().unwrap();
    }
}
