//! The disk usage of directories that containers write to.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use jiff::Timestamp;

use crate::types::FilesystemUsage;

/// How many files of a folder are counted at most, and how many bytes the paths of folders may take that are yet to be
/// looked into: containers make as many of them as they like.
const MOST_INODES: u64 = 1 << 22;
const MOST_PENDING: usize = 16 << 20;
/// How many files with several names are remembered, so that they count once.
const MOST_LINKED: usize = 1 << 18;

/// The disk usage of a directory. Takes time for each file: async code calls it through `spawn_blocking`.
pub fn folder_usage(folder: &Path) -> FilesystemUsage {
    let (mut bytes, mut inodes) = (0, 0);
    let mut left = vec![folder.to_owned()];
    let mut pending = folder.as_os_str().len();
    let mut linked = HashSet::new();
    while let Some(path) = left.pop() {
        pending = pending.saturating_sub(path.as_os_str().len());
        let Ok(entries) = fs::read_dir(&path) else { continue };
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
                let path = entry.path();
                if pending + path.as_os_str().len() <= MOST_PENDING {
                    pending += path.as_os_str().len();
                    left.push(path);
                }
            }
        }
    }
    FilesystemUsage {
        at: Timestamp::now(),
        mountpoint: folder.to_owned(),
        used_bytes: bytes,
        inodes_used: inodes,
    }
}

#[cfg(test)]
mod tests {
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
}
