//! Why the authority cannot be opened, or cannot issue.

use std::path::PathBuf;

use super::files::FileError;

/// What to do about a damaged authority.
pub(super) const RESTORE_AUTHORITY: &str = "restore its certificate and key from a backup; if there is none, move the \
    directory away to begin with a new authority, which no kubeconfig or node made before will trust";

/// What to do about an expired authority that was made elsewhere.
pub(super) const RENEW_ELSEWHERE: &str = "replace it by a renewed certificate for the same name and key";

/// What to do about a damaged certificate that the authority can issue again.
pub(super) const ISSUE_AGAIN: &str = "remove the file to have a new certificate issued";

/// What to do about damaged previous keys.
pub(super) const REMOVE_PREVIOUS_KEYS: &str = "restore it from a backup, or remove it, which ends the service-account tokens signed before the last rotation";

/// What to do about a damaged signing key.
pub(super) const RESTORE_SIGNING_KEY: &str = "restore sa.key from a backup; if there is none, remove sa.key and \
    sa.pub to have a new key made, which ends the service-account tokens signed with the old one";

/// Why the authority cannot be opened, or cannot issue.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),

    /// A file has invalid content, or does not belong to this authority. It is unchanged.
    #[error("{} {what}; {remedy}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, said of the file.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// A certificate is requested for an invalid name.
    #[error("cannot issue a certificate for {name:?}: {what}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },

    /// A key or a certificate cannot be created.
    #[error("cannot make {what}")]
    Make {
        /// What cannot be created.
        what: &'static str,
        /// Why it failed.
        source: rcgen::Error,
    },

    /// A certificate cannot be used for TLS.
    #[error("cannot use the serving certificate for tls")]
    Tls(#[from] rustls::Error),
}

impl PkiError {
    pub(super) fn unfit(path: impl Into<PathBuf>, what: impl Into<String>, remedy: &'static str) -> Self {
        Self::Unfit { path: path.into(), what: what.into(), remedy }
    }

    pub(super) fn make(what: &'static str) -> impl FnOnce(rcgen::Error) -> Self {
        move |source| Self::Make { what, source }
    }
}
