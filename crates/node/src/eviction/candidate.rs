//! The pods that may be evicted, with what they use.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::quantity::Quantity;

use crate::ephemeral_storage;
use crate::lifecycle::containers;

/// The use of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// In bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl DiskUsage {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// What a container uses. What was not measured is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Its name.
    pub name: String,
    /// Its working set in bytes.
    pub memory: Option<u64>,
    /// Its writable layer.
    pub writable_layer: Option<DiskUsage>,
    /// Its logs.
    pub logs: Option<DiskUsage>,
}

/// What a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// Its working set in bytes.
    pub memory: u64,
    /// Its processes and threads.
    pub tasks: u64,
    /// Its running containers.
    pub containers: Vec<ContainerUsage>,
    /// Its local volumes, by name.
    pub volumes: BTreeMap<String, DiskUsage>,
}

impl PodUsage {
    /// Writable layers of containers, logs and local volumes together.
    pub(super) fn disk(&self, layers: bool, logs_and_volumes: bool) -> DiskUsage {
        let of_containers = self.containers.iter().flat_map(|container| {
            let logs = container.logs.filter(|_| logs_and_volumes);
            [container.writable_layer.filter(|_| layers), logs]
        });
        let volumes = self.volumes.values().copied().filter(|_| logs_and_volumes);
        of_containers.flatten().chain(volumes).fold(DiskUsage::default(), DiskUsage::plus)
    }
}

/// A pod that may be evicted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The pod, with its allocated resources in its spec.
    pub pod: Arc<Pod>,
    /// Whether it is critical, and is not evicted.
    pub critical: bool,
    /// What it uses; `None` if nothing is known.
    pub usage: Option<PodUsage>,
}

impl Candidate {
    pub(super) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn priority(&self) -> i32 {
        self.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
    }

    /// The memory that the pod requests, in bytes.
    pub(super) fn memory_request(&self) -> i64 {
        let resources = self.pod.spec.as_ref().and_then(|spec| PodResources::desired(spec).ok());
        let shape = PodShape::of(&self.pod).ok();
        shape.zip(resources).map_or(0, |(shape, resources)| shape.requests(&resources).memory)
    }

    /// The local storage that it requests, in bytes.
    pub(super) fn storage_request(&self) -> i64 {
        self.pod.spec.as_ref().map_or(0, ephemeral_storage::requested)
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.pod.spec.iter().flat_map(containers)
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
    }

    /// Whether it can be evicted for a limit of its local storage, so that its use has to be measured.
    pub(super) fn limits_storage(&self) -> bool {
        !self.critical
            && (self.pod.spec.as_ref().and_then(ephemeral_storage::limit).is_some()
                || self.volumes().any(|volume| size_limit(volume).is_some()))
    }
}

/// The limit of the local storage of a container. A limit of zero counts for its pod alone, as in the kubelet.
pub(super) fn limit(container: &Container) -> Option<Quantity> {
    let amount = container.resources.as_ref()?.limits.as_ref()?.get(ephemeral_storage::NAME)?;
    amount.0.parse().ok().filter(|amount: &Quantity| !amount.is_zero())
}

/// The size limit of an `emptyDir` on a disk. One in memory has that size, so it cannot exceed it.
pub(super) fn size_limit(volume: &Volume) -> Option<Quantity> {
    let source = volume.empty_dir.as_ref().filter(|_| is_disk_empty_dir(volume))?;
    let limit: Quantity = source.size_limit.as_ref()?.0.parse().ok()?;
    limit.is_positive().then_some(limit)
}

/// Whether a volume is an `emptyDir` on a disk.
pub(super) fn is_disk_empty_dir(volume: &Volume) -> bool {
    let medium = volume.empty_dir.as_ref().map(|source| source.medium.as_deref().unwrap_or_default());
    medium.is_some_and(str::is_empty)
}
