//! Why a case fails.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plumb_resize::list::BadQuantity;

/// Why a case fails. Its text is what the report of the case says.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The cluster does something else than the case says.
    #[error("{0}")]
    Unmet(String),
    /// What must come did not come in time.
    #[error("not within {} s: {last}", .within.as_secs())]
    Timeout {
        /// How long was waited.
        within: Duration,
        /// What was observed last.
        last: String,
    },
    /// A watch ended before what must come has come.
    #[error("the watch ended")]
    WatchEnded,
    /// A request could not be sent, or was refused.
    #[error(transparent)]
    Request(Arc<kube::Error>),
    /// A request is none.
    #[error(transparent)]
    Malformed(Arc<http::Error>),
    /// A text of a case, or an object of the API, is not what it should be.
    #[error("{text}: {source}")]
    Json {
        /// The text, or what it is of.
        text: String,
        /// Why it cannot be read.
        source: Arc<serde_json::Error>,
    },
    /// An object has an amount that is none.
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
    /// Something else failed on the way to it.
    #[error("{doing}: {source}")]
    During {
        /// What was being done, or what did not come of it.
        doing: String,
        /// What failed.
        source: Box<Failure>,
    },
}

impl Failure {
    /// The same, with what was being done.
    pub(crate) fn during(self, doing: impl Into<String>) -> Self {
        Self::During { doing: doing.into(), source: Box::new(self) }
    }

    /// A text that cannot be read.
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
