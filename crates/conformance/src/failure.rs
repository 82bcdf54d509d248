//! Why a case fails.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plumb_resize::list::BadQuantity;

/// Why a case fails. Its text is what the report of the case says.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The cluster differs from what the case expects.
    #[error("{0}")]
    Unmet(String),
    /// The expected state was not observed within the timeout.
    #[error("not within {} s: {last}", .within.as_secs())]
    Timeout {
        /// The timeout.
        within: Duration,
        /// The last observed state.
        last: String,
    },
    /// The watch ended before the expected state was observed.
    #[error("the watch ended")]
    WatchEnded,
    /// A request could not be sent, or the API server refused it.
    #[error(transparent)]
    Request(Arc<kube::Error>),
    /// A request could not be built.
    #[error(transparent)]
    Malformed(Arc<http::Error>),
    /// A JSON text of a case, or an object of the API, does not decode.
    #[error("{text}: {source}")]
    Json {
        /// The text, or its origin.
        text: String,
        /// The error.
        source: Arc<serde_json::Error>,
    },
    /// An object has an invalid quantity.
    #[error(transparent)]
    Quantity(#[from] BadQuantity),
    /// A file of a cgroup cannot be read.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// A step on the way to the result failed.
    #[error("{doing}: {source}")]
    During {
        /// The step.
        doing: String,
        /// The error.
        source: Box<Failure>,
    },
}

impl Failure {
    /// The same error, with the step that failed.
    pub(crate) fn during(self, doing: impl Into<String>) -> Self {
        Self::During { doing: doing.into(), source: Box::new(self) }
    }

    /// A text that does not decode.
    pub(crate) fn json(text: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let text = text.into();
        move |source| Self::Json { text, source: Arc::new(source) }
    }
}

impl From<String> for Failure {
    fn from(unmet: String) -> Self {
        Self::Unmet(unmet)
    }
}

impl From<&str> for Failure {
    fn from(unmet: &str) -> Self {
        Self::Unmet(unmet.to_owned())
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Request(Arc::new(error))
    }
}

impl From<http::Error> for Failure {
    fn from(error: http::Error) -> Self {
        Self::Malformed(Arc::new(error))
    }
}
