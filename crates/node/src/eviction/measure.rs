//! Measuring what pods use.
//!
//! Memory and tasks are read from cgroups for all pods. Disk usage takes time for each file, and pods make as many as they like,
//! so it is measured only where a decision depends on it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use plumb_runtime::disk_usage::folder_usage;
use plumb_runtime::types::{FilesystemUsage, SandboxFilter, SandboxState, SandboxStats};
use plumb_runtime::{Error, Runtime};

use super::candidate::{Candidate, ContainerUsage, DiskUsage, PodUsage, is_disk_empty_dir};
use crate::allocated::with_allocation;
use crate::node::Node;
use crate::worker::is_finished;

/// The usage of all pods, by the uid of each.
pub(super) type Stats = HashMap<String, SandboxStats>;

/// Memory and tasks of all pods with a running sandbox.
pub(super) async fn stats(runtime: &dyn Runtime) -> Result<Stats, Error> {
    let ready = SandboxFilter { state: Some(SandboxState::Ready), ..SandboxFilter::default() };
    let all = runtime.list_sandbox_stats(&ready).await?;
    Ok(all.into_iter().map(|stats| (stats.meta.uid.clone(), stats)).collect())
}

/// The pods that were admitted and have not ended, without their usage.
pub(super) fn candidates(node: &Node) -> Vec<Candidate> {
    let candidate = |pod: Arc<Pod>| {
        let info = node.pod_info(&pod).ok()?;
        let entry = node.allocations.entry(pod.metadata.uid.as_deref()?)?;
        let pod = with_allocation(&pod, &info.desired, &entry.allocation.allocated);
        Some(Candidate { pod, critical: info.critical, usage: None })
    };
    let pods = node.workers.existing().into_iter().filter(|pod| !is_finished(pod));
    pods.filter_map(candidate).collect()
}

/// Sets the usage of a pod from its stats; with that of its disk, if `disk`.
pub(super) async fn measure(node: &Node, candidate: &mut Candidate, stats: &Stats, disk: bool) {
    let Some(stats) = stats.get(candidate.uid()) else { return };
    let containers = stats.containers.iter().map(|container| ContainerUsage {
        name: container.meta.name.clone(),
        memory: Some(container.memory.working_set),
        ..ContainerUsage::default()
    });
    let mut usage = PodUsage {
        memory: stats.memory.working_set,
        tasks: stats.tasks.unwrap_or(0),
        containers: containers.collect(),
        volumes: BTreeMap::new(),
    };
    if disk {
        for (measured, container) in usage.containers.iter_mut().zip(&stats.containers) {
            // A container that exits meanwhile has no stats.
            let layer = node.runtime.container_stats(&container.id).await.ok();
            measured.writable_layer = layer.and_then(|stats| stats.writable_layer).map(|layer| used(&layer));
            measured.logs = of_directory(node.logs(&candidate.pod).join(&measured.name)).await;
        }
        for (name, path) in empty_dirs(node, candidate) {
            if let Some(used) = of_directory(path).await {
                usage.volumes.insert(name, used);
            }
        }
    }
    candidate.usage = Some(usage);
}

/// The directories of the `emptyDir`s of a pod on disk, by the names of the volumes.
fn empty_dirs(node: &Node, candidate: &Candidate) -> Vec<(String, PathBuf)> {
    let Some(volumes) = &node.volumes else { return Vec::new() };
    let on_disk = candidate.volumes().filter(|volume| is_disk_empty_dir(volume));
    let paths = on_disk.filter_map(|volume| {
        let path = volumes.empty_dir(candidate.uid(), &volume.name).ok()?;
        Some((volume.name.clone(), path))
    });
    paths.collect()
}

async fn of_directory(path: PathBuf) -> Option<DiskUsage> {
    let measuring = move || -> Option<DiskUsage> {
        let exists = Path::is_dir(&path);
        exists.then(|| used(&folder_usage(&path)))
    };
    tokio::task::spawn_blocking(measuring).await.ok().flatten()
}

fn used(usage: &FilesystemUsage) -> DiskUsage {
    DiskUsage { bytes: usage.used_bytes, inodes: usage.inodes_used }
}
