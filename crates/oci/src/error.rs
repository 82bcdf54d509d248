//! Why an image cannot be pulled.

use std::io;

use crate::digest::Digest;

/// Why an image cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry has no such image.
    #[error("{0}: not found")]
    NotFound(String),
    /// The registry refuses it to these credentials, or to an anonymous user.
    #[error(
        "{reference}: pull access denied, repository does not exist or may require authorization: {message}"
    )]
    Denied {
        /// The repository.
        reference: String,
        /// What the registry says.
        message: String,
    },
    /// The registry cannot be reached, does not respond in time, or has a problem of its own.
    #[error("{what}: {message}")]
    Unavailable {
        /// What was requested.
        what: String,
        /// What went wrong.
        message: String,
    },
    /// The certificate of the registry, or that of this client, is not trusted.
    #[error("{what}: {message}")]
    Untrusted {
        /// What was requested.
        what: String,
        /// What went wrong.
        message: String,
    },
    /// The registry responds with something that is not used, or exceeds a limit.
    #[error("{what}: {why}")]
    Unusable {
        /// What was requested.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Content is not what its digest says.
    #[error("{what} has the digest {found} instead of {expected}: it is damaged or was changed")]
    Digest {
        /// What was requested.
        what: String,
        /// The digest that it was requested by.
        expected: Digest,
        /// That of the content.
        found: Digest,
    },
    /// A file could not be written.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
}

impl PullError {
    pub(crate) fn unusable(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Unusable { what: what.into(), why: why.into() }
    }

    pub(crate) fn unavailable(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Unavailable { what: what.into(), message: message.into() }
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Whether the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Untrusted { .. })
    }
}
