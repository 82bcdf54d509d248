//! Rejections of resizes and evictions by the API server, and the next step.

use std::time::Duration;

use kube::core::Status;
use plumb_controller_runtime::api_error::{Denial, is_not_served};

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
        if let Some(denial) = Denial::of(status) {
            return match denial {
                Denial::NodeCapacity => Self::NodeCapacity(message),
                Denial::UnsupportedPlatform => Self::Invalid(message),
                Denial::Quota => Self::Quota(message),
                Denial::LimitRange => Self::LimitRange(message),
                Denial::Policy => Self::Forbidden(message),
            };
        }
        match status.code {
            // The pod may exist: the updater discovers later whether the subresource is served.
            404 if is_not_served(status) => Self::Unavailable(message),
            403 => Self::Forbidden(message),
            400 | 405 | 413 | 415 | 422 => Self::Invalid(message),
            404 | 410 => Self::Gone(message),
            409 => Self::Conflict(message),
            429 => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
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

/// The backoff after this many failures in a row, beginning with zero.
pub fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.min(16)).min(LONGEST_BACKOFF)
}
