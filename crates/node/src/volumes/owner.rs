//! Whom the files of a volume belong to: `fsGroup`.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::Path;

/// What the group may do with files of a volume that containers write.
pub(super) const READ_WRITE: u32 = 0o660;
/// And of one that they only read.
pub(super) const READ_ONLY: u32 = 0o440;
/// On top of that for folders, where what is made belongs to the group as well.
const FOLDER: u32 = 0o2110;

/// The group that a pod's volumes belong to, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner(Option<u32>);

impl Owner {
    pub(super) fn new(group: Option<u32>) -> Self {
        Self(group)
    }

    pub(super) fn group(self) -> Option<u32> {
        self.0
    }

    /// Gives everything from here on down to the group, which may then do this with it.
    pub(super) fn take(self, path: &Path, mode: u32) -> io::Result<()> {
        if self.0.is_some() && fs::symlink_metadata(path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.take(&entry?.path(), mode)?;
            }
        }
        self.take_one(path, mode)
    }

    /// The same for this alone.
    pub(super) fn take_one(self, path: &Path, mode: u32) -> io::Result<()> {
        let Some(group) = self.0 else { return Ok(()) };
        let found = fs::symlink_metadata(path)?;
        lchown(path, None, Some(group))?;
        if found.is_symlink() {
            // Its mode means nothing, and to change it would be to change what it leads to.
            return Ok(());
        }
        let mode = if found.is_dir() { mode | FOLDER } else { mode };
        fs::set_permissions(path, Permissions::from_mode(found.permissions().mode() & 0o7777 | mode))
    }
}
