//! Why a run, not a case, could not go on.

/// Why a run could not go on. A case that does not hold is no error but a verdict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server answered a request of ours with an error.
    #[error("could not {doing}")]
    Api {
        /// The request.
        doing: &'static str,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// The kubeconfig could not be used.
    #[error("could not use the kubeconfig {path}")]
    Kubeconfig {
        /// Which.
        path: String,
        /// The library's answer.
        source: Box<kube::config::KubeconfigError>,
    },
    /// A runtime for the requests could not be made.
    #[error("could not start a runtime")]
    Runtime(#[source] std::io::Error),
    /// No case has a name like that.
    #[error("no case is called {0:?}")]
    NoSuchCase(String),
    /// A request could not be made.
    #[error("could not make a request to {path}")]
    Request {
        /// Where to.
        path: String,
        /// Why not.
        source: http::Error,
    },
    /// A server did not take the namespace of the cases.
    #[error("a server did not take the namespace: {0}")]
    Unprepared(String),
    /// A list of differences or skips cannot be read.
    #[error("could not read a list: {0}")]
    List(String),
    /// A case cannot be read.
    #[error("could not read a case")]
    Case(#[source] serde_json::Error),
    /// A file cannot be written.
    #[error("could not write {path}")]
    Unwritten {
        /// Which.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("could not read {path}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A new namespace did not get its service account.
    #[error("the namespace {0} did not get its default service account in time")]
    NoServiceAccount(String),
}

/// Says which request failed.
pub(crate) fn api(doing: &'static str) -> impl Fn(kube::Error) -> Error {
    move |source| Error::Api { doing, source: Box::new(source) }
}
