//! Which files of a data directory are trusted: those that only the effective user can have written.
//!
//! The authorities in `pki` decide who administers the cluster. Before this check, another user who created
//! `plumb-data/pki/client-ca.{crt,key}` in a shared directory was the administrator of the cluster that root started there.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use nix::unistd::geteuid;

use super::{ENTRIES, KUBECONFIG, PKI};

/// The UID of users who have none in a user namespace: the default of the sysctl `kernel.overflowuid`.
const UNMAPPED: u32 = 65534;

/// The permissions to write of the group and of others.
pub(super) const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Refuses a data directory if another user owns or can write to it, one of its entries, or a file in `pki`.
///
/// The kubeconfig is excepted: it belongs to the user who called `sudo`, and the cluster reads no credentials from it. What
/// is in other entries is protected by the permissions of the entry.
pub(super) fn check(directory: &Path) -> anyhow::Result<()> {
    if !check_path(directory)? {
        return Ok(());
    }
    for name in ENTRIES.iter().filter(|name| **name != KUBECONFIG) {
        check_path(&directory.join(name))?;
    }
    let pki = directory.join(PKI);
    let keys = match std::fs::read_dir(&pki) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(());
        }
        keys => keys.with_context(|| format!("reading {}", pki.display()))?,
    };
    for key in keys {
        check_path(&key.with_context(|| format!("reading {}", pki.display()))?.path())?;
    }
    Ok(())
}

/// The user and group that called `sudo`.
pub(crate) fn behind_sudo() -> Option<(u32, u32)> {
    let id = |name: &str| std::env::var(name).ok()?.parse().ok();
    geteuid().is_root().then(|| id("SUDO_UID").zip(id("SUDO_GID"))).flatten()
}

/// Whether a user may own directories above a data directory, and the kubeconfig in it: the effective user, root, and who
/// called `sudo`, in whose home directory a data directory of root may be.
pub(super) fn trusts(user: u32) -> bool {
    user == geteuid().as_raw()
        || user == 0
        || behind_sudo().is_some_and(|(caller, _)| user == caller)
        || user == UNMAPPED && is_in_user_namespace()
}

/// Whether some users of the machine have no UID in this process: the owner of `/` may be one of them.
fn is_in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

/// Whether only a trusted user can have written a file, and only one can replace it in its directory.
pub(super) fn is_trusted_file(path: &Path) -> bool {
    let is_trusted = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        found.is_ok_and(|found| {
            !found.is_symlink() && trusts(found.uid()) && found.mode() & WRITABLE_BY_OTHERS == 0
        })
    };
    is_trusted(path) && path.parent().is_some_and(is_trusted)
}

/// Whether a path belongs to the effective user, even if others can write to it: an earlier version may have created a data
/// directory with such a mode, which [`check`] then refuses.
pub(super) fn is_own(path: &Path) -> bool {
    matches!(examine(path), Ok(Finding::Trusted | Finding::Writable(_)))
}

/// Refuses a path that another user owns or can write to. Returns whether there is such a path.
pub(crate) fn check_path(path: &Path) -> anyhow::Result<bool> {
    let display = path.display();
    match examine(path).with_context(|| format!("examining {display}"))? {
        Finding::Missing => Ok(false),
        Finding::Trusted => Ok(true),
        Finding::OfUser(owner) => bail!(
            "{display} belongs to user {owner} and not to user {}, who runs this: keys and objects that another user can \
             change are not trusted; choose another directory with --data-dir",
            geteuid()
        ),
        Finding::Writable(mode) => bail!(
            "other users can write to {display} (its mode is {mode:o}): keys and objects that another user can change are not \
             trusted; if no other user has changed anything in it, run `chmod go-w {display}`"
        ),
    }
}

/// Whether a path is trusted, by its owner and its mode.
enum Finding {
    /// Nothing is there.
    Missing,
    /// The effective user alone can have written it.
    Trusted,
    /// It belongs to another user.
    OfUser(u32),
    /// Others may write to it, by its mode.
    Writable(u32),
}

fn examine(path: &Path) -> io::Result<Finding> {
    // Both a link and its target are checked, and not the directory that the target is in: the user who created the link
    // chose that.
    for read in [std::fs::symlink_metadata, std::fs::metadata] {
        let found: std::fs::Metadata = match read(path) {
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
                return Ok(Finding::Missing);
            }
            found => found?,
        };
        if found.uid() != geteuid().as_raw() {
            return Ok(Finding::OfUser(found.uid()));
        }
        let mode = found.mode() & 0o7777;
        // A link has no mode of its own, and the permissions of a socket are those of its directory.
        let has_mode = found.is_file() || found.is_dir();
        if has_mode && mode & WRITABLE_BY_OTHERS != 0 {
            return Ok(Finding::Writable(mode));
        }
    }
    Ok(Finding::Trusted)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A data directory with keys that its owner alone can write to.
    fn data_dir() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(PKI)).unwrap();
        for file in ["pki/client-ca.key", "pki/client-ca.crt"] {
            let path = folder.path().join(file);
            fs::write(&path, "").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(folder.path().join(PKI), Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[test]
    fn a_directory_and_keys_that_others_can_write_to_are_refused() {
        let folder = data_dir();
        check(folder.path()).unwrap();
        check(&folder.path().join("missing")).unwrap();
        for (name, open, closed) in
            [("", 0o777, 0o700), ("pki", 0o770, 0o700), ("pki/client-ca.key", 0o620, 0o600)]
        {
            let path = folder.path().join(name);
            fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
            let refused = check(folder.path()).unwrap_err().to_string();
            assert!(refused.contains(&format!("its mode is {open:o}")), "{name}: {refused}");
            fs::set_permissions(&path, Permissions::from_mode(closed)).unwrap();
            check(folder.path()).unwrap();
        }
    }

    #[test]
    fn the_target_of_a_link_is_checked_too() {
        let folder = data_dir();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), folder.path().join("objects")).unwrap();
        check(folder.path()).unwrap();
        fs::set_permissions(outside.path(), Permissions::from_mode(0o777)).unwrap();
        check(folder.path()).unwrap_err();
    }

    #[test]
    fn root_trusts_nothing_of_another_user_but_the_kubeconfig() {
        if !geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::ROOT, "another user's files need root to make them");
            return;
        }
        let folder = data_dir();
        let given = |name: &str, user: u32| {
            std::os::unix::fs::lchown(folder.path().join(name), Some(user), Some(user)).unwrap();
        };
        fs::write(folder.path().join(KUBECONFIG), "").unwrap();
        given(KUBECONFIG, 1000);
        check(folder.path()).unwrap();
        symlink("elsewhere", folder.path().join("journal")).unwrap();
        for name in ["", "pki", "pki/client-ca.crt", "journal"] {
            given(name, 1000);
            let refused = check(folder.path()).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 1000 and not to user 0"), "{name}: {refused}");
            given(name, 0);
            check(folder.path()).unwrap();
        }
    }
}
