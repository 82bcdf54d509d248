//! What a container's processes may do.

use serde::{Deserialize, Serialize};

/// What a container's processes may do, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the CRI as well")]
pub struct Security {
    /// The user: a number, or a name of the image's `/etc/passwd`; `None` is the image's.
    pub user: Option<String>,
    /// The group; `None` is the user's in `/etc/passwd`, else 0.
    pub group: Option<u32>,
    /// Further groups, on top of those that the image's `/etc/group` gives the user.
    pub supplemental_groups: Vec<u32>,
    /// Whether only the groups given here count, and `/etc/group` does not.
    pub strict_groups: bool,
    /// May do everything: all capabilities and devices, nothing masked, no seccomp.
    pub privileged: bool,
    /// On top of the usual capabilities, or without some of them.
    pub capabilities: Capabilities,
    /// Its processes can never have more rights than they start with.
    pub no_new_privs: bool,
    /// Nothing can be written to the root file system.
    pub read_only_rootfs: bool,
    /// Which system calls it may use.
    pub seccomp: SeccompProfile,
    /// Paths that show nothing; `None` is the usual ones.
    pub masked_paths: Option<Vec<String>>,
    /// Paths that cannot be written; `None` is the usual ones.
    pub readonly_paths: Option<Vec<String>>,
}

/// Changes to the usual capabilities, by name, with or without `CAP_`; `ALL` is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Added.
    pub add: Vec<String>,
    /// Taken away, before anything is added.
    pub drop: Vec<String>,
}

/// Which system calls a container may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompProfile {
    /// Those that container runtimes usually allow.
    #[default]
    RuntimeDefault,
    /// All.
    Unconfined,
}
