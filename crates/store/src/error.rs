//! Why a store cannot be opened.

use std::{fmt, io, path::PathBuf};

/// A place in a file that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it, in bytes from its start.
    pub offset: u64,
    /// What is wrong there.
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
    /// Another opener has the directory.
    #[error("{} is in use by {}", .directory.display(), Holder(*.holder))]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The process that has it, if it said so.
        holder: Option<u32>,
    },
    /// The data cannot be trusted, and nothing of it is served.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The data was written in a format that this program does not know.
    #[error("{file} names the format {found:?}, this program knows {known:?}")]
    Format {
        /// The file that names the format.
        file: String,
        /// What it says.
        found: String,
        /// What it should say.
        known: &'static str,
    },
    /// There are files, but no store.
    #[error("{file} is not part of a store: the directory holds something else")]
    NotAStore {
        /// One of the files.
        file: String,
    },
    /// A backup is restored only where nothing is.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The system failed.
    #[error("{action} {file}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        file: String,
        /// What the system said.
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
