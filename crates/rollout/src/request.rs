//! Requests that failed.

use plumb_controller_runtime::ObjectRef;

/// A request that the API server refused or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {kind} {object}: {source}")]
pub struct RequestError {
    /// The operation, such as `patching`.
    pub operation: &'static str,
    /// The kind of the object.
    pub kind: &'static str,
    /// The object.
    pub object: ObjectRef,
    /// The error.
    #[source]
    pub source: kube::Error,
}

impl RequestError {
    /// Makes an error of the client that of a request.
    pub(crate) fn of(
        operation: &'static str,
        kind: &'static str,
        object: ObjectRef,
    ) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self { operation, kind, object, source }
    }
}
