//! What is in force for containers on this machine, read from its cgroups.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use plumb_resize::cgroup::{DEFAULT_PERIOD, memory_limit, quota, shares};
use plumb_resize::pod::{PodCgroup, PodResources, PodShape};
use plumb_resize::resource::Requirements;

use crate::runner::Inspect;

/// The cgroups of this machine (version 1: a hierarchy for each controller).
#[derive(Debug, Default)]
pub struct Cgroups {
    /// The first process of each container, with the number of its restarts.
    processes: Mutex<HashMap<(String, String), (i32, u32)>>,
}

impl Cgroups {
    /// Where version 1 keeps a controller.
    fn root(controller: &str) -> PathBuf {
        Path::new("/sys/fs/cgroup").join(controller)
    }

    /// Where a group of this name is in the hierarchy of a controller, if there is one.
    pub fn find(controller: &str, name: &str) -> Option<PathBuf> {
        let mut open = vec![Self::root(controller)];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if entry.file_name().to_str() == Some(name) {
                        return Some(entry.path());
                    }
                    open.push(entry.path());
                }
            }
        }
        None
    }

    /// Why this machine's cgroups cannot be read, if so.
    pub fn missing() -> Option<String> {
        let lacks = |controller: &&str| !Self::root(controller).join("cgroup.procs").exists();
        let lacking = ["cpu", "memory"].into_iter().find(lacks)?;
        Some(format!("there is no cgroup v1 hierarchy for {lacking}"))
    }

    /// Compares a container's group with what its status says, and its process with the one before.
    fn container(
        &self,
        pod: &Pod,
        group: &str,
        container: &Container,
        status: &ContainerStatus,
    ) -> Result<(), String> {
        let asked = requirements(container)?;
        let request = asked.requests.cpu.or(asked.limits.cpu).unwrap_or(0);
        expect(group, "cpu", "cpu.shares", shares(request).to_string())?;
        expect(
            group,
            "cpu",
            "cpu.cfs_quota_us",
            quota(asked.limits.cpu, DEFAULT_PERIOD).unwrap_or(-1).to_string(),
        )?;
        expect_memory(group, asked.limits.memory)?;
        let procs = read(group, "memory", "cgroup.procs")?;
        let first = procs.lines().filter_map(|line| line.parse::<u32>().ok()).min();
        let first = first.ok_or_else(|| format!("{}: no process is in its group", status.name))?;
        let key = (pod.metadata.uid.clone().unwrap_or_default(), status.name.clone());
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        match processes.insert(key, (status.restart_count, first)) {
            Some((restarts, before)) if restarts == status.restart_count && before != first => {
                Err(format!("{}: process {before} became {first} without a restart", status.name))
            }
            _ => Ok(()),
        }
    }
}

impl Inspect for Cgroups {
    fn inspect(&self, pod: &Pod) -> Result<(), String> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let of_pod = Self::find("cpu", &format!("pod{uid}")).ok_or("the pod has no cgroup")?;
        let of_pod = of_pod.strip_prefix(Self::root("cpu")).map_err(|error| error.to_string())?;
        let of_pod = of_pod.to_string_lossy().into_owned();
        let spec = pod.spec.as_ref().ok_or("the pod has no spec")?;
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        for status in statuses {
            let container = spec.containers.iter().find(|container| container.name == status.name);
            let container = container.ok_or_else(|| format!("{} is not in the spec", status.name))?;
            let id = status.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id);
            let id = id.ok_or_else(|| format!("{} has no id", status.name))?;
            self.container(pod, &format!("{of_pod}/{id}"), container, status)?;
        }
        let text = |error: plumb_resize::list::BadQuantity| error.to_string();
        let shape = PodShape::of(pod).map_err(text)?;
        let PodCgroup { cpu_request, limits } = shape.cgroup(&PodResources::desired(spec).map_err(text)?);
        expect(&of_pod, "cpu", "cpu.shares", shares(cpu_request).to_string())?;
        expect(
            &of_pod,
            "cpu",
            "cpu.cfs_quota_us",
            quota(limits.cpu, DEFAULT_PERIOD).unwrap_or(-1).to_string(),
        )?;
        expect_memory(&of_pod, limits.memory)
    }
}

fn requirements(container: &Container) -> Result<Requirements, String> {
    let resources = container.resources.clone().unwrap_or_default();
    let declared = |list: Option<&_>| plumb_resize::list::declared(list).map_err(|error| error.to_string());
    Ok(Requirements {
        requests: declared(resources.requests.as_ref())?,
        limits: declared(resources.limits.as_ref())?,
    })
}

fn expect(group: &str, controller: &str, file: &str, expected: String) -> Result<(), String> {
    let found = read(group, controller, file)?;
    if found.trim() == expected {
        return Ok(());
    }
    Err(format!("{file} of {group} is {} and not {expected}", found.trim()))
}

/// Without a limit, the kernel says the largest number of whole pages.
fn expect_memory(group: &str, limit: Option<i64>) -> Result<(), String> {
    const PAGE: i64 = 4096;
    let expected = memory_limit(limit).unwrap_or(i64::MAX - i64::MAX % PAGE);
    expect(group, "memory", "memory.limit_in_bytes", (expected - expected % PAGE).to_string())
}

fn read(group: &str, controller: &str, file: &str) -> Result<String, String> {
    let path = Cgroups::root(controller).join(group).join(file);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}
