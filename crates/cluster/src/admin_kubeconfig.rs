//! The administrator's entries in kubeconfigs: in that of the data directory, or in a file of the user's.
//!
//! `plumb down --purge` removes them from the user's files, whose paths are in the data directory.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plumb_apiserver::kubeconfig::{CurrentContext, DEFAULT_NAME, Entry, remove_entries};
use plumb_apiserver::pki::Pki;

use crate::data_dir::{CONTROL, behind_sudo};

/// The file with the paths of kubeconfigs that have entries of this cluster, a line for each.
const FILES: &str = "kubeconfigs";

/// The kubeconfig that a running cluster keeps up to date.
#[derive(Clone, Debug)]
pub(crate) struct AdminKubeconfig {
    path: PathBuf,
    url: String,
    data_dir: PathBuf,
    /// The name of the entries where the file has another cluster called `plumb`.
    other_name: String,
}

impl AdminKubeconfig {
    /// The entries of the cluster on a data directory, served at a URL, in the file at a path.
    pub(crate) fn new(data_dir: &Path, url: &str, path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            url: url.to_owned(),
            data_dir: std::fs::canonicalize(data_dir).context("finding the data directory")?,
            // As the cgroup of its pods.
            other_name: plumb_runtime::builtin::cgroup_of(data_dir).context("finding the data directory")?,
        })
    }

    /// Writes the entries. They are merged into an existing file; a new one belongs to the user who called `sudo`, who will
    /// run `kubectl`.
    pub(crate) fn write(&self, pki: &Pki, current: CurrentContext) -> anyhow::Result<()> {
        let path = &self.path;
        let entry = Entry::new(DEFAULT_NAME, &self.url, &pki.authority_pem(), &pki.admin());
        let entry = entry.for_data_dir(&self.data_dir, &self.other_name);
        let is_new = !path.exists();
        entry.merge(path, current).with_context(|| format!("writing {}", path.display()))?;
        if let Some((user, group)) = behind_sudo().filter(|_| is_new) {
            // Never through a symbolic link: root would give away the file that the link points to.
            let given = std::os::unix::fs::lchown(path, Some(user), Some(group));
            given.with_context(|| format!("giving {} to user {user}", path.display()))?;
        }
        Ok(())
    }
}

/// Notes that a file of the user's has entries of the cluster on a data directory.
pub(crate) fn remember(data_dir: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let kubeconfig = std::path::absolute(kubeconfig).context("finding the kubeconfig")?;
    if files(data_dir)?.contains(&kubeconfig) {
        return Ok(());
    }
    let folder = data_dir.join(CONTROL);
    let noted = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(folder.join(FILES))?;
        writeln!(file, "{}", kubeconfig.display())
    });
    noted.with_context(|| format!("noting {} in {}", kubeconfig.display(), folder.display()))
}

/// The user's files that have entries of the cluster on a data directory, as far as it is known.
fn files(data_dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let path = data_dir.join(CONTROL).join(FILES);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().map(PathBuf::from).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Removes the entries of the cluster on a data directory from the user's files. Returns the changed files.
pub(crate) fn remove(data_dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let data_dir = std::fs::canonicalize(data_dir).context("finding the data directory")?;
    let mut changed = Vec::new();
    for file in files(&data_dir)? {
        match remove_entries(&file, &data_dir) {
            Ok(true) => changed.push(file),
            Ok(false) => {}
            // The data directory is removed all the same.
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "cannot remove the entries of the cluster");
            }
        }
    }
    Ok(changed)
}
