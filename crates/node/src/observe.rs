//! Observing a pod in the runtime, as the kubelet's pod lifecycle event generator (PLEG) does.

use std::collections::BTreeMap;

use plumb_resize::plan::CgroupState;
use plumb_resize::pod::{PodCgroup, PodShape};
use plumb_resize::resource::{Requirements, Resource};
use plumb_runtime::types::{
    Container, ContainerFilter, ContainerId, ContainerState, ContainerStatus, Resources, SandboxFilter,
    SandboxId, SandboxState,
};
use plumb_runtime::{Error, Runtime};

use crate::cri_config::POD_UID;
use crate::lifecycle::{ObservedContainer, ObservedPod, ObservedSandbox, State};
use crate::readback::{actual_container, actual_pod};
use crate::termination_message::termination_message;

/// The annotation with the requests and limits that a container was created with.
pub(crate) const MADE_WITH: &str = "plumb.dev/made-with";
/// The exit code of a container whose exit status was lost.
const LOST: i32 = 137;

/// The resources that this process last sent to the runtime; the actual resources are compared with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActuatedResources {
    /// By container.
    pub(crate) containers: BTreeMap<ContainerId, Requirements>,
    /// To the pod's own.
    pub(crate) pod: Option<PodCgroup>,
}

/// An observation of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Its sandbox and containers.
    pub(crate) observed: ObservedPod,
    /// The actual resources of its own cgroup, if it has one.
    pub(crate) pod: Option<PodCgroup>,
    /// The CPUs that its containers may run on, by position, in the kernel's list format.
    pub(crate) cpus: Vec<Option<String>>,
    /// Sandboxes before the newest, which can be removed.
    pub(crate) old_sandboxes: Vec<SandboxId>,
    /// Which parts may have changed since.
    pub(crate) outdated: Outdated,
}

/// How much of an observation may be outdated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outdated {
    /// None.
    Nothing,
    /// The actual resources: this process has changed them. Containers that start or exit cause events of their own.
    Resources,
    /// All of it.
    #[default]
    All,
}

impl Observation {
    /// Records that these parts may be outdated.
    pub(crate) fn mark(&mut self, outdated: Outdated) {
        self.outdated = self.outdated.max(outdated);
    }

    /// The state of its cgroups; `pod` stands for the pod's own cgroup if it has none.
    pub(crate) fn cgroups(&self, pod: PodCgroup) -> CgroupState {
        let containers = self.observed.containers.iter();
        let containers =
            containers.map(|observed| observed.as_ref().and_then(|observed| observed.actual)).collect();
        CgroupState { containers, pod: self.pod.unwrap_or(pod) }
    }
}

/// Observes a pod, with its ephemeral containers by their names. `before` is the last observation, from which containers that had exited are taken. `effective` are the
/// allocated resources of each container as its cgroup gets them; `pod` are those for the pod's own cgroup.
pub(crate) async fn observe(
    runtime: &dyn Runtime,
    uid: &str,
    (shape, ephemeral): (&PodShape, &[&str]),
    before: &ObservedPod,
    actuated: &ActuatedResources,
    effective: &[Requirements],
    pod: PodCgroup,
) -> Result<Observation, Error> {
    let labels = [(POD_UID.to_owned(), uid.to_owned())].into();
    let mut sandboxes = runtime.list_sandboxes(&SandboxFilter { labels, ..SandboxFilter::default() }).await?;
    sandboxes.sort_by_key(|sandbox| sandbox.meta.attempt);
    let mut observation = Observation { observed: empty(shape), ..Observation::default() };
    let mut newest: BTreeMap<String, Vec<Container>> = BTreeMap::new();
    for sandbox in &sandboxes {
        for container in runtime.list_containers(&ContainerFilter::of(&sandbox.id)).await? {
            newest.entry(container.meta.name.clone()).or_default().push(container);
        }
    }
    let current = sandboxes.last().map(|sandbox| sandbox.id.clone());
    observation.cpus = vec![None; shape.containers.len()];
    for (position, part) in shape.containers.iter().enumerate() {
        let mut is_newest = true;
        let mut runs = newest.remove(&part.name).unwrap_or_default();
        // Of two with the same attempt, one that was never started is in an older sandbox.
        runs.reverse();
        runs.sort_by_key(|container| std::cmp::Reverse(container.meta.attempt));
        let mut runs = runs.into_iter();
        let mut slots = [
            observation.observed.containers.get_mut(position),
            observation.observed.previous.get_mut(position),
        ]
        .into_iter();
        while let (Some(slot), Some(container)) = (slots.next().flatten(), runs.next()) {
            let newest = std::mem::take(&mut is_newest);
            let of_old_sandbox = Some(&container.sandbox) != current.as_ref();
            if let Some(ended) = has_ended(before, &container.id) {
                *slot = Some(ObservedContainer { of_old_sandbox, ..ended.clone() });
                continue;
            }
            let status = match runtime.container_status(&container.id).await {
                Ok(status) => status,
                // Removed since it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            if let Some(cpus) = observation.cpus.get_mut(position).filter(|_| newest) {
                *cpus =
                    status.resources.as_ref().and_then(Resources::linux).and_then(|r| r.cpuset_cpus.clone());
            }
            let base = || base(shape, position, &status, effective);
            let base = actuated.containers.get(&container.id).copied().unwrap_or_else(base);
            *slot = Some(ObservedContainer { of_old_sandbox, ..observed(status, base).await });
        }
        for container in runs {
            let of_old_sandbox = Some(&container.sandbox) != current.as_ref();
            let run = match has_ended(before, &container.id) {
                Some(ended) => ended.clone(),
                // After a restart of the agent.
                None => match runtime.container_status(&container.id).await {
                    Ok(status) => observed(status, Requirements::default()).await,
                    Err(error) if error.is_not_found() => continue,
                    Err(error) => return Err(error),
                },
            };
            observation.observed.older.push((position, ObservedContainer { of_old_sandbox, ..run }));
        }
    }
    for name in ephemeral {
        let runs = newest.remove(*name).unwrap_or_default();
        let Some(container) = runs.into_iter().max_by_key(|container| container.meta.attempt) else {
            continue;
        };
        let of_old_sandbox = Some(&container.sandbox) != current.as_ref();
        let known = match has_ended(before, &container.id) {
            Some(ended) => ended.clone(),
            None => match runtime.container_status(&container.id).await {
                Ok(status) => observed(status, Requirements::default()).await,
                // Removed since it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            },
        };
        let known = ObservedContainer { of_old_sandbox, ..known };
        observation.observed.ephemeral.insert((*name).to_owned(), known);
    }
    // Containers that are not in the spec any more.
    observation.observed.stale.extend(newest.into_values().flatten().map(|container| container.id));
    if let Some(sandbox) = sandboxes.pop() {
        let status = runtime.sandbox_status(&sandbox.id).await?;
        observation.pod =
            status.resources.as_ref().map(|read| actual_pod(read, &actuated.pod.unwrap_or(pod)));
        observation.observed.sandbox = Some(ObservedSandbox {
            id: sandbox.id,
            attempt: sandbox.meta.attempt,
            ready: sandbox.state == SandboxState::Ready,
            ips: status.ips,
        });
    }
    observation.old_sandboxes = sandboxes.into_iter().map(|sandbox| sandbox.id).collect();
    observation.outdated = Outdated::Nothing;
    Ok(observation)
}

/// Reads the resources back that this process has changed, and leaves the rest of an observation as it is. Returns false if
/// the pod has to be observed anew, because one of the containers does not run any more.
///
/// A resize changes resources alone, and the calls of [`observe`] are slow during one: containerd 1.6 lists no containers
/// while it updates any of them.
pub(crate) async fn read_back(
    runtime: &dyn Runtime,
    observation: &mut Observation,
    actuated: &ActuatedResources,
    pod: PodCgroup,
) -> Result<bool, Error> {
    let Observation { observed, cpus, .. } = observation;
    for (position, slot) in observed.containers.iter_mut().enumerate() {
        let Some(container) = slot else { continue };
        let Some(written) = actuated.containers.get(&container.id) else { continue };
        let read = match runtime.container_resources(&container.id).await {
            Ok(Some(Resources::Linux(read))) if container.runs() => read,
            Err(error) if !error.is_not_found() => return Err(error),
            _ => return Ok(false),
        };
        container.actual = Some(actual_container(&read, written));
        if let Some(cpus) = cpus.get_mut(position) {
            *cpus = read.cpuset_cpus;
        }
    }
    if let Some(sandbox) = &observed.sandbox {
        let read = match runtime.sandbox_resources(&sandbox.id).await {
            Err(error) if error.is_not_found() => return Ok(false),
            read => read?,
        };
        observation.pod = read.map(|read| actual_pod(&read, &actuated.pod.unwrap_or(pod)));
    }
    observation.outdated = Outdated::Nothing;
    Ok(true)
}

/// A container whose exit was observed before.
fn has_ended<'a>(before: &'a ObservedPod, id: &ContainerId) -> Option<&'a ObservedContainer> {
    let known = before.containers.iter().chain(&before.previous).flatten();
    let older = before.older.iter().map(|(_, run)| run);
    known
        .chain(older)
        .chain(before.ephemeral.values())
        .find(|observed| observed.id == *id && matches!(observed.state, State::Exited { .. }))
}

/// A pod without a sandbox and containers.
pub(crate) fn empty(shape: &PodShape) -> ObservedPod {
    let none = vec![None; shape.containers.len()];
    ObservedPod { containers: none.clone(), previous: none, ..ObservedPod::default() }
}

/// The resources that a container's cgroup is compared with if this process has not written it: its allocated ones,
/// except for those that only a restart changes, which are those of its creation.
fn base(
    shape: &PodShape,
    position: usize,
    status: &ContainerStatus,
    effective: &[Requirements],
) -> Requirements {
    use plumb_resize::pod::RestartPolicy::RestartContainer;
    let allocated = effective.get(position).copied().unwrap_or_default();
    let made = status.container.annotations.get(MADE_WITH).and_then(|text| serde_json::from_str(text).ok());
    let (Some(made), Some(part)) = (made, shape.containers.get(position)) else { return allocated };
    let restarts = Resource::ALL.into_iter().filter(|resource| part.policy[*resource] == RestartContainer);
    restarts.fold(allocated, |base, resource| base.with(resource, made))
}

async fn observed(status: ContainerStatus, base: Requirements) -> ObservedContainer {
    let has_ended = matches!(status.container.state, ContainerState::Exited | ContainerState::Unknown);
    let message = if has_ended { message(&status).await } else { String::new() };
    let lost = |reason: &str| State::Exited {
        code: status.exit_code.unwrap_or(LOST),
        started: status.started_at,
        finished: status.finished_at.unwrap_or(status.container.created_at),
        reason: reason.to_owned(),
        message: message.clone(),
    };
    let state = match status.container.state {
        ContainerState::Created => State::Created,
        ContainerState::Running => {
            State::Running { since: status.started_at.unwrap_or(status.container.created_at) }
        }
        ContainerState::Exited => lost(&status.reason),
        ContainerState::Unknown => lost("ContainerStatusUnknown"),
    };
    let read = status.resources.as_ref().and_then(Resources::linux);
    let actual = match &state {
        State::Created | State::Exited { .. } => None,
        State::Starting | State::Running { .. } => {
            Some(read.map_or(base, |read| actual_container(read, &base)))
        }
    };
    ObservedContainer {
        id: status.container.id,
        attempt: status.container.meta.attempt,
        state,
        image: status.container.image,
        image_id: status.container.image_id,
        of_old_sandbox: false,
        actual,
        user: status.user,
    }
}

/// The termination message of a container. The file is read on a blocking thread.
async fn message(status: &ContainerStatus) -> String {
    let status = status.clone();
    let read = tokio::task::spawn_blocking(move || termination_message(&status)).await;
    read.unwrap_or_else(|error| format!("Error on reading termination message: {error}"))
}
