//! The meaning of API errors for a controller.

use kube::core::Status;

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

/// The result of a write, where a conflict ([`is_conflict`]) is a success as well: the watch delivers what the other writer
/// wrote, and the object is reconciled again.
pub fn settled_or_conflict<T>(written: kube::Result<T>) -> kube::Result<()> {
    match written {
        Err(error) if is_conflict(&error) => Ok(()),
        written => settled(written),
    }
}

/// Whether a write failed because the object was modified concurrently. The watch delivers the new version, so controllers
/// wait for it and do not retry.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && !status.is_already_exists())
}

/// Whether the API server does not serve the path of a request, such as a subresource that a later version of Kubernetes
/// added. The details of the status name a missing object, but not a missing path. The response to a path of no API group is
/// plain text.
pub fn is_not_served(status: &Status) -> bool {
    let names_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    let message = status.message.to_lowercase();
    status.code == 404 && !names_object && NOT_SERVED.into_iter().any(|words| message.contains(words))
}

/// Parts of an API server's messages about a path that it does not serve.
const NOT_SERVED: [&str; 2] = ["could not find the requested resource", "page not found"];

/// Why admission denied the write of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// The node of the pod can never hold it.
    NodeCapacity,
    /// The platform of the pod does not support it.
    UnsupportedPlatform,
    /// It exceeds a quota, or what is used of the quota is not known yet.
    Quota,
    /// It is outside of a limit range.
    LimitRange,
    /// A webhook or an admission policy denies it.
    Policy,
}

impl Denial {
    /// Why admission denied a write; `None` if the write failed for another reason. kube-apiserver gives a cause for some
    /// denials, and only a message for the others. A policy chooses the status code of its denial; the default is 400 for a
    /// webhook and 422 for a `ValidatingAdmissionPolicy`.
    pub fn of(status: &Status) -> Option<Self> {
        let says = |words: &str| status.message.contains(words);
        let is_webhook = says("admission webhook \"") && says("denied the request");
        if is_webhook || says("ValidatingAdmissionPolicy '") && says(" denied request") {
            return Some(Self::Policy);
        }
        let has_cause = |reason: &str| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            causes.into_iter().any(|cause| cause.reason == reason)
        };
        if status.code != 403 {
            None
        } else if has_cause("NodeCapacity") {
            Some(Self::NodeCapacity)
        } else if has_cause("UnsupportedPlatform") {
            Some(Self::UnsupportedPlatform)
        } else if QUOTA.into_iter().any(says) {
            Some(Self::Quota)
        } else if LIMIT_RANGE.into_iter().any(says) {
            Some(Self::LimitRange)
        } else {
            None
        }
    }
}

/// Parts of the messages of the plugin `ResourceQuota`.
const QUOTA: [&str; 3] = ["exceeded quota", "failed quota", "status unknown for quota"];
/// Parts of the messages of the plugin `LimitRanger`.
const LIMIT_RANGE: [&str; 3] = [" usage per Container", " usage per Pod", "limit to request ratio per "];

/// Whether a write failed because the object was replaced by another one of the same name: the UID differs.
pub fn is_replaced(status: &Status) -> bool {
    status.code == 409 && status.message.contains("UID in precondition")
}
