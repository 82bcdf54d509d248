//! Removes what a cluster owned. Its processes, mounts, network namespaces and the pods' ends of links ended
//! with its process 1; cgroups, bridge, folder and slot are left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cgroup;
use crate::error::{Error, IoContext as _};
use crate::instance::Instance;
use crate::link;
use crate::slot::Slot;

/// How many failed clusters' logs are kept.
const KEPT_LOGS: usize = 10;

/// Removes what `instance` owned. If one removal fails it goes on with the others, and returns the first error.
pub(crate) fn remove(instance: &Instance) -> Result<(), Error> {
    let mut outcomes = Vec::new();
    if let Some(runtime) = instance.programs.runtime() {
        outcomes.push(cgroup::remove(&instance.cgroup()));
        outcomes.push(link::remove(instance, &runtime.busybox));
    }
    outcomes.push(remove_folder(instance));
    outcomes.into_iter().collect()
}

/// Removes what clusters left whose monitors were killed. Returns their folders.
pub fn clean() -> Result<Vec<PathBuf>, Error> {
    let mut cleaned = Vec::new();
    for slot in Slot::abandoned()? {
        if let Some(instance) = slot.read()? {
            // Its processes are ending; they must not write to the folder after its removal.
            if let Some(first) = instance.first {
                first.kill(&instance.dir);
            }
            remove(&instance)?;
            cleaned.push(instance.dir);
        }
        slot.release()?;
    }
    Ok(cleaned)
}

fn remove_folder(instance: &Instance) -> Result<(), Error> {
    let dir = &instance.dir;
    if !instance.dir_was_given {
        return match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).doing("remove", dir),
            _ => Ok(()),
        };
    }
    for entry in fs::read_dir(dir).doing("list", dir)? {
        let path = entry.doing("list", dir)?.path();
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .doing("remove", &path)?;
    }
    Ok(())
}

/// Copies the logs of a cluster before its folder is removed, and removes the oldest copies. Returns the new folder.
pub(crate) fn keep_logs(instance: &Instance, kept: &Path) -> Result<PathBuf, Error> {
    let name = instance.dir.file_name().unwrap_or_default();
    let target = kept.join(name);
    let _ = fs::remove_dir_all(&target);
    fs::create_dir_all(&target).doing("create", &target)?;
    let logs = instance.logs();
    if let Ok(entries) = fs::read_dir(&logs) {
        for entry in entries.flatten() {
            let to = target.join(entry.file_name());
            fs::copy(entry.path(), &to).doing("write", &to)?;
        }
    }
    remove_oldest(kept)?;
    Ok(target)
}

fn remove_oldest(kept: &Path) -> Result<(), Error> {
    let mut folders: Vec<(SystemTime, PathBuf)> = fs::read_dir(kept)
        .doing("list", kept)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    folders.sort();
    let surplus = folders.len().saturating_sub(KEPT_LOGS);
    for (_, folder) in folders.into_iter().take(surplus) {
        fs::remove_dir_all(&folder).doing("remove", &folder)?;
    }
    Ok(())
}
