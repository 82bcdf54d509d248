//! What the kernel refused, and where.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// What cgroup calls answer.
pub type Result<T, E = CgroupError> = std::result::Result<T, E>;

/// Why something could not be done to a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel refused.
    #[error("{doing} {}: {source}", file.display())]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// To which file or folder.
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file says something that we don't understand.
    #[error("{} says {text:?}, which is not understood", file.display())]
    Garbled {
        /// The file.
        file: PathBuf,
        /// What it says.
        text: String,
    },
    /// The controllers that containers need are not there.
    #[error("no cgroup hierarchy with cpu and memory is mounted")]
    NoControllers,
}

impl CgroupError {
    pub(super) fn refused(doing: &'static str, file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Refused { doing, file: file.into(), source }
    }

    pub(super) fn garbled(file: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self::Garbled { file: file.into(), text: text.into() }
    }

    /// The kernel's number for it.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Garbled { .. } | Self::NoControllers => None,
        }
    }

    /// Whether the file or group is not there.
    pub fn is_missing(&self) -> bool {
        // A group that goes away while one of its files is open answers ENODEV.
        matches!(self.errno(), Some(Errno::ENOENT | Errno::ENODEV))
    }
}

impl From<CgroupError> for crate::Error {
    fn from(error: CgroupError) -> Self {
        match &error {
            CgroupError::Refused { doing, file, source } => {
                Self::io(format!("{doing} {}", file.display()), source)
            }
            CgroupError::Garbled { .. } | CgroupError::NoControllers => {
                Self::failed("reading a cgroup", &error)
            }
        }
    }
}
