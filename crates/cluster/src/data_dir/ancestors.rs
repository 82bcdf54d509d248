//! The directories above a data directory: who can write to one of them can replace the data directory after it was checked.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::unistd::geteuid;

use super::owner::{WRITABLE_BY_OTHERS, trusts};

/// The permission bits of a directory in which each user can rename and remove only their own entries, such as `/tmp`.
const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Refuses a path one of whose directories another user can write to, or owns. It need not exist.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    let path = std::path::absolute(path).with_context(|| format!("examining {}", path.display()))?;
    // Links lead elsewhere: both ways are checked.
    let resolved = path.ancestors().find_map(|existing| existing.canonicalize().ok());
    let resolved = resolved.iter().flat_map(|resolved| resolved.ancestors());
    let directories = path.ancestors().skip(1).chain(resolved).map(Path::to_owned);
    let mut checked: Vec<PathBuf> = Vec::new();
    for directory in directories {
        // The path itself is checked by its owner and mode, where it is a data directory already.
        if directory == path || checked.contains(&directory) {
            continue;
        }
        check_one(&directory, &path)?;
        checked.push(directory);
    }
    Ok(())
}

fn check_one(directory: &Path, path: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    for read in [std::fs::symlink_metadata, std::fs::metadata] {
        let found: Metadata = match read(directory) {
            Err(error) if missing.contains(&error.kind()) => return Ok(()),
            found => found.with_context(|| format!("examining {shown}"))?,
        };
        if !trusts(found.uid()) {
            bail!(
                "{shown} belongs to user {}, who can replace {}; choose another directory with --data-dir",
                found.uid(),
                path.display()
            );
        }
        if found.is_dir() && is_writable_by_others(found.mode(), found.gid()) {
            bail!(
                "other users can write to {shown} (its mode is {:o}) and replace {}; run `chmod go-w {shown}`, or choose another \
                 directory with --data-dir",
                found.mode() & 0o7777,
                path.display()
            );
        }
    }
    Ok(())
}

/// Whether others can replace entries of a directory.
///
/// The group counts unless it is the private group of the user, as many distributions have it with a umask of 002, or that
/// of root.
fn is_writable_by_others(mode: u32, group: u32) -> bool {
    if mode & STICKY != 0 {
        return false;
    }
    let is_private = group == geteuid().as_raw() || group == 0;
    mode & if is_private { WRITABLE_BY_ALL } else { WRITABLE_BY_OTHERS } != 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn directories_above_that_others_can_write_to_are_refused_unless_they_are_sticky() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        fs::create_dir_all(above.join("between")).unwrap();
        let data = above.join("between/missing/data");
        check(&data).unwrap();
        for (mode, refused) in [(0o777, true), (0o1777, false), (0o757, true), (0o755, false)] {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(&data).is_err(), refused, "{mode:o}");
        }
        fs::set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
        let refused = check(&data).unwrap_err().to_string();
        assert!(refused.contains(&format!("other users can write to {}", above.display())), "{refused}");
        // By a link, too.
        let link = folder.path().join("link");
        symlink(above.join("between"), &link).unwrap();
        check(&link.join("data")).unwrap_err();
    }

    #[test]
    fn a_group_that_others_are_in_counts() {
        let own = geteuid().as_raw();
        assert!(is_writable_by_others(0o775, own + 100_000));
        assert!(!is_writable_by_others(0o1775, own + 100_000));
        assert!(!is_writable_by_others(0o775, own) && !is_writable_by_others(0o755, own + 100_000));
    }

    #[test]
    fn a_directory_above_of_another_user_is_refused() {
        if !geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::ROOT, "another user's files need root to make them");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        fs::create_dir(&above).unwrap();
        std::os::unix::fs::lchown(&above, Some(1000), Some(1000)).unwrap();
        let refused = check(&above.join("data")).unwrap_err().to_string();
        assert!(refused.contains("above belongs to user 1000, who can replace"), "{refused}");
    }
}
