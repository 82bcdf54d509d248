//! When a boost ends.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plumb_vpa_api::VerticalPodAutoscalerSpec;

use super::annotation::read_boosts;

/// When a container is to be unboosted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The pod has been ready for the duration of its VPA.
    Ready(Timestamp),
    /// The pod is not ready, and is not waited for any longer than this.
    Deadline(Timestamp),
    /// The pod is not ready, and is waited for.
    OnceReady,
}

impl Due {
    /// When that is, if it is known.
    pub fn at(self) -> Option<Timestamp> {
        match self {
            Self::Ready(at) | Self::Deadline(at) => Some(at),
            Self::OnceReady => None,
        }
    }

    /// The same, for a pod that became ready this much later than its condition has it, whose time is in whole
    /// seconds.
    #[must_use]
    pub fn delayed(self, by: SignedDuration) -> Self {
        match self {
            Self::Ready(at) => Self::Ready(at.saturating_add(by).unwrap_or(Timestamp::MAX)),
            other => other,
        }
    }

    /// Whether it is that time.
    pub fn is_due(self, now: Timestamp) -> bool {
        self.at().is_some_and(|at| at <= now)
    }
}

/// When a boosted container of a pod is to be unboosted: `durationSeconds` after the pod became ready, and if it is not
/// ready, the deadline after its start, or after the restart that it was boosted for.
///
/// Without a VPA, or if the VPA has no boost any more, the boost ends as soon as the pod is ready.
pub fn due(
    pod: &Pod,
    container: &str,
    vpa: Option<&VerticalPodAutoscalerSpec>,
    deadline: Option<Duration>,
) -> Due {
    let after = |start: Timestamp, length: Duration| {
        let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        start.saturating_add(length).unwrap_or(Timestamp::MAX)
    };
    if let Some(ready) = ready_since(pod) {
        let duration = vpa.map_or(Duration::ZERO, |vpa| vpa.startup_boost_duration(container));
        return Due::Ready(after(ready, duration));
    }
    let status = pod.status.as_ref();
    let started = status.and_then(|status| status.start_time.as_ref());
    let started = started.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    let restarted = read_boosts(pod).get(container).and_then(|boost| boost.restarted);
    let started = started.max(restarted);
    match started.zip(deadline) {
        Some((started, deadline)) => Due::Deadline(after(started, deadline)),
        None => Due::OnceReady,
    }
}

/// Since when a pod is ready, if it is. A ready pod without a time counts as ready since ever.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready =
        conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}
