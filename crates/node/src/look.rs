//! What the runtime says of a pod.

use std::collections::BTreeMap;

use plumb_resize::plan::InForce;
use plumb_resize::pod::{PodCgroup, PodShape};
use plumb_resize::resource::{Requirements, Resource};
use plumb_runtime::types::{
    Container, ContainerFilter, ContainerId, ContainerState, ContainerStatus, Resources, SandboxFilter,
    SandboxId, SandboxState,
};
use plumb_runtime::{Error, Runtime};

use crate::last_words::last_words;
use crate::lifecycle::{ContainerSeen, SandboxSeen, Seen, State};
use crate::readback::{container_in_force, pod_in_force};
use crate::specify::POD_UID;

/// The annotation with the requests and limits that a container was made with.
pub(crate) const MADE_WITH: &str = "plumb.dev/made-with";
/// The exit code of a container whose end nobody saw.
const LOST: i32 = 137;

/// What was last written to cgroups, as far as this process knows: what is read back is read beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// By container.
    pub(crate) containers: BTreeMap<ContainerId, Requirements>,
    /// To the pod's own.
    pub(crate) pod: Option<PodCgroup>,
}

/// What was seen of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looked {
    /// Its sandbox and containers.
    pub(crate) seen: Seen,
    /// What is in force for its own cgroup, if it has one.
    pub(crate) pod: Option<PodCgroup>,
    /// The cpus that its containers may run on, by position, as the kernel spells them.
    pub(crate) cpus: Vec<Option<String>>,
    /// Sandboxes before the newest, of which nothing is needed any more.
    pub(crate) old_sandboxes: Vec<SandboxId>,
}

impl Looked {
    /// What is in force; `pod` stands for the pod's own cgroup where it has none.
    pub(crate) fn in_force(&self, pod: PodCgroup) -> InForce {
        let containers = self.seen.containers.iter();
        let containers = containers.map(|seen| seen.as_ref().and_then(|seen| seen.in_force)).collect();
        InForce { containers, pod: self.pod.unwrap_or(pod) }
    }
}

/// Looks at a pod of which `before` was seen last: what has ended is as it was. `promised` is what each container is promised, as its cgroup gets it; `pod` what the pod's own
/// cgroup is to be.
pub(crate) async fn look(
    runtime: &dyn Runtime,
    uid: &str,
    shape: &PodShape,
    before: &Seen,
    written: &Written,
    promised: &[Requirements],
    pod: PodCgroup,
) -> Result<Looked, Error> {
    let labels = [(POD_UID.to_owned(), uid.to_owned())].into();
    let mut sandboxes = runtime.list_sandboxes(&SandboxFilter { labels, ..SandboxFilter::default() }).await?;
    sandboxes.sort_by_key(|sandbox| sandbox.meta.attempt);
    let mut looked = Looked { seen: empty(shape), ..Looked::default() };
    let mut newest: BTreeMap<String, Vec<Container>> = BTreeMap::new();
    for sandbox in &sandboxes {
        for container in runtime.list_containers(&ContainerFilter::of(&sandbox.id)).await? {
            newest.entry(container.meta.name.clone()).or_default().push(container);
        }
    }
    let current = sandboxes.last().map(|sandbox| sandbox.id.clone());
    looked.cpus = vec![None; shape.containers.len()];
    for (position, part) in shape.containers.iter().enumerate() {
        let mut is_newest = true;
        let mut runs = newest.remove(&part.name).unwrap_or_default();
        // Of two with the same number, one that was never started is in an older sandbox.
        runs.reverse();
        runs.sort_by_key(|container| std::cmp::Reverse(container.meta.attempt));
        let mut runs = runs.into_iter();
        let mut slots =
            [looked.seen.containers.get_mut(position), looked.seen.previous.get_mut(position)].into_iter();
        while let (Some(slot), Some(container)) = (slots.next().flatten(), runs.next()) {
            let newest = std::mem::take(&mut is_newest);
            let of_old_sandbox = Some(&container.sandbox) != current.as_ref();
            if let Some(ended) = has_ended(before, &container.id) {
                *slot = Some(ContainerSeen { of_old_sandbox, ..ended.clone() });
                continue;
            }
            let status = match runtime.container_status(&container.id).await {
                Ok(status) => status,
                // Removed since it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            if let Some(cpus) = looked.cpus.get_mut(position).filter(|_| newest) {
                *cpus =
                    status.resources.as_ref().and_then(Resources::linux).and_then(|r| r.cpuset_cpus.clone());
            }
            let base = || base(shape, position, &status, promised);
            let base = written.containers.get(&container.id).copied().unwrap_or_else(base);
            *slot = Some(ContainerSeen { of_old_sandbox, ..seen(status, base).await });
        }
        looked.seen.stale.extend(runs.map(|container| container.id));
    }
    // Of containers that are in the spec no more.
    looked.seen.stale.extend(newest.into_values().flatten().map(|container| container.id));
    if let Some(sandbox) = sandboxes.pop() {
        let status = runtime.sandbox_status(&sandbox.id).await?;
        looked.pod = status.resources.as_ref().map(|read| pod_in_force(read, &written.pod.unwrap_or(pod)));
        looked.seen.sandbox = Some(SandboxSeen {
            id: sandbox.id,
            attempt: sandbox.meta.attempt,
            ready: sandbox.state == SandboxState::Ready,
            ips: status.ips,
        });
    }
    looked.old_sandboxes = sandboxes.into_iter().map(|sandbox| sandbox.id).collect();
    Ok(looked)
}

/// A container of which it was seen that it has ended.
fn has_ended<'a>(before: &'a Seen, id: &ContainerId) -> Option<&'a ContainerSeen> {
    let known = before.containers.iter().chain(&before.previous).flatten();
    known.into_iter().find(|seen| seen.id == *id && matches!(seen.state, State::Exited { .. }))
}

/// Nothing is seen of it.
pub(crate) fn empty(shape: &PodShape) -> Seen {
    let none = vec![None; shape.containers.len()];
    Seen { containers: none.clone(), previous: none, ..Seen::default() }
}

/// What a container's cgroup is read beside when this process has not written it: what it is promised, but for
/// what only a restart changes, which is what it was made with.
fn base(
    shape: &PodShape,
    position: usize,
    status: &ContainerStatus,
    promised: &[Requirements],
) -> Requirements {
    use plumb_resize::pod::RestartPolicy::RestartContainer;
    let promised = promised.get(position).copied().unwrap_or_default();
    let made = status.container.annotations.get(MADE_WITH).and_then(|text| serde_json::from_str(text).ok());
    let (Some(made), Some(part)) = (made, shape.containers.get(position)) else { return promised };
    let restarts = Resource::ALL.into_iter().filter(|resource| part.policy[*resource] == RestartContainer);
    restarts.fold(promised, |base, resource| base.with(resource, made))
}

async fn seen(status: ContainerStatus, base: Requirements) -> ContainerSeen {
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
    let in_force = match &state {
        State::Exited { .. } => None,
        _ => Some(read.map_or(base, |read| container_in_force(read, &base))),
    };
    ContainerSeen {
        id: status.container.id,
        attempt: status.container.meta.attempt,
        state,
        image: status.container.image,
        image_id: status.container.image_id,
        of_old_sandbox: false,
        in_force,
    }
}

/// The termination message of a container. The file is read off the async threads: the disk may take its time.
async fn message(status: &ContainerStatus) -> String {
    let status = status.clone();
    let read = tokio::task::spawn_blocking(move || last_words(&status)).await;
    read.unwrap_or_else(|error| format!("Error on reading termination message: {error}"))
}
