//! Errors while a container is created.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

/// The operation that failed, and why.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) doing: String,
    pub(super) why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.why)
    }
}

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Adds the operation to an error.
pub(super) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure { doing: what.to_string(), why: error.into().to_string() })
    }
}

pub(super) fn fail<T>(doing: impl fmt::Display, why: impl fmt::Display) -> Result<T> {
    Err(Failure { doing: doing.to_string(), why: why.to_string() })
}

/// Opens a namespace by the file that leads to it.
pub(super) fn namespace(path: &Path) -> Result<File> {
    File::open(path).doing(format_args!("opening the namespace {}", path.display()))
}
