//! The disk usage of directories that containers write to.
//!
//! A container may replace a directory with a symlink while its files are counted. So each directory is opened relative to the
//! top one without following symlinks, and read by its file descriptor: no file outside of the top directory is counted.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::rootfs::path_of;
use crate::types::FilesystemUsage;

/// How many files of a folder are counted at most, and how many bytes the paths of folders may take that are yet to be
/// looked into: containers make as many of them as they like.
const MOST_INODES: u64 = 1 << 22;
const MOST_PENDING: usize = 16 << 20;
/// How many files with several names are remembered, so that they count once.
const MOST_LINKED: usize = 1 << 18;

/// The disk usage of a directory. Takes time for each file: async code calls it through `spawn_blocking`.
pub fn folder_usage(folder: &Path) -> FilesystemUsage {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The path of the top directory is trusted: containers write only below it.
    let (used_bytes, inodes_used) =
        openat(CWD, folder, flags, Mode::empty()).map_or((0, 0), |top| count(&top, |_| {}));
    FilesystemUsage { at: Timestamp::now(), mountpoint: folder.to_owned(), used_bytes, inodes_used }
}

/// The bytes and the inodes in a directory. `before_open` is called with the path of each directory before it is opened, so that
/// a test can replace it.
fn count(top: &OwnedFd, mut before_open: impl FnMut(&Path)) -> (u64, u64) {
    let mut bytes = 0;
    let mut inodes = 0;
    let mut left = vec![PathBuf::from(".")];
    let mut pending = 0_usize;
    let mut linked = HashSet::new();
    while let Some(path) = left.pop() {
        pending = pending.saturating_sub(path.as_os_str().len());
        before_open(&path);
        let Ok(opened) = open_folder(top, &path) else { continue };
        // Reads the opened directory, whatever its path leads to by now.
        let Ok(entries) = fs::read_dir(path_of(&opened)) else { continue };
        for entry in entries.flatten() {
            if inodes == MOST_INODES {
                left.clear();
                break;
            }
            let Ok(found) = entry.metadata() else { continue };
            if !found.is_dir() && found.nlink() > 1 {
                let is_known = !linked.insert((found.dev(), found.ino()));
                if is_known {
                    continue;
                }
                if linked.len() > MOST_LINKED {
                    linked.clear();
                }
            }
            bytes += found.blocks() * 512;
            inodes += 1;
            if found.is_dir() {
                let path = path.join(entry.file_name());
                if pending + path.as_os_str().len() <= MOST_PENDING {
                    pending += path.as_os_str().len();
                    left.push(path);
                }
            }
        }
    }
    (bytes, inodes)
}

/// Opens a directory by its path below another one; fails if a symlink is in that path.
fn open_folder(top: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(top, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_with_several_names_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, vec![1; 1 << 16]).unwrap();
        let before = folder_usage(folder.path());
        fs::hard_link(&file, folder.path().join("b")).unwrap();
        let after = folder_usage(folder.path());
        assert!(before.used_bytes >= 1 << 16);
        assert_eq!((after.used_bytes, after.inodes_used), (before.used_bytes, before.inodes_used));
    }

    #[test]
    fn a_directory_that_is_replaced_with_a_symlink_while_files_are_counted_adds_no_files_of_the_host() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir(host.path().join("inner")).unwrap();
        fs::write(host.path().join("large"), vec![1; 1 << 20]).unwrap();
        fs::write(host.path().join("inner/large"), vec![1; 1 << 20]).unwrap();
        // The directory itself, and one on the path to another one.
        for replaced_before in ["./outer", "./outer/inner"] {
            let folder = tempfile::tempdir().unwrap();
            let outer = folder.path().join("outer");
            fs::create_dir_all(outer.join("inner")).unwrap();
            let top = openat(CWD, folder.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let mut is_replaced = false;
            let (bytes, inodes) = count(&top, |path| {
                if path == Path::new(replaced_before) {
                    fs::rename(&outer, folder.path().join("moved")).unwrap();
                    symlink(host.path(), &outer).unwrap();
                    is_replaced = true;
                }
            });
            assert!(is_replaced, "{replaced_before}");
            assert!(bytes < 1 << 20, "{replaced_before}: {bytes} bytes");
            assert!(inodes <= 2, "{replaced_before}: {inodes} inodes");
        }
    }
}
