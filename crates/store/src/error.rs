//! Why a store cannot be opened.

use std::{fmt, io, path::PathBuf};

use crate::TransformError;

/// A position in a file whose content is corrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The offset in bytes.
    pub offset: u64,
    /// What is corrupt.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at offset {}: {}", self.file, self.offset, self.what)
    }
}

impl std::error::Error for Damage {}

/// Why a store was not opened or restored.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is locked by another opener.
    #[error("{} is in use by {}", .directory.display(), Holder(*.holder))]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The pid of the process that holds the lock, if known.
        holder: Option<u32>,
    },
    /// The data is corrupt, and none of it is served.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The data is in a format that this program does not support.
    #[error("{file} names the format {found:?}, this program knows {known:?}")]
    Format {
        /// The file that names the format.
        file: String,
        /// The format found.
        found: String,
        /// The supported format.
        known: &'static str,
    },
    /// The directory has files that do not belong to a store.
    #[error("{file} is not part of a store: the directory has other content")]
    NotAStore {
        /// One of the files.
        file: String,
    },
    /// The [`crate::Transformer`] cannot read a value, for example because it lacks the key. No file was rewritten.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// A backup is restored into an empty directory only.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A system call failed.
    #[error("{action} {file}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        file: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The thread for writes could not be started.
    #[error("start the commit thread")]
    Thread(#[source] io::Error),
}

struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}
