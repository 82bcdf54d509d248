//! The statuses of a pod's containers.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, EphemeralContainer, LinuxContainerUser, PodStatus,
    VolumeMount, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_resize::aggregate::Role;

use super::StatusInput;
use crate::lifecycle::{ObservedContainer, Startup, State, containers};

/// The waiting state of a container: a reason and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Writes the statuses of all containers.
pub(super) fn publish(input: &StatusInput<'_>, old: &PodStatus, status: &mut PodStatus) {
    let Some(spec) = &input.pod.spec else { return };
    let (mut init, mut main) = (Vec::new(), Vec::new());
    for (position, (container, part)) in containers(spec).zip(&input.shape.containers).enumerate() {
        let (before, to) = match part.role {
            Role::Main => (&old.container_statuses, &mut main),
            Role::Init | Role::Sidecar => (&old.init_container_statuses, &mut init),
        };
        let before = before.iter().flatten().find(|before| before.name == container.name);
        to.push(of(input, position, part.role, container, before));
    }
    status.container_statuses = (!main.is_empty()).then_some(main);
    status.init_container_statuses = (!init.is_empty()).then_some(init);
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| {
        let before = old.ephemeral_container_statuses.iter().flatten();
        ephemeral(input, container, before.into_iter().find(|before| before.name == container.name))
    });
    let ephemeral: Vec<_> = ephemeral.collect();
    status.ephemeral_container_statuses = (!ephemeral.is_empty()).then_some(ephemeral);
}

/// The status of an ephemeral container: it has neither probes nor earlier runs.
fn ephemeral(
    input: &StatusInput<'_>,
    container: &EphemeralContainer,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let Some(observed) = input.observed.ephemeral.get(&container.name) else {
        // One that the runtime has lost is not started again, so its last reported status stays.
        if let Some(before) = before.filter(|before| has_run(before)) {
            return before.clone();
        }
        let creating = || Waiting { reason: "ContainerCreating".to_owned(), message: String::new() };
        let waiting = input.ephemeral_waiting.get(&container.name).cloned().unwrap_or_else(creating);
        return ContainerStatus {
            name: container.name.clone(),
            volume_mounts: mounts(container.volume_mounts.as_deref()),
            image: container.image.clone().unwrap_or_default(),
            state: Some(waits(&waiting)),
            last_state: Some(ApiState::default()),
            ..ContainerStatus::default()
        };
    };
    let state = match &observed.state {
        State::Running { since } => running(*since),
        State::Created | State::Starting => {
            waits(&Waiting { reason: "ContainerCreating".to_owned(), message: String::new() })
        }
        State::Exited { .. } => ended(input, observed).unwrap_or_default(),
    };
    ContainerStatus {
        name: container.name.clone(),
        image: observed.image.clone(),
        image_id: observed.image_id.clone(),
        container_id: Some(id(input, observed)),
        volume_mounts: mounts(container.volume_mounts.as_deref()),
        user: user(observed),
        state: Some(state),
        last_state: Some(ApiState::default()),
        ..ContainerStatus::default()
    }
}

/// The user of a container's first process (KEP-3619).
fn user(observed: &ObservedContainer) -> Option<ContainerUser> {
    let (uid, gid, groups) = observed.user.as_ref()?;
    let groups: Vec<i64> = groups.iter().map(|&group| group.into()).collect();
    let linux = LinuxContainerUser {
        uid: (*uid).into(),
        gid: (*gid).into(),
        supplemental_groups: (!groups.is_empty()).then_some(groups),
    };
    Some(ContainerUser { linux: Some(linux) })
}

/// The status of each volume mount, which kubelets report since 1.31: whether it is read-only, and if so whether the mounts below
/// it are, too.
fn mounts(mounts: Option<&[VolumeMount]>) -> Option<Vec<VolumeMountStatus>> {
    let statuses = mounts?.iter().map(|mount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only.filter(|read_only| *read_only),
        recursive_read_only: (mount.read_only == Some(true)).then(|| {
            let wanted = matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"));
            if wanted { "Enabled" } else { "Disabled" }.to_owned()
        }),
        ..VolumeMountStatus::default()
    });
    Some(statuses.collect::<Vec<_>>()).filter(|statuses| !statuses.is_empty())
}

/// Whether the container of a status has been started.
pub(crate) fn has_run(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

fn of(
    input: &StatusInput<'_>,
    position: usize,
    role: Role,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let observed = input.observed.containers.get(position).and_then(Option::as_ref);
    let previous = input.observed.previous.get(position).and_then(Option::as_ref);
    let waiting = input.waiting.get(position).and_then(Option::as_ref);
    let health = input.health(position);
    let has_started = observed.is_some_and(ObservedContainer::has_started);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: observed
            .map(|observed| observed.image.clone())
            .or_else(|| container.image.clone())
            .unwrap_or_default(),
        image_id: observed.map(|observed| observed.image_id.clone()).unwrap_or_default(),
        container_id: observed.map(|observed| id(input, observed)),
        restart_count: observed.map_or(0, |observed| i32::try_from(observed.attempt).unwrap_or(i32::MAX)),
        started: Some(has_started && health.startup == Startup::Over),
        user: observed.and_then(user),
        volume_mounts: mounts(container.volume_mounts.as_deref()),
        ready: match role {
            Role::Init => {
                observed.is_some_and(|observed| matches!(observed.state, State::Exited { code: 0, .. }))
            }
            Role::Sidecar | Role::Main => input.is_ready(position),
        },
        ..ContainerStatus::default()
    };
    // A container that was not observed retains its last reported status: a restarted agent whose runtime lost it
    // must not report that it never ran.
    if let (None, Some(before)) = (observed, before) {
        status.restart_count = before.restart_count;
        status.last_state.clone_from(&before.last_state);
        status.image_id.clone_from(&before.image_id);
        status.container_id.clone_from(&before.container_id);
    }
    match (observed, waiting) {
        (Some(ObservedContainer { state: State::Running { since }, .. }), _) => {
            status.state = Some(running(*since));
            status.last_state = previous.and_then(|observed| ended(input, observed));
        }
        (Some(observed), Some(waiting)) => {
            // It has ended, and will be started again.
            status.state = Some(waits(waiting));
            status.last_state =
                ended(input, observed).or_else(|| previous.and_then(|observed| ended(input, observed)));
        }
        (Some(observed), None) => {
            status.state = ended(input, observed).or_else(|| Some(waits(&not_yet(input))));
            status.last_state = previous.and_then(|observed| ended(input, observed));
        }
        // The pod has finished: the last reported status of a container that the runtime has lost stays.
        (None, _) if input.phase.is_final() && before.is_some_and(has_terminated) => {
            status.state = before.and_then(|before| before.state.clone());
        }
        (None, Some(waiting)) => status.state = Some(waits(waiting)),
        (None, None) => status.state = Some(waits(&not_yet(input))),
    }
    if status.last_state.is_none() {
        status.last_state = Some(ApiState::default());
    }
    status
}

/// Whether the container of a status has terminated.
fn has_terminated(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

/// A container's id as the API spells it.
fn id(input: &StatusInput<'_>, observed: &ObservedContainer) -> String {
    format!("{}://{}", input.runtime, observed.id)
}

/// The waiting state of a container that was not created yet.
fn not_yet(input: &StatusInput<'_>) -> Waiting {
    let reason = if super::is_initialized(input) { "ContainerCreating" } else { "PodInitializing" };
    Waiting { reason: reason.to_owned(), message: String::new() }
}

fn waits(waiting: &Waiting) -> ApiState {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let state = ContainerStateWaiting { reason: text(&waiting.reason), message: text(&waiting.message) };
    ApiState { waiting: Some(state), ..ApiState::default() }
}

fn running(since: Timestamp) -> ApiState {
    ApiState { running: Some(ContainerStateRunning { started_at: Some(Time(since)) }), ..ApiState::default() }
}

fn ended(input: &StatusInput<'_>, observed: &ObservedContainer) -> Option<ApiState> {
    let State::Exited { code, started, finished, reason, message } = &observed.state else { return None };
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let state = ContainerStateTerminated {
        exit_code: *code,
        started_at: started.map(Time),
        finished_at: Some(Time(*finished)),
        reason: text(reason),
        message: text(message),
        container_id: Some(id(input, observed)),
        ..ContainerStateTerminated::default()
    };
    Some(ApiState { terminated: Some(state), ..ApiState::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_mount_is_reported_with_its_read_only_modes() {
        let wanted: Vec<VolumeMount> = serde_json::from_value(json!([
            { "name": "a", "mountPath": "/a" },
            { "name": "b", "mountPath": "/b", "readOnly": true },
            { "name": "c", "mountPath": "/c", "readOnly": true, "recursiveReadOnly": "IfPossible" },
            { "name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Disabled" },
        ]))
        .unwrap();
        let expected = json!([
            { "name": "a", "mountPath": "/a" },
            { "name": "b", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "Disabled" },
            { "name": "c", "mountPath": "/c", "readOnly": true, "recursiveReadOnly": "Enabled" },
            { "name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Disabled" },
        ]);
        assert_eq!(serde_json::to_value(mounts(Some(&wanted))).unwrap(), expected);
        assert_eq!(mounts(Some(&[])), None);
        assert_eq!(mounts(None), None);
    }
}
