//! The directories of volumes of the storage class `local-path`: each is made when a pod mounts it first, and removed with
//! its volume.
//!
//! Their names come from the API, and what is in them is written by containers. So a name is one path component, the
//! directory is made and found by a descriptor of the one above, and removal never follows a link.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::mounted;

/// All users may write, as in the volumes of other local-path provisioners: `fsGroup` narrows it to a group.
const MODE: u32 = 0o777;
/// Only the agent looks into the directory above.
const ROOT_MODE: u32 = 0o700;
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why a directory cannot be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum LocalVolumeError {
    /// No volume has this name.
    #[error("invalid name of a volume: {0:?}")]
    Name(String),
    /// A pod has it.
    #[error("volume {0:?} is used by a pod of this node")]
    InUse(String),
    /// A file operation failed.
    #[error(transparent)]
    Io(io::Error),
}

/// The directories of a node.
#[derive(Clone, Debug)]
pub struct LocalVolumes {
    root: PathBuf,
}

impl LocalVolumes {
    /// Those in a directory, which is made when it is needed.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The size of the disk that they are on, in bytes; `None` if it cannot be read.
    pub fn capacity(&self) -> Option<u64> {
        // The directory is made with the first volume.
        let disk = self.root.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
        Some(disk.f_blocks.saturating_mul(disk.f_frsize)).filter(|bytes| *bytes > 0)
    }

    /// The path of a volume.
    pub fn path(&self, volume: &str) -> Result<PathBuf, LocalVolumeError> {
        // As object names are: what could be anything but one component is none.
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_name = !volume.is_empty()
            && volume.len() <= 253
            && volume.bytes().all(allowed)
            && !volume.starts_with(['.', '-'])
            && !volume.contains("..");
        if is_name { Ok(self.root.join(volume)) } else { Err(LocalVolumeError::Name(volume.to_owned())) }
    }

    /// The directory of a volume, which is made unless it exists.
    pub(super) fn make(&self, volume: &str) -> Result<PathBuf, LocalVolumeError> {
        let path = self.path(volume)?;
        let made = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(ROOT_MODE).create(&self.root)?;
            let root = openat(CWD, &self.root, FOLDER, Mode::empty())?;
            let is_new = match mkdirat(&root, volume, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(errno.into()),
            };
            let folder = openat(&root, volume, FOLDER, Mode::empty())?;
            if is_new {
                // Set explicitly: the umask of the process does not apply.
                let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
                fs::set_permissions(path, Permissions::from_mode(MODE))?;
            }
            Ok(())
        };
        made().map_err(LocalVolumeError::Io)?;
        Ok(path)
    }

    /// Removes the directory of a volume with everything in it. One that does not exist is removed.
    pub fn remove(&self, volume: &str) -> Result<(), LocalVolumeError> {
        let path = self.path(volume)?;
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(found) if found.is_dir() => {}
            // A link is removed, not followed.
            _ => return fs::remove_file(&path).map_err(LocalVolumeError::Io),
        }
        mounted::remove(&path).map_err(LocalVolumeError::Io)
    }

    /// Whether a path is that of a volume here.
    pub(super) fn has(&self, volume: &str, path: &Path) -> bool {
        self.path(volume).is_ok_and(|own| own == path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_directory_is_made_once_and_removed_with_what_is_in_it() {
        let outside = tempfile::tempdir().unwrap();
        let volumes = LocalVolumes::new(outside.path().join("volumes-local"));
        let path = volumes.make("pvc-1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
        fs::write(path.join("data"), "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2770)).unwrap();
        assert_eq!(volumes.make("pvc-1").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2770, "the mode is that of its pods");
        assert_eq!(fs::read_to_string(path.join("data")).unwrap(), "x");
        volumes.remove("pvc-1").unwrap();
        assert!(!path.exists());
        volumes.remove("pvc-1").unwrap();
    }

    #[test]
    fn nothing_outside_is_removed_whatever_a_container_or_a_name_says() {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("kept"), "").unwrap();
        let volumes = LocalVolumes::new(outside.path().join("volumes-local"));
        let path = volumes.make("pvc-1").unwrap();
        symlink(&victim, path.join("link")).unwrap();
        symlink("../../victim", path.join("up")).unwrap();
        let nested = path.join("a/b");
        fs::create_dir_all(&nested).unwrap();
        for (name, target) in [
            ("root", "/"),
            ("loop", "loop"),
            ("above", ".."),
            ("dangling", "none"),
            ("far", "../../../../victim"),
        ] {
            symlink(target, nested.join(name)).unwrap();
        }
        fs::hard_link(victim.join("kept"), nested.join("hard")).unwrap();
        // What removal calls the folders that it moves up may be taken.
        symlink(&victim, path.join(".removing-0")).unwrap();
        volumes.remove("pvc-1").unwrap();
        assert!(!path.exists());
        // The directory itself was replaced by a link.
        symlink(&victim, &path).unwrap();
        assert!(volumes.make("pvc-1").is_err());
        volumes.remove("pvc-1").unwrap();
        for name in ["", ".", "..", "../victim", "a/b", "/etc", "a\0b", "-x", "A"] {
            assert!(matches!(volumes.remove(name), Err(LocalVolumeError::Name(_))), "{name:?}");
        }
        assert!(victim.join("kept").exists());
    }
}
