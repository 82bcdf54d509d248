//! The data directory of a command that names none.

use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::owner;

/// The variable that names the data directory of the commands about a cluster of this machine that have no `--data-dir`.
pub const DATA_DIR: &str = "PLUMB_DATA_DIR";

/// What a data directory is for, which decides on its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A cluster of `plumb up`.
    Cluster,
    /// A node that joined by `plumb node`.
    Node,
}

impl Purpose {
    /// The default of users who are not root, below the current directory.
    fn here(self) -> &'static str {
        match self {
            Self::Cluster => "./plumb-data",
            Self::Node => "./plumb-node",
        }
    }

    /// The default of root: not in the current directory, which may be any user's.
    fn of_root(self) -> &'static str {
        match self {
            Self::Cluster => "/var/lib/plumb",
            Self::Node => "/var/lib/plumb-node",
        }
    }
}

/// The given data directory or the default one: `./plumb-data`, and for root `/var/lib/plumb` unless there is a
/// `./plumb-data` of root's already.
pub fn given_or_usual(given: Option<PathBuf>, purpose: Purpose) -> PathBuf {
    given.unwrap_or_else(|| {
        let here = Path::new(purpose.here());
        let chosen = choose(purpose, geteuid().is_root(), here);
        if chosen != here && here.exists() {
            say!("plumb: {} is not used: it belongs to another user", here.display());
        }
        chosen
    })
}

fn choose(purpose: Purpose, is_root: bool, here: &Path) -> PathBuf {
    if !is_root || owner::is_own(here) { here.to_owned() } else { purpose.of_root().into() }
}

/// Where `plumb up` writes a kubeconfig by default, in the directory that `PLUMB_DATA_DIR` names or in the usual ones: of those files, the first that is there. One that another user can have
/// written is passed over: a kubeconfig can name a program that clients run.
pub fn existing_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os(DATA_DIR).filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let usual = [Purpose::Cluster.here(), Purpose::Cluster.of_root()].map(PathBuf::from);
    named
        .into_iter()
        .chain(usual)
        .map(|directory| directory.join(super::KUBECONFIG))
        .find(|file| owner::is_trusted_file(file))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn root_uses_the_current_directory_only_for_a_data_directory_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("plumb-data");
        let of = |is_root| choose(Purpose::Cluster, is_root, &here);
        assert_eq!(of(false), here);
        assert_eq!(of(true), Path::new("/var/lib/plumb"));
        assert_eq!(choose(Purpose::Node, true, &here), Path::new("/var/lib/plumb-node"));
        fs::create_dir(&here).unwrap();
        fs::set_permissions(&here, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of(true), here);
        fs::set_permissions(&here, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(of(true), here, "it is refused and not passed over");
    }
}
