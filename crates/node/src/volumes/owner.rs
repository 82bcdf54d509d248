//! The group of a volume's files: `fsGroup`.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, chownat, fstat, openat};

/// The permissions of the group on files of a volume that containers write.
pub(super) const READ_WRITE: u32 = 0o660;
/// The permissions of the group on files of a volume that containers only read.
pub(super) const READ_ONLY: u32 = 0o440;
/// Additional bits of directories: new files belong to the group as well.
const FOLDER: u32 = 0o2110;

/// When the group of a persistent volume's files is changed (`fsGroupChangePolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChangePolicy {
    /// Whenever a pod mounts it.
    #[default]
    Always,
    /// If the group or the permissions of the volume's root differ.
    OnRootMismatch,
}

impl ChangePolicy {
    pub(super) fn for_pod(pod: &Pod) -> Self {
        let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        match security.and_then(|security| security.fs_group_change_policy.as_deref()) {
            Some("OnRootMismatch") => Self::OnRootMismatch,
            _ => Self::Always,
        }
    }
}

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

    /// Changes the group and its permissions on a path and everything below it. No link is followed: each file is changed
    /// by the descriptor that it was examined through, even if a container replaces it meanwhile.
    pub(super) fn take(self, path: &Path, mode: u32) -> io::Result<()> {
        let Some(group) = self.0 else { return Ok(()) };
        change_group_recursively(&openat(CWD, path, FLAGS, Mode::empty())?, Gid::from_raw(group), mode)
    }

    /// The same of a persistent volume, whose files may have the group of an earlier pod already.
    pub(super) fn take_persistent(self, path: &Path, policy: ChangePolicy) -> io::Result<()> {
        let Some(group) = self.0 else { return Ok(()) };
        let found = fstat(openat(CWD, path, FLAGS, Mode::empty())?)?;
        let wanted = READ_WRITE | FOLDER;
        let matches = found.st_gid == group && found.st_mode & wanted == wanted;
        if policy == ChangePolicy::OnRootMismatch && matches {
            return Ok(());
        }
        self.take(path, READ_WRITE)
    }

    /// The same, of this path alone.
    pub(super) fn take_one(self, path: &Path, mode: u32) -> io::Result<()> {
        let Some(group) = self.0 else { return Ok(()) };
        change_group(&openat(CWD, path, FLAGS, Mode::empty())?, Gid::from_raw(group), mode)
    }
}

const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn change_group_recursively(at: &OwnedFd, group: Gid, mode: u32) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(at)?.st_mode) == FileType::Directory {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut entries = Dir::new(openat(at, c".", flags, Mode::empty())?)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                change_group_recursively(&openat(at, name, FLAGS, Mode::empty())?, group, mode)?;
            }
        }
    }
    change_group(at, group, mode)
}

fn change_group(at: &OwnedFd, group: Gid, mode: u32) -> io::Result<()> {
    let found = fstat(at)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    chownat(at, c"", None, Some(group), AtFlags::EMPTY_PATH)?;
    if kind == FileType::Symlink {
        // The mode of a symbolic link has no meaning.
        return Ok(());
    }
    let mode = if kind == FileType::Directory { mode | FOLDER } else { mode };
    let path = format!("/proc/self/fd/{}", at.as_raw_fd());
    fs::set_permissions(path, Permissions::from_mode(found.st_mode & 0o7777 | mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn ownership_changes_do_not_follow_links() {
        let outside = tempfile::tempdir().unwrap();
        let volume = outside.path().join("volume");
        fs::create_dir_all(volume.join("d")).unwrap();
        let (victim, own) = (outside.path().join("victim"), volume.join("d/own"));
        for file in [&victim, &own] {
            fs::write(file, "").unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
        }
        symlink(&victim, volume.join("link")).unwrap();
        symlink(outside.path(), volume.join("d/up")).unwrap();
        // Another group where that can be set, else one that changes no more than the mode.
        let group =
            if rustix::process::geteuid().is_root() { 4711 } else { rustix::process::getegid().as_raw() };
        let before = fs::metadata(&victim).unwrap();
        Owner::new(Some(group)).take(&volume, READ_WRITE).unwrap();
        let after = fs::metadata(&victim).unwrap();
        assert_eq!((after.gid(), after.mode()), (before.gid(), before.mode()));
        assert_eq!(fs::metadata(outside.path()).unwrap().mode() & 0o2000, 0);
        let own = fs::metadata(&own).unwrap();
        assert_eq!((own.gid(), own.mode() & 0o7777), (group, 0o660));
        assert_eq!(fs::metadata(volume.join("d")).unwrap().mode() & 0o2070, 0o2070);
        assert_eq!(fs::symlink_metadata(volume.join("link")).unwrap().gid(), group);
    }
}
