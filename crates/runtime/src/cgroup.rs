//! Control groups, version 1 and version 2, behind one type.
//!
//! ```text
//!   <name of the data directory>        Tree::pods()
//!   ├── pod<uid>/<container>            Guaranteed
//!   ├── burstable/pod<uid>/<container>
//!   └── besteffort/pod<uid>/<container>
//! ```
//!
//! Where the controllers are is found out once ([`Layout::detect`]): mounted one by one (v1), in one hierarchy
//! (v2), or v1 with a v2 hierarchy beside it that has none of cpu and memory; the latter is v1. A [`Group`] is a
//! path in whichever it is. It is set and read in the terms of [`LinuxResources`](crate::types::LinuxResources).
//!
//! Everything here is synchronous: a write to a cgroup file takes microseconds. Only [`Group::reclaim`],
//! [`Group::kill`] and [`Group::delete`] may take longer.

mod device;
mod error;
mod file;
mod group;
mod guard;
mod layout;
mod notifier;
mod pressure;
mod tree;
mod usage;
mod v1;
mod v2;

pub use error::{CgroupError, Result};
pub use group::Group;
pub use guard::AppliedLimit;
pub use layout::{Controller, Layout, Version};
pub use notifier::{Notification, Notifier};
pub use tree::Tree;
pub use usage::Usage;

/// The page size of the kernel, to which it rounds memory limits down.
pub fn page_size() -> i64 {
    crate::sys::page_size()
}
