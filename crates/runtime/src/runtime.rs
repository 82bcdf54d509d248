//! The trait that every container runtime implements.

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;

use crate::error::{Error, Result};
use crate::execution::{AttachRequest, Connection, ExecRequest, Execution, Streaming};
use crate::types::{
    Container, ContainerConfig, ContainerFilter, ContainerId, ContainerStats, ContainerStatus, Credentials,
    Event, ExecOutput, FilesystemUsage, Image, LinuxResources, MemoryPressure, MemoryWatch, QosClass,
    Resources, RuntimeStatus, Sandbox, SandboxConfig, SandboxFilter, SandboxId, SandboxStats, SandboxStatus,
    StatsFilter, Version,
};

/// A stream of container events. It ends when the runtime does.
pub type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Whether an update of a container's resources is final.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Confirmation {
    /// It is.
    #[default]
    Confirmed,
    /// The cgroup has the resources; the runtime that owns the container has yet to respond.
    Awaited,
    /// The same, and the last attempt to reach that runtime failed; it is retried.
    Failing(Error),
}

/// Runs pods and containers. The calls are those of the CRI: the containers of a pod share a sandbox; containers are
/// created, then started, then stopped, then removed.
///
/// Stopping and removing are idempotent: they succeed for a container that has already stopped or does not exist. A
/// call whose
/// future is dropped may or may not have taken effect; so may one that fails with an error for which
/// [`Error::outcome_unknown`] is true.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// The runtime's name and version.
    async fn version(&self) -> Result<Version>;

    /// Whether it can run pods.
    async fn status(&self) -> Result<RuntimeStatus>;

    /// Creates and starts a sandbox: namespaces, network, the pod's cgroup. A second sandbox for the same pod and
    /// attempt is [`Error::AlreadyExists`] with the id of the first.
    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId>;

    /// Kills every container of a sandbox and releases its network. Idempotent.
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<()>;

    /// Removes a sandbox with everything in it, running or not. Idempotent.
    async fn remove_sandbox(&self, id: &SandboxId) -> Result<()>;

    /// The status of a sandbox, with its address and the pod's actual resources.
    async fn sandbox_status(&self, id: &SandboxId) -> Result<SandboxStatus>;

    /// The sandboxes that match the filter.
    async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>>;

    /// Updates the resources of the pod's cgroup; fields that are `None` stay unchanged.
    /// [`sandbox_status`](Self::sandbox_status) returns the actual values.
    async fn update_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()>;

    /// Updates the cgroup of a QoS class. Guaranteed pods have no cgroup of their own, so for that class it is the
    /// cgroup of all pods. A runtime that does not manage these cgroups does nothing.
    async fn update_class_resources(&self, class: QosClass, resources: &LinuxResources) -> Result<()>;

    /// Creates a container in a sandbox without starting it. A second one with the same name and attempt in it is
    /// [`Error::AlreadyExists`] with the id of the first.
    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId>;

    /// Starts a created container. One that was started before is [`Error::FailedPrecondition`].
    async fn start_container(&self, id: &ContainerId) -> Result<()>;

    /// Sends a container its stop signal, and kills it after the grace period. Returns when it has exited.
    /// Idempotent.
    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()>;

    /// Removes a container, running or not. Idempotent.
    async fn remove_container(&self, id: &ContainerId) -> Result<()>;

    /// The status of a container, with its actual resources as read back from its cgroup.
    async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus>;

    /// The containers that match the filter.
    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>>;

    /// Updates the resources of a created or running container; fields that are `None` stay unchanged.
    /// [`container_status`](Self::container_status) returns the actual values. A container that has exited is
    /// [`Error::FailedPrecondition`].
    async fn update_container_resources(&self, id: &ContainerId, resources: &Resources) -> Result<()>;

    /// The actual resources of a container, as its status has them. A runtime whose status takes longer than reading the
    /// cgroup reads only the cgroup.
    async fn container_resources(&self, id: &ContainerId) -> Result<Option<Resources>> {
        Ok(self.container_status(id).await?.resources)
    }

    /// The actual resources of a pod, as the status of its sandbox has them; the same applies as for a container.
    async fn sandbox_resources(&self, id: &SandboxId) -> Result<Option<LinuxResources>> {
        Ok(self.sandbox_status(id).await?.resources)
    }

    /// Whether the last update of a container is final. One that is not was applied to the cgroup already, and an
    /// [`Event::UpdateFinished`](crate::types::Event::UpdateFinished) follows.
    fn confirmation(&self, id: &ContainerId) -> Confirmation {
        let _ = id;
        Confirmation::Confirmed
    }

    /// Reopens a container's log by its name, after a log rotation.
    async fn reopen_container_log(&self, id: &ContainerId) -> Result<()>;

    /// Runs a command in a running container and returns when it has exited. One that takes longer than
    /// `timeout` is killed and is [`Error::DeadlineExceeded`]; `None` is no timeout.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecOutput>;

    /// Starts a command in a running container, and returns its standard streams. A runtime without processes
    /// returns [`Error::Unsupported`].
    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Execution>> {
        let _ = request;
        Err(Error::Unsupported(format!("no command can be run in container {id}")))
    }

    /// Connects to the standard streams of a running container's first process. Earlier output is in its log only.
    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Execution>> {
        let _ = request;
        Err(Error::Unsupported(format!("no client can be attached to container {id}")))
    }

    /// Connects to a port on the loopback interface of a sandbox. A port without a listener is an error.
    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Connection>> {
        let _ = port;
        Err(Error::Unsupported(format!("no port of sandbox {id} can be connected to")))
    }

    /// The resource usage of a running container.
    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats>;

    /// The resource usage of the running containers that match the filter.
    async fn list_container_stats(&self, filter: &StatsFilter) -> Result<Vec<ContainerStats>>;

    /// The resource usage of a pod, as a whole and by container.
    async fn sandbox_stats(&self, id: &SandboxId) -> Result<SandboxStats>;

    /// The resource usage of the pods that match the filter.
    async fn list_sandbox_stats(&self, filter: &SandboxFilter) -> Result<Vec<SandboxStats>>;

    /// Has the kernel reclaim this many bytes from a container without changing its limit, and returns how many it
    /// reclaimed. It may be fewer, or none.
    async fn reclaim_memory(&self, id: &ContainerId, bytes: u64) -> Result<u64> {
        let _ = bytes;
        Err(Error::Unsupported(format!("memory cannot be reclaimed from container {id}")))
    }

    /// Sends [`Event::MemoryPressure`] when a running container comes near its memory limit, and has it held when it reaches the
    /// limit, instead of killed. Replaces the watch before; none ends it, and with it the hold. An event is sent at once
    /// if the container is near its limit already.
    async fn watch_memory(&self, id: &ContainerId, watch: Option<MemoryWatch>) -> Result<()> {
        let _ = watch;
        Err(Error::Unsupported(format!("the memory of container {id} cannot be watched")))
    }

    /// How near a running container is to its memory limit.
    async fn memory_pressure(&self, id: &ContainerId) -> Result<MemoryPressure> {
        Err(Error::Unsupported(format!("the memory pressure of container {id} cannot be read")))
    }

    /// The images on this node.
    async fn list_images(&self) -> Result<Vec<Image>>;

    /// The image of this name or id, if it is on this node.
    async fn image_status(&self, name: &str) -> Result<Option<Image>>;

    /// Pulls an image with these credentials, or anonymously, and returns its id. One that is on this node already is
    /// compared with the registry, and pulled if it differs.
    async fn pull_image(&self, name: &str, credentials: Option<&Credentials>) -> Result<String>;

    /// How an image that is missing gets onto this node, for the message of a pod that must not pull it.
    fn image_advice(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Whether [`ContainerConfig::image_mounts`] are mounted.
    fn has_image_volumes(&self) -> bool {
        false
    }

    /// Removes an image by name or id. Idempotent; one that containers use is [`Error::FailedPrecondition`].
    async fn remove_image(&self, name: &str) -> Result<()>;

    /// The disk usage of images.
    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>>;

    /// The events from now on. A reader that falls behind gets [`Event::Missed`] and lists again.
    fn events(&self) -> Events;
}
