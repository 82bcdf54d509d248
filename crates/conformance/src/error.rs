//! Errors of a run, as opposed to failures of a case.

use crate::failure::Failure;

/// An error that ends a run. A case that fails is no error but has a verdict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server answered a request of the runner with an error.
    #[error("could not {doing}")]
    Api {
        /// The request.
        doing: &'static str,
        /// The error.
        source: Box<kube::Error>,
    },
    /// The kubeconfig is not usable.
    #[error("could not use the kubeconfig {path}")]
    Kubeconfig {
        /// Which.
        path: String,
        /// The error.
        source: Box<kube::config::KubeconfigError>,
    },
    /// The async runtime did not start.
    #[error("could not start a runtime")]
    Runtime(#[source] std::io::Error),
    /// No case has a name that matches.
    #[error("no case is called {0:?}")]
    NoSuchCase(String),
    /// A request could not be built.
    #[error("could not make a request to {path}")]
    Request {
        /// Where to.
        path: String,
        /// Why not.
        source: http::Error,
    },
    /// A server refused the namespace of the cases.
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
    /// It is unknown what the cluster is capable of.
    #[error("could not discover what the cluster is capable of")]
    Capabilities(#[source] Failure),
    /// A new namespace did not get its service account.
    #[error("the namespace {0} did not get its default service account in time")]
    NoServiceAccount(String),
}

/// Says which request failed.
pub(crate) fn api(doing: &'static str) -> impl Fn(kube::Error) -> Error {
    move |source| Error::Api { doing, source: Box::new(source) }
}
