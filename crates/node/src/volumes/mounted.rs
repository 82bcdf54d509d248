//! Mounts of volumes, and their removal.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use plumb_runtime::mounts_below;
use plumb_runtime::untrusted::remove_tree;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

/// Mounts memory of this size at a folder, unless it is there already.
pub(super) fn memory(at: &Path, bytes: Option<u64>, mode: u32) -> io::Result<()> {
    if is_mount(at)? {
        return Ok(());
    }
    let size = bytes.map_or_else(String::new, |bytes| format!(",size={bytes}"));
    let options = CString::new(format!("mode={mode:04o}{size}")).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", at, "tmpfs", flags, options.as_c_str()).map_err(Into::into)
}

/// Bind-mounts an open file or directory at a path, over any earlier mount. It stays mounted when the path it was
/// opened by changes.
pub(super) fn pin(open: &OwnedFd, at: &Path) -> io::Result<()> {
    release(at)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(open, "", flags)?;
    move_mount(&tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(Into::into)
}

/// Unmounts whatever is mounted at a path, however often.
pub(super) fn release(at: &Path) -> io::Result<()> {
    loop {
        match unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // There is no mount, or no file.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            // A process without the permission to unmount has not mounted either.
            Err(Errno::PERM) if !is_mount(at)? => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether something is mounted at a path.
pub(super) fn is_mount(at: &Path) -> io::Result<bool> {
    let found = statx(CWD, at, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Removes a folder with everything in it, but never anything that is mounted there.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    // The kernel shows mounts by their real paths.
    let folder = match fs::canonicalize(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        folder => folder?,
    };
    // Not found by a walk: containers have made directories in there, of any depth.
    match mounts_below(&folder)?.first() {
        Some(mount) => Err(io::Error::other(format!("{} is still mounted", mount.display()))),
        None => remove_tree(&folder),
    }
}

/// Removes a mount point: an empty directory or file.
pub(super) fn remove_place(at: &Path) -> io::Result<()> {
    if fs::symlink_metadata(at)?.is_dir() { fs::remove_dir(at) } else { fs::remove_file(at) }
}
