//! Rejections of resizes and evictions by the API server, and the next step.

use std::time::Duration;

use kube::core::Status;

/// The longest wait after failures and refusals.
pub const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// The wait after the first failure in a row; each further one doubles it.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// Why a request was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pod's node can never hold it (403 with cause `NodeCapacity`).
    #[error("{0}")]
    NodeCapacity(String),
    /// The request is invalid (422), or not supported on the pod's platform: asking again does not help.
    #[error("{0}")]
    Invalid(String),
    /// A resource quota is exceeded.
    #[error("{0}")]
    Quota(String),
    /// A limit range forbids it.
    #[error("{0}")]
    LimitRange(String),
    /// A policy, a webhook or missing permissions forbid it.
    #[error("{0}")]
    Forbidden(String),
    /// The pod has changed since.
    #[error("{0}")]
    Conflict(String),
    /// A disruption budget does not allow an eviction now (429), or the API server is overloaded.
    #[error("{message}")]
    TooManyRequests {
        /// Its message.
        message: String,
        /// When to retry, if it has that.
        retry_after: Option<Duration>,
    },
    /// The API server failed, or did not answer.
    #[error("{0}")]
    Unavailable(String),
    /// The pod is gone.
    #[error("{0}")]
    Gone(String),
}

/// The next step of the updater after a resize was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalAction {
    /// Records the values as infeasible on the pod's node.
    RecordInfeasible,
    /// Records the values as rejected: they are not sent again for this generation of the pod.
    RecordRejected,
    /// Tries again after this time, or when the quotas or limit ranges of the namespace change.
    Retry(Duration),
    /// Waits for the pod's new version, which the watch delivers.
    ReadAgain,
    /// Forgets the pod.
    Forget,
}

impl Refusal {
    /// Reads an error of the API.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            error => Self::Unavailable(error.to_string()),
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = status.message.clone();
        let details = status.details.as_ref();
        let has_cause = |word: &str| {
            details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == word))
        };
        if is_policy(&message) {
            return Self::Forbidden(message);
        }
        match status.code {
            403 if has_cause("NodeCapacity") => Self::NodeCapacity(message),
            403 if has_cause("UnsupportedPlatform") => Self::Invalid(message),
            403 if message.contains("exceeded quota") || message.contains("failed quota") => {
                Self::Quota(message)
            }
            // A quota whose usage was not computed yet, or that is being written, is one that changes.
            403 if message.contains("status unknown for quota") => Self::Quota(message),
            403 if is_limit_range(&message) => Self::LimitRange(message),
            403 => Self::Forbidden(message),
            400 | 405 | 413 | 415 | 422 => Self::Invalid(message),
            404 | 410 => Self::Gone(message),
            409 => Self::Conflict(message),
            429 => {
                let seconds = details.map_or(0, |details| details.retry_after_seconds);
                let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                Self::TooManyRequests { message, retry_after }
            }
            _ => Self::Unavailable(message),
        }
    }

    /// The next step after a resize was rejected, given the number of rejections in a row before it.
    pub fn next(&self, failures: u32) -> RefusalAction {
        match self {
            Self::NodeCapacity(_) => RefusalAction::RecordInfeasible,
            Self::Invalid(_) => RefusalAction::RecordRejected,
            Self::Conflict(_) => RefusalAction::ReadAgain,
            Self::Gone(_) => RefusalAction::Forget,
            Self::TooManyRequests { retry_after: Some(wait), .. } => {
                RefusalAction::Retry(backoff(failures).max(*wait).min(LONGEST_BACKOFF))
            }
            Self::Quota(_)
            | Self::LimitRange(_)
            | Self::Forbidden(_)
            | Self::TooManyRequests { retry_after: None, .. }
            | Self::Unavailable(_) => RefusalAction::Retry(backoff(failures)),
        }
    }

    /// Whether a mode that may evict evicts the pod instead: it cannot be resized, but another pod instead of it may
    /// be created elsewhere with these values. A quota, a limit range or a policy that rejected the resize could
    /// reject that pod, too, so that the workload would lose a pod.
    pub fn allows_eviction(&self) -> bool {
        matches!(self, Self::NodeCapacity(_) | Self::Invalid(_))
    }

    /// The word for it in events, metrics and conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NodeCapacity(_) => "NodeCapacity",
            Self::Invalid(_) => "Invalid",
            Self::Quota(_) => "QuotaExceeded",
            Self::LimitRange(_) => "LimitRange",
            Self::Forbidden(_) => "Forbidden",
            Self::Conflict(_) => "Conflict",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Unavailable(_) => "Unavailable",
            Self::Gone(_) => "NotFound",
        }
    }
}

/// Whether a policy denied the request. Its code does not show it: a webhook that gives none is answered with 400, a
/// `ValidatingAdmissionPolicy` with 422, and the webhook may give any other.
fn is_policy(message: &str) -> bool {
    let is_webhook = message.contains("admission webhook \"") && message.contains("denied the request");
    is_webhook || message.contains("ValidatingAdmissionPolicy '") && message.contains(" denied request")
}

/// Whether the `LimitRanger` plugin rejected it: kube-apiserver gives no cause, but a message.
fn is_limit_range(message: &str) -> bool {
    let words = [" usage per Container", " usage per Pod", "limit to request ratio per "];
    words.into_iter().any(|words| message.contains(words))
}

/// The backoff after this many failures in a row, beginning with zero.
pub fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.min(16)).min(LONGEST_BACKOFF)
}
