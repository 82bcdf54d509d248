//! The names of slices.
//!
//! Dashes in the name of a slice are its path: `a-b.slice` is in `a.slice`. So the kubelet replaces dashes in the names of
//! cgroups by underscores (`escapeSystemdCgroupName`), and so does this module.

use std::path::PathBuf;

/// The suffix of slices.
const SUFFIX: &str = ".slice";
/// The maximum length of the name of a unit.
const MAX_NAME: usize = 255;
/// A slice, by the names on its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The escaped names, at least one.
    parts: Vec<String>,
}

impl Slice {
    /// The slice of a cgroup with this name, which may be a path.
    pub(crate) fn from_path(path: &str) -> Self {
        Self { parts: path.split('/').filter(|part| !part.is_empty()).map(escaped).collect() }
    }

    /// The slice of the child cgroup of this name.
    pub(crate) fn child(&self, name: &str) -> Self {
        let mut parts = self.parts.clone();
        parts.push(escaped(name));
        Self { parts }
    }

    /// The name of the unit.
    pub(crate) fn unit(&self) -> String {
        format!("{}{SUFFIX}", self.parts.join("-"))
    }

    /// The path of the slice, relative to the mount points of cgroups.
    pub(crate) fn path(&self) -> PathBuf {
        (1..=self.parts.len()).map(|count| format!("{}{SUFFIX}", self.parts[..count].join("-"))).collect()
    }

    /// Whether systemd accepts the name of the unit, and creates the cgroup at [`path`](Self::path): it escapes names that
    /// could be mistaken for files of a cgroup.
    pub(crate) fn is_valid(&self) -> bool {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '.');
        let first = self.parts.first().map(String::as_str).unwrap_or_default();
        let file = ["cgroup", "cpu", "cpuacct", "cpuset", "io", "blkio", "memory", "devices", "pids"];
        self.unit().len() <= MAX_NAME
            && self.parts.iter().all(|part| !part.is_empty() && part.chars().all(is_allowed))
            && first.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && !file.contains(&first.split('.').next().unwrap_or(first))
    }
}

fn escaped(name: impl AsRef<str>) -> String {
    name.as_ref().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_named_and_nested_as_the_kubelets() {
        let table: &[(&str, &[&str], &str, &str)] = &[
            ("kubepods", &[], "kubepods.slice", "kubepods.slice"),
            (
                "kubepods",
                &["burstable"],
                "kubepods-burstable.slice",
                "kubepods.slice/kubepods-burstable.slice",
            ),
            (
                "/kubepods",
                &["burstable", "pod0a1b-2c3d"],
                "kubepods-burstable-pod0a1b_2c3d.slice",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c3d.slice",
            ),
            ("plumb-12", &["podu"], "plumb_12-podu.slice", "plumb_12.slice/plumb_12-podu.slice"),
            ("a/b-c", &[], "a-b_c.slice", "a.slice/a-b_c.slice"),
        ];
        for (root, names, unit, path) in table {
            let slice = names.iter().fold(Slice::from_path(root), |slice, name| slice.child(name));
            assert_eq!((slice.unit().as_str(), slice.path()), (*unit, PathBuf::from(path)));
            assert!(slice.is_valid(), "{unit}");
        }
    }

    #[test]
    fn names_that_systemd_refuses_or_escapes_are_not_valid() {
        let long = "u".repeat(MAX_NAME);
        for (root, name) in [
            ("-plumb", "burstable"),
            (".plumb", "burstable"),
            ("memory", "burstable"),
            ("cgroup.plumb", "burstable"),
            ("plumb", ""),
            ("plumb", "a b"),
            ("plumb", "a@b"),
            ("plumb", "a\\x2d"),
            ("plumb", "ä"),
            ("plumb", &long),
        ] {
            assert!(!Slice::from_path(root).child(name).is_valid(), "{root:?} {name:?}");
        }
        assert!(!Slice::from_path("/").is_valid());
    }
}
