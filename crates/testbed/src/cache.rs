//! The cache of obtained programs. A program is renamed into it when it is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext as _};
use crate::release::{self, Release};

/// The folder that outlives runs: `$XDG_CACHE_HOME/plumb/testbed` (or `~/.cache/plumb/testbed`).
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache of the current user, as the environment names it.
    pub fn of_user() -> Result<Self, Error> {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
            .ok_or(Error::NoCacheFolder)?;
        Ok(Self::at(base.join("plumb").join("testbed")))
    }

    /// A cache in a folder of the caller's choosing.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The programs built from the Go module of a release.
    pub fn programs(&self, release: Release) -> PathBuf {
        self.root.join(release.version()).join("bin")
    }

    /// The folder the Go module is laid out in before it is built.
    pub(crate) fn module(&self, release: Release) -> PathBuf {
        self.root.join(release.version()).join("module")
    }

    /// The folder of the Vertical Pod Autoscaler, for its release.
    pub(crate) fn autoscaler(&self) -> PathBuf {
        self.root.join(format!("vertical-pod-autoscaler-{}", release::AUTOSCALER_VERSION))
    }

    /// A program of the Vertical Pod Autoscaler (`vpa-recommender`, `vpa-updater`, `vpa-admission-controller`), if it was
    /// obtained.
    pub fn autoscaler_program(&self, program: &str) -> Result<PathBuf, Error> {
        let path = self.autoscaler().join("bin").join(program);
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::Missing {
            program: format!("{program}; `testbed obtain --autoscaler` builds it"),
            places: path.display().to_string(),
        })
    }

    /// The folder with the manifests of the Vertical Pod Autoscaler, as it ships them.
    pub fn autoscaler_manifests(&self) -> PathBuf {
        self.autoscaler().join("deploy")
    }

    /// The folder of Helm, for its release.
    pub(crate) fn helm_folder(&self) -> PathBuf {
        self.root.join(format!("helm-{}", release::HELM_VERSION))
    }

    /// Helm, if it was obtained.
    pub fn helm(&self) -> Result<PathBuf, Error> {
        let path = self.helm_folder().join("bin").join(release::HELM);
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::Missing {
            program: format!("{}; `testbed obtain --helm` builds it", release::HELM),
            places: path.display().to_string(),
        })
    }

    /// The folder of upstream's end-to-end tests, for their release.
    pub(crate) fn e2e_folder(&self) -> PathBuf {
        self.root.join(format!("e2e-{}", release::VERSION))
    }

    /// A program of upstream's end-to-end tests, if it was obtained: `e2e.test`, or one of their images.
    pub fn e2e_program(&self, program: &str) -> Result<PathBuf, Error> {
        self.e2e_file(&Path::new("bin").join(program))
    }

    /// A file of upstream's end-to-end tests, if it was obtained.
    pub(crate) fn e2e_file(&self, name: &Path) -> Result<PathBuf, Error> {
        let path = self.e2e_folder().join(name);
        if path.exists() {
            return Ok(path);
        }
        Err(Error::Missing {
            program: format!("{}; `testbed obtain --e2e` makes it", name.display()),
            places: path.display().to_string(),
        })
    }

    /// The unpacked Debian packages, one folder each.
    pub fn debian(&self) -> PathBuf {
        self.root.join("debian")
    }

    /// Logs of clusters that failed.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Locks the cache against a second `obtain` until the returned file is dropped.
    pub(crate) fn lock(&self, on_wait: impl FnOnce()) -> Result<File, Error> {
        fs::create_dir_all(&self.root).doing("create", &self.root)?;
        let path = self.root.join("obtain.lock");
        let file = File::create(&path).doing("create", &path)?;
        if file.try_lock().is_err() {
            on_wait();
            file.lock().doing("lock", &path)?;
        }
        Ok(file)
    }
}

/// The path of a file until it is complete: beside its final path, so that the rename is atomic.
pub(crate) fn partial(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.partial"))
}

/// Removes what an interrupted run left under the [`partial`] name.
pub(crate) fn clear_partial(target: &Path) -> Result<PathBuf, Error> {
    let path = partial(target);
    let removed = match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path),
        Ok(_) => fs::remove_file(&path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.doing("remove", &path)?;
    Ok(path)
}
