//! The data directory: which entries Plumb makes in it, and how it differs from other directories.
//!
//! `plumb up`, `plumb node`, `plumb restore` and `plumb image` write only to a directory that is missing, empty or Plumb's
//! own, and `plumb down` removes only the entries that are listed here: a path that was mistyped costs no files. No command
//! uses a directory that another user can change (`owner`).

mod ancestors;
mod owner;
mod usual;

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use plumb_node::journal::is_moved_aside;
use plumb_runtime::builtin;
use plumb_runtime::untrusted::remove_tree;

pub(crate) use owner::{behind_sudo, check_path};
pub use usual::{DATA_DIR, Purpose, existing_kubeconfig, given_or_usual};

/// The objects that the API serves.
pub(crate) const OBJECTS: &str = "objects";
/// The allocations of the node.
pub(crate) const JOURNAL: &str = "journal";
/// Certificates and keys.
pub(crate) const PKI: &str = "pki";
/// The kubeconfig of the administrator.
pub(crate) const KUBECONFIG: &str = "kubeconfig";
/// The socket of `plumb backup`.
pub(crate) const CONTROL: &str = "control";
/// The volumes of pods.
pub(crate) const VOLUMES: &str = "volumes";
/// The volumes of the storage class `local-path`, which outlive pods.
pub(crate) const LOCAL_VOLUMES: &str = "volumes-local";
/// What CSI drivers know as the directory of the kubelet.
pub(crate) const KUBELET: &str = "kubelet";
/// The logs of containers.
pub(crate) const LOGS: &str = "logs";
/// The files of pods in a runtime with a CRI socket.
pub(crate) const CRI: &str = "cri";

/// The data directories of further nodes of `plumb up`.
pub(crate) const NODES: &str = "nodes";

/// Every entry that Plumb makes, in the order of their removal: those by which a data directory is known come last, so that
/// a removal that was interrupted can be repeated.
const ENTRIES: [&str; 12] = [
    KUBECONFIG,
    CONTROL,
    LOGS,
    VOLUMES,
    LOCAL_VOLUMES,
    KUBELET,
    CRI,
    NODES,
    PKI,
    builtin::FOLDER,
    JOURNAL,
    OBJECTS,
];
/// Entries that a file system makes in its root.
const OF_FILE_SYSTEM: [&str; 1] = ["lost+found"];

/// How many persistent volumes have their data in a data directory.
pub(crate) fn count_local_volumes(data_dir: &Path) -> std::io::Result<usize> {
    match std::fs::read_dir(data_dir.join(LOCAL_VOLUMES)) {
        Ok(entries) => Ok(entries.count()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Where objects are kept in a data directory.
pub(crate) fn objects(data_dir: &Path) -> PathBuf {
    data_dir.join(OBJECTS)
}

/// Whether Plumb has written to a directory.
pub(crate) fn is_data_dir(directory: &Path) -> bool {
    let pki = directory.join(PKI);
    // A cluster whose objects were moved away, in order to restore a backup.
    let has_cluster_keys = || ["sa.key", "admin.pem"].iter().all(|file| pki.join(file).is_file());
    [OBJECTS, JOURNAL].iter().any(|store| plumb_store::is_store(directory.join(store)))
        || builtin::has_images(directory)
        || has_cluster_keys()
}

/// Refuses a path that is no data directory and cannot become one: a file, a directory with entries that Plumb
/// does not make, or one that another user can change. A directory with only, say, `pki` may become one. Creates nothing.
pub(crate) fn check_usable(directory: &Path) -> anyhow::Result<()> {
    let entries = match entries(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return ancestors::check(directory),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            bail!("{} is no directory; choose another path with --data-dir", directory.display())
        }
        found => found.with_context(|| format!("reading the data directory {}", directory.display()))?,
    };
    if !is_data_dir(directory)
        && let Some(foreign) = entries.iter().find(|name| !is_own(name))
    {
        bail!(
            "{} is no data directory of Plumb and not empty (it has {}); choose an empty or a new directory with --data-dir",
            directory.display(),
            foreign.display()
        );
    }
    owner::check(directory)?;
    ancestors::check(directory)
}

/// Creates a data directory, if it is missing.
///
/// It is checked afterwards, again: another user may have made it, or a directory above it, in the meantime. What is checked
/// then cannot be replaced any more by users who cannot write to the directories above.
pub(crate) fn create(directory: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o755).recursive(true);
    builder
        .create(directory)
        .with_context(|| format!("making the data directory {}", directory.display()))?;
    check_usable(directory)
}

/// Refuses a directory that does not exist, that this user may not read, that Plumb did not make, or that another user
/// can change.
pub fn require(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    let entries = match entries(directory) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            bail!("there is no data directory {shown}; --data-dir names another")
        }
        found => found.with_context(|| format!("reading the data directory {shown}"))?,
    };
    if is_data_dir(directory) {
        return owner::check(directory);
    }
    for own in entries.iter().filter(|name| is_own(name)) {
        let read = std::fs::read_dir(directory.join(own));
        if read.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            bail!("{shown} belongs to another user: run the command as that user, with sudo for root");
        }
    }
    bail!("{shown} is no data directory of Plumb; --data-dir names another")
}

/// A data directory that did not exist: it is removed again unless what makes it succeeds.
pub struct FreshDirectory(Option<PathBuf>);

impl FreshDirectory {
    /// A directory that can be used as `check_usable` has it. Creates nothing.
    pub fn new(directory: &Path) -> anyhow::Result<Self> {
        check_usable(directory)?;
        Ok(Self((!directory.exists()).then(|| directory.to_owned())))
    }

    /// Creates it as the function `create` does. What another user has made in the meantime is not removed.
    pub fn create(&mut self, directory: &Path) -> anyhow::Result<()> {
        create(directory).inspect_err(|_| self.keep())
    }

    /// It stays from now on.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for FreshDirectory {
    fn drop(&mut self) {
        if let Some(directory) = self.0.take().filter(|directory| directory.exists())
            && let Err(error) = remove_tree(&directory)
        {
            tracing::warn!(%error, directory = %directory.display(), "cannot remove a data directory that was made in vain");
        }
    }
}

/// Removes every entry that Plumb makes, and the directory if it is empty then. Returns the remaining entries; none
/// if the directory is removed.
pub(crate) fn remove(directory: &Path) -> anyhow::Result<Option<Vec<OsString>>> {
    let found = entries(directory).with_context(|| format!("reading {}", directory.display()))?;
    let damaged = found.iter().filter(|name| is_damaged_journal(name)).map(|name| directory.join(name));
    for path in damaged.chain(ENTRIES.iter().map(|name| directory.join(name))) {
        remove_tree(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    match std::fs::remove_dir(directory) {
        Ok(()) => Ok(None),
        // Busy is one that a file system is mounted at.
        Err(error) if [ErrorKind::DirectoryNotEmpty, ErrorKind::ResourceBusy].contains(&error.kind()) => {
            entries(directory).map(Some).with_context(|| format!("reading {}", directory.display()))
        }
        Err(error) => Err(error).with_context(|| format!("removing {}", directory.display())),
    }
}

/// The names in a directory, without those that every file system has.
fn entries(directory: &Path) -> std::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if !OF_FILE_SYSTEM.iter().any(|of_file_system| name == *of_file_system) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn is_own(name: &OsString) -> bool {
    ENTRIES.iter().any(|own| name == own) || is_damaged_journal(name)
}

fn is_damaged_journal(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| is_moved_aside(name, JOURNAL))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plumb_store::{Options, Store};

    use super::*;

    #[test]
    fn only_a_directory_that_has_nothing_of_others_becomes_a_data_directory() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        check_usable(&at("missing")).unwrap();
        assert!(!at("missing").exists());
        fs::create_dir_all(at("empty/lost+found")).unwrap();
        check_usable(&at("empty")).unwrap();
        fs::create_dir_all(at("prepared/pki")).unwrap();
        check_usable(&at("prepared")).unwrap();
        fs::create_dir_all(at("home/logs")).unwrap();
        fs::write(at("home/thesis.txt"), "").unwrap();
        let refused = check_usable(&at("home")).unwrap_err().to_string();
        assert!(refused.contains("(it has thesis.txt); choose an empty"), "{refused}");
        let refused = check_usable(&at("home/thesis.txt")).unwrap_err().to_string();
        assert!(refused.ends_with("is no directory; choose another path with --data-dir"), "{refused}");
    }

    #[test]
    fn a_directory_that_is_missing_or_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| require(path).unwrap_err().to_string();
        let missing = folder.path().join("missing");
        assert!(refused(&missing).starts_with("there is no data directory "), "{}", refused(&missing));
        assert!(
            refused(folder.path()).contains("is no data directory of Plumb"),
            "{}",
            refused(folder.path())
        );
        drop(Store::open(objects(folder.path()), Options::default()).unwrap());
        require(folder.path()).unwrap();
    }

    #[test]
    fn a_directory_that_others_made_between_the_check_and_the_creation_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut fresh = FreshDirectory::new(&data).unwrap();
        fs::create_dir_all(data.join("pki")).unwrap();
        fs::set_permissions(data.join("pki"), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = fresh.create(&data).unwrap_err().to_string();
        assert!(refused.contains("other users can write to"), "{refused}");
        drop(fresh);
        assert!(data.exists(), "it is not ours to remove");
        fs::remove_dir_all(&data).unwrap();
        FreshDirectory::new(&data).unwrap().create(&data).unwrap();
    }

    #[test]
    fn a_directory_that_was_made_in_vain_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (fresh, older) = (folder.path().join("fresh"), folder.path().join("older"));
        fs::create_dir_all(&older).unwrap();
        for directory in [&fresh, &older] {
            let made = FreshDirectory::new(directory).unwrap();
            fs::create_dir_all(directory.join("runtime/images")).unwrap();
            drop(made);
        }
        assert!(!fresh.exists());
        assert!(older.join("runtime/images").exists());
    }

    #[test]
    fn directories_of_others_are_no_data_directories_whatever_their_entries_are_called() {
        let folder = tempfile::tempdir().unwrap();
        for name in ENTRIES {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::create_dir_all(folder.path().join("runtime/images")).unwrap();
        fs::write(folder.path().join("objects/LOCK"), "").unwrap();
        fs::write(folder.path().join("pki/sa.key"), "").unwrap();
        assert!(!is_data_dir(folder.path()));
        drop(Store::open(folder.path().join("journal"), Options::default()).unwrap());
        assert!(is_data_dir(folder.path()));
    }

    #[test]
    fn files_that_plumb_did_not_create_survive_the_removal() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let make = || {
            drop(Store::open(objects(&data), Options::default()).unwrap());
            fs::create_dir_all(data.join("journal.damaged-1")).unwrap();
            fs::write(data.join("kubeconfig"), "").unwrap();
        };
        make();
        fs::write(data.join("thesis.txt"), "").unwrap();
        assert_eq!(remove(&data).unwrap(), Some(vec!["thesis.txt".into()]));
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
        fs::remove_file(data.join("thesis.txt")).unwrap();
        make();
        assert_eq!(remove(&data).unwrap(), None);
        assert!(!data.exists());
    }
}
