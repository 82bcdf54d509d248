//! Where the cgroup controllers are mounted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{CgroupError, Result};
use super::file;
use crate::mountinfo::unescape;

/// The controllers that Plumb uses, where they exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Controller {
    /// Memory limits and usage.
    Memory,
    /// The number of tasks.
    Pids,
    /// Device access; v1 only.
    Devices,
    /// Freezing; v1 only, v2 has it without a controller.
    Freezer,
    /// Pinning to CPUs and memory nodes.
    Cpuset,
    /// CPU usage; v1 only, in v2 it is part of cpu.
    Cpuacct,
    /// Huge pages.
    Hugetlb,
    /// Block I/O.
    Blkio,
    // Last, so that it is joined last: from then on the shim is throttled by the cgroup's shares and quota.
    /// CPU time.
    Cpu,
}

impl Controller {
    const ALL: [Self; 9] = [
        Self::Memory,
        Self::Pids,
        Self::Devices,
        Self::Freezer,
        Self::Cpuset,
        Self::Cpuacct,
        Self::Hugetlb,
        Self::Blkio,
        Self::Cpu,
    ];

    /// The kernel's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Devices => "devices",
            Self::Freezer => "freezer",
            Self::Cpuset => "cpuset",
            Self::Cpuacct => "cpuacct",
            Self::Hugetlb => "hugetlb",
            Self::Blkio => "blkio",
            Self::Cpu => "cpu",
        }
    }
}

/// The cgroup version of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Each controller, or a few together, in a hierarchy of its own.
    V1,
    /// All in one.
    V2,
}

/// Where the controllers are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    version: Version,
    controllers: BTreeMap<Controller, PathBuf>,
    hybrid: bool,
}

impl Layout {
    /// The layout of this host.
    pub fn detect() -> Result<Self> {
        Self::of_mountinfo(&file::read(Path::new("/proc/self/mountinfo"))?)
    }

    /// The layout according to the text of `/proc/self/mountinfo`. A cgroup2 mount counts only if it has cpu and
    /// memory: beside v1 it is often mounted without any controller.
    pub fn of_mountinfo(text: &str) -> Result<Self> {
        let mut controllers = BTreeMap::new();
        let mut unified = None;
        for mount in text.lines().filter_map(Mount::of_line) {
            match mount.kind {
                "cgroup2" => _ = unified.get_or_insert_with(|| unescape(mount.point)),
                "cgroup" => {
                    let named = |c: &Controller| mount.options.split(',').any(|option| option == c.name());
                    for controller in Controller::ALL.into_iter().filter(named) {
                        controllers.entry(controller).or_insert_with(|| unescape(mount.point));
                    }
                }
                _ => {}
            }
        }
        if let Some(point) = &unified
            && let Ok(layout) = Self::v2(point)
        {
            return Ok(layout);
        }
        let v1 = Self { version: Version::V1, controllers, hybrid: unified.is_some() };
        if v1.has(Controller::Cpu) && v1.has(Controller::Memory) {
            Ok(v1)
        } else {
            Err(CgroupError::NoControllers)
        }
    }

    /// The v2 hierarchy at a mount point.
    pub fn v2(point: &Path) -> Result<Self> {
        let offered = file::read(&point.join("cgroup.controllers"))?;
        let is_offered = |c: &Controller| offered.split_whitespace().any(|name| name == c.name());
        let controllers: BTreeMap<_, _> =
            Controller::ALL.into_iter().filter(is_offered).map(|c| (c, point.to_owned())).collect();
        let layout = Self { version: Version::V2, controllers, hybrid: false };
        if layout.has(Controller::Cpu) && layout.has(Controller::Memory) {
            Ok(layout)
        } else {
            Err(CgroupError::NoControllers)
        }
    }

    /// The cgroup version of the controllers.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether there is a v2 hierarchy beside v1.
    pub fn is_hybrid(&self) -> bool {
        self.hybrid
    }

    /// Whether a controller exists.
    pub fn has(&self, controller: Controller) -> bool {
        self.controllers.contains_key(&controller)
    }

    pub(super) fn mount_of(&self, controller: Controller) -> Option<&Path> {
        self.controllers.get(&controller).map(PathBuf::as_path)
    }

    /// Every hierarchy once, in the order in which they are joined.
    pub(super) fn hierarchies(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = Vec::with_capacity(self.controllers.len());
        // From the back, so that a hierarchy that also has cpu counts as cpu's and is joined last.
        for point in self.controllers.values().rev() {
            if !all.contains(&point.as_path()) {
                all.push(point);
            }
        }
        all.reverse();
        all
    }

    /// The names of the controllers, for `cgroup.subtree_control`.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.controllers.keys().map(|controller| controller.name())
    }
}

struct Mount<'a> {
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// `id parent major:minor root point options optional... - kind source super-options`.
    fn of_line(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut filesystem = filesystem.split(' ');
        Some(Self { point, kind: filesystem.next()?, options: filesystem.nth(1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
24 20 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 24 0:29 / /sys/fs/cgroup/with\\040space rw,relatime - cgroup cgroup rw,pids
39 24 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn hybrid_is_v1_when_v2_has_no_controllers() {
        let layout = Layout::of_mountinfo(V1).unwrap();
        assert_eq!(layout.version(), Version::V1);
        assert!(layout.is_hybrid());
        assert_eq!(layout.mount_of(Controller::Cpu), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(layout.mount_of(Controller::Pids), Some(Path::new("/sys/fs/cgroup/with space")));
        assert!(!layout.has(Controller::Cpuset));
    }

    #[test]
    fn hierarchies_with_several_controllers_are_joined_once_and_cpu_last() {
        let layout = Layout::of_mountinfo(V1).unwrap();
        let names: Vec<_> = layout.hierarchies().iter().map(|point| point.file_name().unwrap()).collect();
        assert_eq!(names, ["memory", "with space", "cpu,cpuacct"]);
    }

    #[test]
    fn nothing_mounted_is_said() {
        assert!(matches!(Layout::of_mountinfo(""), Err(CgroupError::NoControllers)));
    }
}
