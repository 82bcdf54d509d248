//! What an error of the API means for a controller.

/// Whether a write failed in a way that leaves nothing to do: the object exists already, it is gone, or its namespace is
/// terminating.
pub fn is_settled(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            let terminating = status.details.as_ref().is_some_and(|details| {
                details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
            });
            status.is_already_exists() || status.is_not_found() || terminating
        }
        _ => false,
    }
}

/// Whether a write met another version of the object than it was made for. The watch delivers the new version, so that
/// controllers wait for it rather than retry.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && !status.is_already_exists())
}
