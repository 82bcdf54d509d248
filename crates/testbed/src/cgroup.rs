//! The cluster's own cgroup in every hierarchy: created before the kubelet starts, removed after all processes have
//! ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, IoContext as _};

/// How long a cgroup may stay busy after its last process was killed: the kernel removes processes asynchronously.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Every mounted cgroup hierarchy, v1 and v2.
pub(crate) fn hierarchies() -> Result<Vec<PathBuf>, Error> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(table).doing("read", table)?;
    Ok(text.lines().filter_map(mount_point_of_cgroup).map(PathBuf::from).collect())
}

fn mount_point_of_cgroup(line: &str) -> Option<&str> {
    let (mount, kind) = line.split_once(" - ")?;
    let kind = kind.split(' ').next()?;
    if kind == "cgroup" || kind == "cgroup2" { mount.split(' ').nth(4) } else { None }
}

/// Makes the group in every hierarchy.
pub(crate) fn create(name: &str) -> Result<(), Error> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).doing("create", &group);
            }
            _ => {}
        }
        // A v1 cpuset starts with no CPU and no memory node, and no process may enter such a group.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let from = hierarchy.join(file);
            if from.exists() {
                let value = fs::read(&from).doing("read", &from)?;
                let to = group.join(file);
                fs::write(&to, value).doing("write", &to)?;
            }
        }
    }
    Ok(())
}

/// Removes the group and all below it, in every hierarchy. It kills no process: a group that stays busy is an error.
pub(crate) fn remove(name: &str) -> Result<(), Error> {
    let deadline = Instant::now() + TIMEOUT;
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        loop {
            match remove_tree(&group) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(error).doing("remove", &group),
            }
        }
    }
    Ok(())
}

fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cgroup_mounts_are_hierarchies() {
        for (line, point) in [
            (
                "30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu",
                Some("/sys/fs/cgroup/cpu"),
            ),
            ("39 24 0:35 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", Some("/sys/fs/cgroup")),
            ("24 20 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755", None),
            ("31 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw", None),
        ] {
            assert_eq!(mount_point_of_cgroup(line), point, "{line}");
        }
    }
}
