//! Which run of a container a log is of.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use plumb_runtime::types::ContainerId;

/// Why a container has no log, with the kubelet's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoLog {
    /// The container has no status.
    #[error("container {container:?} in pod {pod:?} is not available")]
    NoStatus {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
    /// The container has no previous run.
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
    /// The container has not started, or its run is lost.
    #[error("container {container:?} in pod {pod:?} is {state}")]
    NotStarted {
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
        /// Its state.
        state: String,
    },
}

/// The id of the container whose log is requested: the one that runs, the last one that did, or the one before.
pub(super) fn container_id(pod: &Pod, container: &str, previous: bool) -> Result<ContainerId, NoLog> {
    let names = || (container.to_owned(), pod.metadata.name.clone().unwrap_or_default());
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let all =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let own = all.into_iter().flatten().flatten().find(|status| status.name == container);
    let own = own.ok_or_else(|| {
        let (container, pod) = names();
        NoLog::NoStatus { container, pod }
    })?;
    let id = if previous {
        last(own).ok_or_else(|| {
            let (container, pod) = names();
            NoLog::NoPrevious { container, pod }
        })?
    } else {
        current(own).map_err(|state| {
            let (container, pod) = names();
            NoLog::NotStarted { container, pod, state }
        })?
    };
    // `runtime://id`.
    Ok(ContainerId::from(id.split_once("://").map_or(id, |(_, id)| id)))
}

fn last(status: &ContainerStatus) -> Option<&str> {
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    ended.container_id.as_deref().filter(|id| !id.is_empty())
}

/// The id of the run whose log is requested, or the state of a container without one.
fn current(status: &ContainerStatus) -> Result<&str, String> {
    let state = status.state.clone().unwrap_or_default();
    let own = status.container_id.as_deref().filter(|id| !id.is_empty());
    let had_one = status.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
    match (state.running, state.terminated, state.waiting) {
        (Some(_), ..) => own.ok_or_else(|| "waiting to start - no logs yet".to_owned()),
        (_, Some(_), _) => {
            let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
            let id = ended.and_then(|ended| ended.container_id.as_deref()).filter(|id| !id.is_empty());
            id.or_else(|| last(status)).ok_or_else(|| "terminated".to_owned())
        }
        _ if had_one => last(status).ok_or_else(|| "terminated".to_owned()),
        (.., Some(waiting)) => Err(match waiting.reason.as_deref().unwrap_or_default() {
            "ErrImagePull" => "waiting to start: image can't be pulled".to_owned(),
            "ImagePullBackOff" => "waiting to start: trying and failing to pull image".to_owned(),
            reason => format!("waiting to start: {reason}"),
        }),
        _ => Err("waiting to start - no logs yet".to_owned()),
    }
}
