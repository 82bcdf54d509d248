//! Why a pod does not follow its template.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::Status;
use plumb_controller_runtime::api_error::{Denial, is_not_served, is_replaced};
use plumb_supervise::Exponential;
use serde::{Deserialize, Serialize};

/// Why a pod is stuck, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StuckReason {
    /// The node defers the resize, for longer than the deadline.
    Deferred,
    /// The node cannot ever run the pod at this size.
    Infeasible,
    /// The node has allocated the resize, and its actuation fails for longer than the deadline.
    Error,
    /// The node has not answered, or has not finished, within the deadline.
    DeadlineExceeded,
    /// The API server refused the resize: the node is too small.
    NodeCapacity,
    /// The API server refused the resize: a `ResourceQuota` is exceeded.
    Quota,
    /// The API server refused the resize: outside of a `LimitRange`.
    LimitRange,
    /// The API server refused the resize for another reason.
    Refused,
    /// The API server does not serve the `/resize` subresource of pods.
    ResizeNotServed,
    /// No resize makes the pod follow: its QoS class would change, for example.
    NotResizable,
    /// A container was restarted for the resize, and the pod is not ready within the deadline.
    NotReady,
    /// The pod became unready while it was soaking.
    SoakNotReady,
    /// A container was restarted while the pod was soaking.
    SoakRestarted,
    /// A container was OOM-killed while the pod was soaking.
    SoakOomKilled,
}

impl StuckReason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Deferred,
        Self::Infeasible,
        Self::Error,
        Self::DeadlineExceeded,
        Self::NodeCapacity,
        Self::Quota,
        Self::LimitRange,
        Self::Refused,
        Self::ResizeNotServed,
        Self::NotResizable,
        Self::NotReady,
        Self::SoakNotReady,
        Self::SoakRestarted,
        Self::SoakOomKilled,
    ];

    /// Whether the node may have applied the resize: a resize back changes the pod again.
    pub const fn is_applied(self) -> bool {
        matches!(
            self,
            Self::Error
                | Self::DeadlineExceeded
                | Self::NotReady
                | Self::SoakNotReady
                | Self::SoakRestarted
                | Self::SoakOomKilled
        )
    }

    /// The reason as it is in conditions, events and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
            Self::Error => "Error",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NodeCapacity => "NodeCapacity",
            Self::Quota => "Quota",
            Self::LimitRange => "LimitRange",
            Self::Refused => "Refused",
            Self::ResizeNotServed => "ResizeNotServed",
            Self::NotResizable => "NotResizable",
            Self::NotReady => "NotReady",
            Self::SoakNotReady => "SoakNotReady",
            Self::SoakRestarted => "SoakRestarted",
            Self::SoakOomKilled => "SoakOomKilled",
        }
    }
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failure as it is recorded on a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Why.
    pub reason: StuckReason,
    /// The message of the API server or the node.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// How often in a row.
    #[serde(default)]
    pub count: u32,
    /// When the resize is sent again; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// The delays after refusals of a pod's resize.
const RETRIES: Exponential = Exponential::new(Duration::from_secs(10), Duration::from_mins(5));

impl Failure {
    /// A refusal by the API server, which is retried after a backoff: quota may be freed, a node may grow.
    pub fn refused(reason: StuckReason, message: String, before: Option<&Self>, now: Timestamp) -> Self {
        let count = before.map_or(0, |before| before.count).saturating_add(1);
        Self { reason, message, at: now, count, retry_at: now.checked_add(RETRIES.after(count)).ok() }
    }

    /// The record of a resize that is sent again and accepted: it counts, and is retried after a backoff, if the pod
    /// does not have the resources afterwards because another client or a webhook undoes it.
    pub fn resent(before: Option<&Self>, now: Timestamp) -> Self {
        let (reason, message) = before.map_or_else(
            || (StuckReason::DeadlineExceeded, "the resize was accepted and undone".to_owned()),
            |before| (before.reason, before.message.clone()),
        );
        Self::refused(reason, message, before, now)
    }

    /// A failure after which the resize is not retried.
    pub fn last(reason: StuckReason, message: String, now: Timestamp) -> Self {
        Self { reason, message, at: now, count: 1, retry_at: None }
    }
}

/// The message for an API server without `pods/resize`: what it needs.
const NOT_SERVED: &str = "the API server does not serve pods/resize, which Kubernetes has from 1.33 on with the feature gate \
     InPlacePodVerticalScaling; enable it, or opt the workload out of in-place rollouts";

/// The meaning of an error of the API server for the pod of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pod is gone, or is another one of the same name.
    Gone,
    /// A failure that does not come from the request itself; the write is retried.
    Transient(String),
    /// The API server refuses the request.
    Refused(StuckReason, String),
}

impl Refusal {
    /// Reads the error of a write.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            other => Self::Transient(other.to_string()),
        }
    }

    /// Reads the error of a resize.
    pub fn of_resize(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if is_not_served(status) => {
                Self::Refused(StuckReason::ResizeNotServed, NOT_SERVED.to_owned())
            }
            _ => Self::of(error),
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = status.message.clone();
        if let Some(denial) = Denial::of(status) {
            let reason = match denial {
                Denial::NodeCapacity => StuckReason::NodeCapacity,
                Denial::Quota => StuckReason::Quota,
                Denial::LimitRange => StuckReason::LimitRange,
                Denial::UnsupportedPlatform | Denial::Policy => StuckReason::Refused,
            };
            return Self::Refused(reason, message);
        }
        match status.code {
            404 => Self::Gone,
            409 if is_replaced(status) => Self::Gone,
            400 | 403 | 422 => Self::Refused(StuckReason::Refused, message),
            _ => Self::Transient(message),
        }
    }
}
