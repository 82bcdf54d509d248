//! The security context of a container.

use serde::{Deserialize, Serialize};

/// The default of the paths that a container does not see.
pub const DEFAULT_MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    // The energy meters of processors, by which one process observes the secrets of another (CVE-2020-8694).
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// The default of the paths that a container cannot write.
pub const DEFAULT_READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The security context of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the CRI as well")]
pub struct Security {
    /// The user: a uid, or a name in the image's `/etc/passwd`; `None` is the image's user.
    pub user: Option<String>,
    /// The group; `None` is the user's in `/etc/passwd`, else 0.
    pub group: Option<u32>,
    /// Supplemental groups, in addition to the user's groups in the image's `/etc/group`.
    pub supplemental_groups: Vec<u32>,
    /// Whether the groups in `/etc/group` are ignored.
    pub strict_groups: bool,
    /// Privileged: all capabilities and devices, no masked paths, no seccomp.
    pub privileged: bool,
    /// Changes to the default capabilities.
    pub capabilities: Capabilities,
    /// Whether `no_new_privs` is set.
    pub no_new_privs: bool,
    /// Whether the root file system is read-only.
    pub read_only_rootfs: bool,
    /// Its seccomp profile.
    pub seccomp: SeccompProfile,
    /// Masked paths; `None` is the default ones.
    pub masked_paths: Option<Vec<String>>,
    /// Read-only paths; `None` is the default ones.
    pub readonly_paths: Option<Vec<String>>,
}

/// Changes to the default capabilities, by name, with or without `CAP_`; `ALL` is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Added.
    pub add: Vec<String>,
    /// Dropped, before any are added.
    pub drop: Vec<String>,
}

/// A seccomp profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompProfile {
    /// The default profile of container runtimes.
    #[default]
    RuntimeDefault,
    /// No filter.
    Unconfined,
}
