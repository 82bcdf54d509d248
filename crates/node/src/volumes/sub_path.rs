//! `subPath` mounts: a container sees a part of a volume.
//!
//! Other containers may write to the volume and move files in it at any moment. So the kernel resolves the path and
//! refuses to leave the volume, and the node mounts the open file that was found, not its name.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2};
use rustix::io::Errno;

/// Opens a path in a volume; a missing directory is created. No link leads out of the volume.
pub(super) fn find(volume: &Path, part: &Path) -> io::Result<OwnedFd> {
    let root = open(volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match within(&root, part) {
        Err(Errno::NOENT) => make(&root, part, fs::metadata(volume)?.mode() & 0o7777),
        found => Ok(found?),
    }
}

fn within(root: &OwnedFd, part: &Path) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let part = if part.as_os_str().is_empty() { Path::new(".") } else { part };
    // The kernel returns EAGAIN while another process renames files; then it is tried again.
    for _ in 0..8 {
        let found = openat2(root, part, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how);
        if !matches!(found, Err(Errno::AGAIN)) {
            return found;
        }
    }
    Err(Errno::AGAIN)
}

/// Creates the missing directories, with the mode of the volume's own.
fn make(root: &OwnedFd, part: &Path, mode: u32) -> io::Result<OwnedFd> {
    let mut walked = PathBuf::new();
    let mut here = within(root, Path::new("."))?;
    for name in part.components() {
        let Component::Normal(name) = name else { continue };
        walked.push(name);
        here = match within(root, &walked) {
            Err(Errno::NOENT) => {
                match mkdirat(&here, name, Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                let made = within(root, &walked)?;
                // Set explicitly: the umask of the process does not apply.
                let path = format!("/proc/self/fd/{}", made.as_raw_fd());
                fs::set_permissions(path, Permissions::from_mode(mode))?;
                made
            }
            found => found?,
        };
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn is_at(found: &OwnedFd, path: &Path) -> bool {
        let observed = fs::metadata(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
        observed.ino() == fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn missing_directories_get_the_owner_and_mode_of_the_volume() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        fs::set_permissions(volume, Permissions::from_mode(0o2777)).unwrap();
        let found = find(volume, Path::new("a/b")).unwrap();
        assert!(is_at(&found, &volume.join("a/b")));
        for made in ["a", "a/b"] {
            assert_eq!(fs::metadata(volume.join(made)).unwrap().mode() & 0o7777, 0o2777);
        }
    }

    #[test]
    fn no_link_leads_out_of_the_volume() {
        let outside = tempfile::tempdir().unwrap();
        let volume = outside.path().join("volume");
        fs::create_dir_all(volume.join("real")).unwrap();
        fs::write(volume.join("real/file"), "x").unwrap();
        symlink("real", volume.join("inside")).unwrap();
        symlink("..", volume.join("up")).unwrap();
        symlink("/", volume.join("absolute")).unwrap();
        assert!(is_at(&find(&volume, Path::new("inside/file")).unwrap(), &volume.join("real/file")));
        for part in ["up", "up/x", "absolute", "absolute/etc", "inside/../../x"] {
            assert!(find(&volume, Path::new(part)).is_err(), "{part}");
        }
    }
}
