//! Why a runtime did not do what it was asked.

use std::io;

/// What a call answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a runtime did not do what it was asked. The kinds are those that a CRI runtime answers with, since
/// whoever calls decides by them what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such sandbox, container or image.
    #[error("{what} {id:?} not found")]
    NotFound {
        /// What was looked for: `sandbox`, `container`, `image`.
        what: &'static str,
        /// The name it was looked for by.
        id: String,
    },
    /// It is there already, under this id.
    #[error("{what} {id:?} already exists")]
    AlreadyExists {
        /// What was to be made.
        what: &'static str,
        /// What is there.
        id: String,
    },
    /// Not in this state: starting what runs, updating what has ended, removing what is used.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The request makes no sense, now or later.
    #[error("{0}")]
    InvalidArgument(String),
    /// The runtime cannot be reached, or is not ready. Whether the call had an effect is not known.
    #[error("{0}")]
    Unavailable(String),
    /// It took longer than it was given. Whether the call had an effect is not known.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// This runtime does not offer that.
    #[error("{0}")]
    Unsupported(String),
    /// It was tried and failed.
    #[error("{doing}: {message}")]
    Failed {
        /// What was being done, on what.
        doing: String,
        /// What went wrong.
        message: String,
        /// The kernel's number for it, where the kernel refused.
        errno: Option<i32>,
    },
}

impl Error {
    /// A sandbox that is not there.
    pub fn no_sandbox(id: impl Into<String>) -> Self {
        Self::NotFound { what: "sandbox", id: id.into() }
    }

    /// A container that is not there.
    pub fn no_container(id: impl Into<String>) -> Self {
        Self::NotFound { what: "container", id: id.into() }
    }

    /// An image that is not there.
    pub fn no_image(name: impl Into<String>) -> Self {
        Self::NotFound { what: "image", id: name.into() }
    }

    /// Something that the operating system refused.
    pub fn io(doing: impl Into<String>, error: &io::Error) -> Self {
        Self::Failed { doing: doing.into(), message: error.to_string(), errno: error.raw_os_error() }
    }

    /// Something that failed without the operating system's part.
    pub fn failed(doing: impl Into<String>, message: impl ToString) -> Self {
        Self::Failed { doing: doing.into(), message: message.to_string(), errno: None }
    }

    /// Whether it is about something that is not there: for removals that is as good as done.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the kernel refused because of what is in use: a memory limit below usage.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Failed { errno: Some(errno), .. } if *errno == nix::errno::Errno::EBUSY as i32)
    }

    /// Whether the call may have had its effect all the same. Whoever gets such an answer reads back before
    /// planning on.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::DeadlineExceeded(_))
    }
}
