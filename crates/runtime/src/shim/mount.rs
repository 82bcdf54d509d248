//! Mounts that are complete before they are attached: from then on nothing has to be found by its path again, so
//! there is no moment at which a volume could be written that must not be, even if the folders above it are renamed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, FsWord, PROC_SUPER_MAGIC, fstat, fstatfs};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::failure::{Doing as _, Result};
use crate::sys;

/// No set-user-id programs, no programs at all, no devices.
pub(super) const CLOSED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
    .union(MountAttrFlags::MOUNT_ATTR_NODEV);
pub(super) const READ_ONLY: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY;
/// The inode number of the root of procfs.
const PROC_ROOT: u64 = 1;

/// A mount, which need not be attached anywhere yet. Closed before it was, it is gone.
pub(super) struct Mounted(OwnedFd);

impl AsFd for Mounted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Mounted {
    /// A copy of what is mounted at a path of the node.
    pub(super) fn copy(path: &Path, recursive: bool) -> Result<Self> {
        let copied = open_tree(CWD, path, copy_flags(recursive));
        copied.map(Self).doing(format_args!("opening {} for a mount", path.display()))
    }

    /// A copy of what is open.
    pub(super) fn copy_of(open: impl AsFd, recursive: bool, path: &str) -> Result<Self> {
        let flags = copy_flags(recursive) | OpenTreeFlags::AT_EMPTY_PATH;
        open_tree(open, "", flags).map(Self).doing(format_args!("opening {path} for a mount"))
    }

    /// A new file system. An option without a value is a flag.
    pub(super) fn new(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<Self> {
        let make = || {
            let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_set_string(&context, "source", kind)?;
            for (name, value) in options {
                if value.is_empty() {
                    fsconfig_set_flag(&context, *name)?;
                } else {
                    fsconfig_set_string(&context, *name, *value)?;
                }
            }
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        make().map(Self).doing(format_args!("making a file system of type {kind}"))
    }

    /// Adds attributes.
    pub(super) fn set(&self, attributes: MountAttrFlags, recursive: bool, path: &str) -> Result<()> {
        let set = sys::set_mount_attributes(self, attributes, None, recursive);
        set.doing(format_args!("setting the mount attributes of {path}"))
    }

    /// Sets which later mounts are seen on the other side, here and below.
    pub(super) fn propagate(&self, propagation: MountPropagationFlags, path: &str) -> Result<()> {
        let set = sys::set_mount_attributes(self, MountAttrFlags::empty(), Some(propagation), true);
        set.doing(format_args!("setting the mount propagation of {path}"))
    }

    /// Attaches it. The path is only for the message.
    pub(super) fn attach(&self, at: impl AsFd, path: &str) -> Result<()> {
        let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(self, "", at, "", empty).doing(format_args!("mounting at {path}"))
    }

    pub(super) fn is_directory(&self) -> Result<bool> {
        let found = fstat(self).doing("looking at a mount")?;
        Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }
}

fn copy_flags(recursive: bool) -> OpenTreeFlags {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive { flags | OpenTreeFlags::AT_RECURSIVE } else { flags }
}

/// Whether what is open is the root of a procfs, and not something that looks like it.
pub(super) fn is_proc_root(open: impl AsFd) -> Result<bool> {
    let kind: FsWord = fstatfs(&open).doing("looking at a file system")?.f_type;
    Ok(kind == PROC_SUPER_MAGIC && fstat(open).doing("looking at a file system")?.st_ino == PROC_ROOT)
}
