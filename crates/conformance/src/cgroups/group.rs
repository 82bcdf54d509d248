//! A cgroup of this machine, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plumb_resize::cgroup::{WeightScale, shares};

use crate::failure::Failure;

/// Where cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// The version of this machine's cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
}

impl Version {
    fn here() -> Self {
        let offered = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
        let has = |name: &str| offered.split_whitespace().any(|offered| offered == name);
        if has("cpu") && has("memory") { Self::V2 } else { Self::V1 }
    }

    fn root(self, controller: &str) -> PathBuf {
        match self {
            Self::V1 => Path::new(ROOT).join(controller),
            Self::V2 => Path::new(ROOT).to_owned(),
        }
    }
}

/// A figure of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The CPU shares of version 1, the weight of version 2.
    CpuWeight,
    /// The CPU quota in microseconds per 100 ms; -1 is unlimited.
    CpuQuota,
    /// The memory limit in bytes; the largest number is unlimited.
    MemoryLimit,
    /// The memory that is used, in bytes.
    MemoryUsage,
}

/// A cgroup.
#[derive(Clone, Debug)]
pub struct Group {
    version: Version,
    /// Its path below the root of each hierarchy.
    path: PathBuf,
}

impl Group {
    /// The group of this name, wherever it is.
    pub fn find(name: &str) -> Option<Self> {
        let version = Version::here();
        let root = version.root("memory");
        let mut open = vec![root.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if entry.file_name().to_str() == Some(name) {
                        let path = entry.path().strip_prefix(&root).ok()?.to_owned();
                        return Some(Self { version, path });
                    }
                    open.push(entry.path());
                }
            }
        }
        None
    }

    /// Why the cgroups of this machine cannot be read, if so.
    pub(super) fn missing() -> Option<String> {
        let version = Version::here();
        let lacks = |controller: &&str| !version.root(controller).join("cgroup.procs").exists();
        let lacking = ["cpu", "memory"].into_iter().find(lacks)?;
        Some(format!("there is no cgroup hierarchy for {lacking}"))
    }

    /// Its path below the root of each hierarchy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A group below this one; itself, if the name is empty.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        Self { version: self.version, path }
    }

    /// The nearest group above this one that has a group of this name in it: that one.
    pub fn beside(&self, name: &str) -> Option<Self> {
        let found = self.path.ancestors().find(|path| self.folder("cpu", path).join(name).is_dir())?;
        Some(Self { version: self.version, path: found.join(name) })
    }

    /// The names of the groups below this one, sorted.
    pub fn children(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder("memory", &self.path)).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> =
            folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// A figure of this group.
    pub fn number(&self, figure: Figure) -> Result<i64, Failure> {
        let (controller, file) = match (self.version, figure) {
            (Version::V1, Figure::CpuWeight) => ("cpu", "cpu.shares"),
            (Version::V1, Figure::CpuQuota) => ("cpu", "cpu.cfs_quota_us"),
            (Version::V1, Figure::MemoryLimit) => ("memory", "memory.limit_in_bytes"),
            (Version::V1, Figure::MemoryUsage) => ("memory", "memory.usage_in_bytes"),
            (Version::V2, Figure::CpuWeight) => ("cpu", "cpu.weight"),
            (Version::V2, Figure::CpuQuota) => ("cpu", "cpu.max"),
            (Version::V2, Figure::MemoryLimit) => ("memory", "memory.max"),
            (Version::V2, Figure::MemoryUsage) => ("memory", "memory.current"),
        };
        let text = self.read(controller, file)?;
        // The quota of version 2 is followed by its period.
        let word = text.split_whitespace().next().unwrap_or_default();
        match (word, figure) {
            ("max", Figure::CpuQuota) => Ok(-1),
            ("max", _) => Ok(i64::MAX),
            _ => word.parse().map_err(|error| {
                Failure::Unmet(format!("{file} of {} is {text:?}: {error}", self.path.display()))
            }),
        }
    }

    /// Holds the weight of this group to a CPU request; `scale` is that of its kind of group, where there are weights.
    pub fn has_request(&self, milli: i64, scale: WeightScale) -> Result<(), Failure> {
        let (file, expected) = match self.version {
            Version::V1 => ("cpu.shares", shares(milli)),
            Version::V2 => ("cpu.weight", scale.weight(shares(milli))),
        };
        let found = self.read("cpu", file)?;
        if found == expected.to_string() {
            return Ok(());
        }
        Err(Failure::Unmet(format!("{file} of {} is {found} and not {expected}", self.path.display())))
    }

    /// The CPUs that this group may use.
    pub fn cpus(&self) -> Result<String, Failure> {
        self.read("cpuset", "cpuset.cpus")
    }

    /// The first process of this group.
    pub fn first_process(&self) -> Option<u32> {
        let processes = self.read("memory", "cgroup.procs").ok()?;
        processes.lines().filter_map(|line| line.parse().ok()).min()
    }

    fn read(&self, controller: &str, file: &str) -> Result<String, Failure> {
        let path = self.folder(controller, &self.path).join(file);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(Failure::File { path, source: Arc::new(source) }),
        };
        Ok(text.trim().to_owned())
    }

    fn folder(&self, controller: &str, path: &Path) -> PathBuf {
        self.version.root(controller).join(path)
    }
}
