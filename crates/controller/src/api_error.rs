//! The meaning of API errors for a controller.

/// Whether a write failed in a way that needs no retry: the object exists already, it is gone, or its namespace is
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

/// The result of a write, where a failure that needs no retry ([`is_settled`]) is a success.
pub fn settled<T>(written: kube::Result<T>) -> kube::Result<()> {
    match written {
        Err(error) if !is_settled(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The same, where a write that met another version of the object ([`is_conflict`]) succeeded too: the watch delivers what
/// the other writer wrote, and the object is reconciled again.
pub fn settled_or_conflict<T>(written: kube::Result<T>) -> kube::Result<()> {
    match written {
        Err(error) if is_conflict(&error) => Ok(()),
        written => settled(written),
    }
}

/// Whether a write met another version of the object than it was made for. The watch delivers the new version, so that
/// controllers wait for it rather than retry.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && !status.is_already_exists())
}
