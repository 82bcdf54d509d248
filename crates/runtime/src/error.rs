//! Errors of a runtime.

use std::io;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. The kinds are those of the gRPC status codes that CRI runtimes use, since callers decide by them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such sandbox, container or image.
    #[error("{what} {id:?} not found")]
    NotFound {
        /// The kind of object: `sandbox`, `container`, `image`.
        what: &'static str,
        /// The requested id or name.
        id: String,
    },
    /// It exists already, under this id.
    #[error("{what} {id:?} already exists")]
    AlreadyExists {
        /// The kind of object.
        what: &'static str,
        /// The id of the existing one.
        id: String,
    },
    /// Not possible in this state: starting a running container, updating an exited one, removing one in use.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The request is invalid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The runtime cannot be reached, or is not ready. It is unknown whether the call took effect.
    #[error("{0}")]
    Unavailable(String),
    /// The call exceeded its deadline. It is unknown whether it took effect.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// This runtime does not implement the call.
    #[error("{0}")]
    Unsupported(String),
    /// The call failed.
    #[error("{doing}: {message}")]
    Failed {
        /// The operation, and its object.
        doing: String,
        /// The error.
        message: String,
        /// The errno, if a system call failed.
        errno: Option<i32>,
    },
}

impl Error {
    /// A missing sandbox.
    pub fn no_sandbox(id: impl Into<String>) -> Self {
        Self::NotFound { what: "sandbox", id: id.into() }
    }

    /// A missing container.
    pub fn no_container(id: impl Into<String>) -> Self {
        Self::NotFound { what: "container", id: id.into() }
    }

    /// A missing image.
    pub fn no_image(name: impl Into<String>) -> Self {
        Self::NotFound { what: "image", id: name.into() }
    }

    /// A failed system call.
    pub fn io(doing: impl Into<String>, error: &io::Error) -> Self {
        Self::Failed { doing: doing.into(), message: error.to_string(), errno: error.raw_os_error() }
    }

    /// A failure that is not a failed system call.
    pub fn failed(doing: impl Into<String>, message: impl ToString) -> Self {
        Self::Failed { doing: doing.into(), message: message.to_string(), errno: None }
    }

    /// Whether the object does not exist, which callers of removals treat as success.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the kernel returned EBUSY: a memory limit below usage.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Failed { errno: Some(errno), .. } if *errno == nix::errno::Errno::EBUSY as i32)
    }

    /// Whether the call may have taken effect nevertheless. The caller then reads back the actual state before it
    /// plans further steps.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::DeadlineExceeded(_))
    }
}
