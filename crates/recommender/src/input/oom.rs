//! OOM kills, as pods and events show them.
//!
//! A container that the kernel kills for memory is terminated with the reason `OOMKilled`. The kubelet may restart
//! it before a watch event reports that state; then the kill is only in `lastState`. A kill is new if the pod did not show
//! this termination before, wherever it shows it now, so none is missed and none counts twice: upstream looks at
//! some transitions of the container's state only, and at none that came before its watch.
//!
//! A pod that the kubelet evicts because its node is short of memory counts like a kill of the containers that the
//! event names.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod};
use plumb_resize::resource::Resource;
use plumb_resize::{Quantity, list};

use crate::metrics::ResourcesSource;
use crate::model::time::Time;

/// A container that was killed, or evicted, for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// When it was killed.
    pub at: Time,
    /// Its memory request then, or its usage when it was evicted, in bytes.
    pub memory: i64,
    /// Where the request was read; none if the pod has neither, or the usage is from an event.
    pub source: Option<ResourcesSource>,
}

/// The kills that a pod shows and that it did not show `before`. Without a `before` that is every kill that it shows:
/// those from before the watch.
pub fn kills_of_pod(before: Option<&Pod>, after: &Pod) -> Vec<OomKill> {
    let mut kills = Vec::new();
    for status in statuses(after) {
        let shown_before = before.and_then(|pod| statuses(pod).find(|known| known.name == status.name));
        // The state first: a termination that is both is one.
        for (is_current, terminated) in terminations(status) {
            let known = |known: &ContainerStateTerminated| known.finished_at == terminated.finished_at;
            if terminated.reason.as_deref() != Some("OOMKilled")
                || shown_before.is_some_and(|status| terminations(status).any(|(_, shown)| known(shown)))
            {
                continue;
            }
            let Some(at) = terminated.finished_at.as_ref().and_then(|time| Time::try_from(time.0).ok())
            else {
                continue;
            };
            // A container that runs again may have been resized since.
            let then = if is_current { after } else { before.unwrap_or(after) };
            let (memory, source) = memory_request(then, &status.name);
            kills.push(OomKill {
                namespace: after.metadata.namespace.clone().unwrap_or_default(),
                pod: after.metadata.name.clone().unwrap_or_default(),
                container: status.name.clone(),
                at,
                memory,
                source,
            });
        }
    }
    kills
}

/// The containers for which the kubelet evicted a pod, by its event.
pub fn kills_of_event(event: &Event) -> Vec<OomKill> {
    let pod = &event.involved_object;
    if event.reason.as_deref() != Some("Evicted") || pod.kind.as_deref() != Some("Pod") {
        return Vec::new();
    }
    let annotation = |name: &str| -> Vec<&str> {
        let found = event.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
        found.map_or(Vec::new(), |text| text.split(',').collect())
    };
    let containers = annotation("offending_containers");
    let usage = annotation("offending_containers_usage");
    let starved = annotation("starved_resource");
    let created = event.metadata.creation_timestamp.as_ref().and_then(|time| Time::try_from(time.0).ok());
    let Some(at) = created.filter(|_| containers.len() == usage.len() && containers.len() == starved.len())
    else {
        return Vec::new();
    };
    let starved_of_memory = containers.into_iter().zip(usage).zip(starved).filter(|&(_, of)| of == "memory");
    starved_of_memory
        .filter_map(|((container, usage), _)| {
            Some(OomKill {
                namespace: pod.namespace.clone().unwrap_or_default(),
                pod: pod.name.clone().unwrap_or_default(),
                container: container.to_owned(),
                at,
                memory: usage.parse::<Quantity>().ok()?.saturating_units(),
                source: None,
            })
        })
        .collect()
}

/// The statuses of containers and of init containers, which include sidecars.
fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.container_statuses, &status.init_container_statuses]);
    lists.into_iter().flatten().flatten().flatten()
}

/// The terminations that a container shows, and whether it is terminated now.
fn terminations(status: &ContainerStatus) -> impl Iterator<Item = (bool, &ContainerStateTerminated)> {
    let states = [(true, &status.state), (false, &status.last_state)];
    states
        .into_iter()
        .filter_map(|(is_current, state)| Some((is_current, state.as_ref()?.terminated.as_ref()?)))
}

/// A container's memory request, and where it was read: the actual one if the node reports it, else the desired one.
fn memory_request(pod: &Pod, container: &str) -> (i64, Option<ResourcesSource>) {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let statuses = [
        (status.and_then(|one| one.container_statuses.as_ref()), ResourcesSource::ContainerStatus),
        (status.and_then(|one| one.init_container_statuses.as_ref()), ResourcesSource::InitContainerStatus),
    ];
    let reported = statuses.into_iter().find_map(|(list, source)| {
        let status = list?.iter().find(|status| status.name == container)?;
        Some((Some(status.resources.as_ref()?), source))
    });
    let specs = [
        (spec.map(|spec| &spec.containers), ResourcesSource::PodSpecContainer),
        (spec.and_then(|spec| spec.init_containers.as_ref()), ResourcesSource::PodSpecInitContainer),
    ];
    let desired = || {
        specs.into_iter().find_map(|(list, source)| {
            let container = list?.iter().find(|one| one.name == container)?;
            Some((container.resources.as_ref(), source))
        })
    };
    let read = reported.or_else(desired);
    let Some((resources, source)) = read else { return (0, None) };
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    // A value that cannot be read is unknown, and 0 like an unset one.
    let memory = list::declared(requests).ok().and_then(|declared| declared[Resource::Memory]).unwrap_or(0);
    (memory, Some(source))
}
