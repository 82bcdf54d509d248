//! Where volumes and devices may be mounted. As in runc: anywhere but over the root, and over or in `/proc` only what is
//! known to do no harm. What is in `/proc` decides what a process may do, and programs and runtimes believe it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::failure::{Doing as _, Result, fail};
use super::mount::{Mounted, is_proc_root};
use crate::rootfs::{RootFs, path_of};

/// Files of procfs that may be shown otherwise, as LXCFS does.
const REPLACEABLE: [&str; 11] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];

/// The root of the container as the shim sees it before it goes there.
pub(super) struct Destinations(PathBuf);

impl Destinations {
    pub(super) fn of(place: &RootFs) -> Result<Self> {
        let root = place.find("/").doing("opening the root file system")?;
        fs::read_link(path_of(&root)).map(Self).doing("finding the root file system")
    }

    /// Refuses what must not be mounted at what is open. `asked` is the path that led to it.
    pub(super) fn check(&self, target: &OwnedFd, asked: &str, source: &Mounted) -> Result<()> {
        // The kernel says where it is, with all symlinks followed.
        let at = fs::read_link(path_of(target)).doing(format_args!("finding {asked}"))?;
        let Ok(inside) = at.strip_prefix(&self.0) else {
            return fail(format_args!("mounting at {asked}"), "it is not in the container");
        };
        let path = Path::new("/").join(inside);
        match refusal(&path, || is_proc_root(source))? {
            None => Ok(()),
            Some(why) => fail(format_args!("mounting at {asked}"), why),
        }
    }
}

/// Why something must not be mounted at a path in which there is no symlink.
fn refusal<E>(path: &Path, is_procfs: impl FnOnce() -> Result<bool, E>) -> Result<Option<String>, E> {
    let said = |why: &str| Ok(Some(format!("{:?} cannot be mounted because it is {why}", path.display())));
    if path == Path::new("/") {
        return said("the root of the container");
    }
    if path == Path::new("/proc") {
        return if is_procfs()? { Ok(None) } else { said("not of type proc") };
    }
    // Its `net` is a symlink to that of the process.
    let is_net_dev = |path: &Path| {
        let mut parts = path.iter().skip(2);
        let number = parts.next().and_then(|part| part.to_str());
        number.is_some_and(|number| number.parse::<u32>().is_ok()) && parts.eq(["net", "dev"])
    };
    if path.starts_with("/proc")
        && !REPLACEABLE.iter().any(|file| path == Path::new(file))
        && !is_net_dev(path)
    {
        return said("inside /proc");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procfs_is_only_replaced_by_procfs_and_in_it_a_few_files() {
        let table = [
            ("/", true, false),
            ("/proc", true, true),
            ("/proc", false, false),
            ("/proc/self", true, false),
            ("/proc/1", false, false),
            ("/proc/sys", false, false),
            ("/proc/cpuinfo", false, true),
            ("/proc/cpuinfo/x", false, false),
            ("/proc/sys/kernel/ns_last_pid", false, true),
            ("/proc/1/net/dev", false, true),
            ("/proc/1/net/tcp", false, false),
            ("/proc/self/net/dev", false, false),
            ("/process", false, true),
            ("/host/proc", false, true),
            ("/sys", false, true),
            ("/dev", false, true),
        ];
        for (path, is_procfs, allowed) in table {
            let refused = refusal::<()>(Path::new(path), || Ok(is_procfs)).unwrap();
            assert_eq!(refused.is_none(), allowed, "{path}: {refused:?}");
        }
    }
}
