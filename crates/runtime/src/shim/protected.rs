//! Masked paths, and read-only paths.
//!
//! They are found and mounted over by file descriptors, before the container's root is ours, and what is in `/proc` is
//! known to be in a procfs: no symlink, volume or device file of the container affects it.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, major, minor, openat};
use rustix::io::Errno;

use super::failure::{Doing as _, Result, fail};
use super::mount::{CLOSED, Mounted, READ_ONLY, is_proc_root};
use crate::rootfs::RootFs;

/// The node's `/dev/null`, checked to be one.
pub(super) fn null_device() -> Result<OwnedFd> {
    let null = openat(CWD, "/dev/null", OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let null = null.doing("opening /dev/null")?;
    let found = fstat(&null).doing("looking at /dev/null")?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    if !is_device || (major(found.st_rdev), minor(found.st_rdev)) != (1, 3) {
        return fail("opening /dev/null", "it is another device");
    }
    Ok(null)
}

/// Masks paths: directories are empty, files are `/dev/null`.
pub(super) fn mask(place: &RootFs, paths: &[String]) -> Result<()> {
    let null = null_device()?;
    for path in paths {
        let Some(target) = find(place, path)? else { continue };
        let found = fstat(&target).doing(format_args!("looking at {path}"))?;
        let over = if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            Mounted::new("tmpfs", &[("nr_inodes", "1")], CLOSED | READ_ONLY)?
        } else {
            Mounted::copy_of(&null, false, "/dev/null")?
        };
        over.attach(&target, path)?;
    }
    Ok(())
}

/// Has paths be read-only, with all that is mounted below them.
pub(super) fn protect(place: &RootFs, paths: &[String]) -> Result<()> {
    for path in paths {
        let Some(target) = find(place, path)? else { continue };
        let over = Mounted::copy_of(&target, true, path)?;
        over.set(READ_ONLY, true, path)?;
        over.attach(&target, path)?;
    }
    Ok(())
}

/// The file at a path, if there is one.
fn find(place: &RootFs, path: &str) -> Result<Option<OwnedFd>> {
    let below = |top: &str| Path::new(path).starts_with(top);
    if below("/proc") {
        let proc = place.find_without_symlinks("/proc").doing("opening /proc")?;
        if !is_proc_root(&proc)? {
            return fail(format_args!("protecting {path}"), "/proc is not of type proc");
        }
    }
    let found =
        if below("/proc") || below("/sys") { place.find_without_symlinks(path) } else { place.find(path) };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno).doing(format_args!("protecting {path}")),
    }
}
