//! Errors of cgroup operations.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// The result of a cgroup operation.
pub type Result<T, E = CgroupError> = std::result::Result<T, E>;

/// Why a cgroup operation failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A system call failed.
    #[error("{doing} {}: {source}", file.display())]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file has content that cannot be parsed.
    #[error("{} says {text:?}, which is not understood", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Its content.
        text: String,
    },
    /// Controllers that containers need are missing.
    #[error("no cgroup hierarchy with cpu and memory is mounted")]
    NoControllers,
}

impl CgroupError {
    pub(super) fn refused(doing: &'static str, file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Refused { doing, file: file.into(), source }
    }

    pub(super) fn malformed(file: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self::Malformed { file: file.into(), text: text.into() }
    }

    /// The errno.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Malformed { .. } | Self::NoControllers => None,
        }
    }

    /// Whether the file or cgroup is missing.
    pub fn is_missing(&self) -> bool {
        // A read from an open file of a removed cgroup fails with ENODEV.
        matches!(self.errno(), Some(Errno::ENOENT | Errno::ENODEV))
    }
}

impl From<CgroupError> for crate::Error {
    fn from(error: CgroupError) -> Self {
        match &error {
            CgroupError::Refused { doing, file, source } => {
                Self::io(format!("{doing} {}", file.display()), source)
            }
            CgroupError::Malformed { .. } | CgroupError::NoControllers => {
                Self::failed("reading a cgroup", &error)
            }
        }
    }
}
