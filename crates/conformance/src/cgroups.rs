//! The actual resources of containers on this machine, from its cgroups.

mod group;

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use parking_lot::Mutex;
use plumb_resize::cgroup::{DEFAULT_PERIOD, WeightScale, memory_limit, quota};
use plumb_resize::pod::{PodCgroup, PodResources, PodShape};
use plumb_resize::resource::{Declared, Requirements};

pub use group::{Figure, Group};

use crate::failure::Failure;
use crate::runner::Inspect;

/// The cgroups of this machine, of either version.
#[derive(Debug, Default)]
pub struct Cgroups {
    /// The first process of each container, with the number of its restarts.
    processes: Mutex<HashMap<(String, String), (i32, u32)>>,
}

impl Cgroups {
    /// Why this machine's cgroups cannot be read, if so.
    pub fn missing() -> Option<String> {
        Group::missing()
    }

    /// Compares a container's group with what its status says, and its process with the one before.
    fn container(
        &self,
        pod: &Pod,
        group: &Group,
        container: &Container,
        status: &ContainerStatus,
    ) -> Result<(), Failure> {
        let asked = requirements(container)?;
        let request = asked.requests.cpu.or(asked.limits.cpu).unwrap_or(0);
        group.has_request(request, WeightScale::Quadratic)?;
        has_limits(group, asked.limits)?;
        let first = group.first_process();
        let first = first.ok_or_else(|| format!("{}: no process is in its group", status.name))?;
        let key = (pod.metadata.uid.clone().unwrap_or_default(), status.name.clone());
        let mut processes = self.processes.lock();
        match processes.insert(key, (status.restart_count, first)) {
            Some((restarts, before)) if restarts == status.restart_count && before != first => Err(
                Failure::Unmet(format!("{}: process {before} became {first} without a restart", status.name)),
            ),
            _ => Ok(()),
        }
    }
}

impl Inspect for Cgroups {
    fn inspect(&self, pod: &Pod) -> Result<(), Failure> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let of_pod = Group::find(&format!("pod{uid}")).ok_or("the pod has no cgroup")?;
        let spec = pod.spec.as_ref().ok_or("the pod has no spec")?;
        let sidecars = spec.init_containers.iter().flatten().filter(|init| is_sidecar(init));
        for container in spec.containers.iter().chain(sidecars) {
            let status = status_of(pod, &container.name);
            let status = status.ok_or_else(|| format!("{} has no status", container.name))?;
            let id = status.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id);
            let id = id.ok_or_else(|| format!("{} has no id", status.name))?;
            self.container(pod, &of_pod.child(id), container, status)?;
        }
        let shape = PodShape::of(pod)?;
        let PodCgroup { cpu_request, limits } = shape.cgroup(&PodResources::desired(spec)?);
        of_pod.has_request(cpu_request, WeightScale::Linear)?;
        has_limits(&of_pod, limits)
    }
}

/// Whether an init container runs as long as the pod.
fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    statuses.into_iter().find(|status| status.name == container)
}

fn requirements(container: &Container) -> Result<Requirements, Failure> {
    let resources = container.resources.clone().unwrap_or_default();
    Ok(Requirements {
        requests: plumb_resize::list::declared(resources.requests.as_ref())?,
        limits: plumb_resize::list::declared(resources.limits.as_ref())?,
    })
}

fn has_limits(group: &Group, limits: Declared) -> Result<(), Failure> {
    // Without a limit, version 1 has the largest number of whole pages.
    const PAGE: i64 = 4096;
    let pages = |bytes: i64| bytes - bytes % PAGE;
    let expected = quota(limits.cpu, DEFAULT_PERIOD).unwrap_or(-1);
    let found = group.number(Figure::CpuQuota)?;
    if found != expected {
        return Err(Failure::Unmet(format!("the cpu quota of {group:?} is {found} and not {expected}")));
    }
    let expected = memory_limit(limits.memory).unwrap_or(i64::MAX);
    let found = group.number(Figure::MemoryLimit)?;
    if pages(found) == pages(expected) {
        return Ok(());
    }
    Err(Failure::Unmet(format!("the memory limit of {group:?} is {found} and not {expected}")))
}
