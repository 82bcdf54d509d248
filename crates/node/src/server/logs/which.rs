//! Which run of a container the log is of.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use plumb_runtime::types::ContainerId;

/// The container whose log is asked for: the one that runs, the last one that did, or the one before.
pub(super) fn container_id(pod: &Pod, container: &str, previous: bool) -> Result<ContainerId, String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let all =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let own = all.into_iter().flatten().flatten().find(|status| status.name == container);
    let own = own.ok_or_else(|| format!("container {container:?} in pod {name:?} is not available"))?;
    let id = if previous {
        last(own)
            .ok_or_else(|| format!("previous terminated container {container:?} in pod {name:?} not found"))?
    } else {
        current(own).map_err(|why| format!("container {container:?} in pod {name:?} is {why}"))?
    };
    // `runtime://id`.
    Ok(ContainerId::from(id.split_once("://").map_or(id, |(_, id)| id)))
}

fn last(status: &ContainerStatus) -> Option<&str> {
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    ended.container_id.as_deref().filter(|id| !id.is_empty())
}

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
