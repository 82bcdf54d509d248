//! The trait that every runtime has a body for.

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;

use crate::error::{Error, Result};
use crate::execution::{ExecRequest, Execution};
use crate::types::{
    Container, ContainerConfig, ContainerFilter, ContainerId, ContainerStats, ContainerStatus, Event,
    ExecOutput, FilesystemUsage, Image, LinuxResources, QosClass, Resources, RuntimeStatus, Sandbox,
    SandboxConfig, SandboxFilter, SandboxId, SandboxStats, SandboxStatus, StatsFilter, Version,
};

/// What happens, as it happens. Ends when the runtime does.
pub type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Runs pods and containers. The shape is the CRI's: a sandbox is what a pod's containers share, containers are
/// made, then started, then stopped, then removed.
///
/// Stopping and removing are idempotent: what has stopped or is gone already is answered with success. A call
/// whose future is dropped may or may not have had its effect; so may one that answers with an error of which
/// [`Error::outcome_unknown`] says so.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Who it is.
    async fn version(&self) -> Result<Version>;

    /// Whether it can run pods.
    async fn status(&self) -> Result<RuntimeStatus>;

    /// Makes a sandbox and readies it: namespaces, network, the pod's cgroup. A second sandbox for the same pod
    /// and attempt is [`Error::AlreadyExists`] with the id of the first.
    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId>;

    /// Stops every container of a sandbox at once and gives back its network. Idempotent.
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<()>;

    /// Removes a sandbox with everything in it, running or not. Idempotent.
    async fn remove_sandbox(&self, id: &SandboxId) -> Result<()>;

    /// How a sandbox stands, its address and the pod's resources in force among it.
    async fn sandbox_status(&self, id: &SandboxId) -> Result<SandboxStatus>;

    /// The sandboxes that pass the filter.
    async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>>;

    /// Sets what the pod as a whole may use; what is `None` stays. What is in force then,
    /// [`sandbox_status`](Self::sandbox_status) says.
    async fn update_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()>;

    /// Sets what all pods of a class together may use; the Guaranteed ones have no group of their own, so for
    /// them it is all pods. A runtime that leaves this to somebody else does nothing.
    async fn update_class_resources(&self, class: QosClass, resources: &LinuxResources) -> Result<()>;

    /// Makes a container in a sandbox, not running yet. A second one with the same name and attempt in it is
    /// [`Error::AlreadyExists`] with the id of the first.
    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId>;

    /// Starts a container that was made. One that was started before is [`Error::FailedPrecondition`].
    async fn start_container(&self, id: &ContainerId) -> Result<()>;

    /// Asks a container to end, by its image's stop signal, and kills it after `grace`. Returns when it has
    /// ended. Idempotent.
    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()>;

    /// Removes a container, running or not. Idempotent.
    async fn remove_container(&self, id: &ContainerId) -> Result<()>;

    /// How a container stands, with the resources in force as read back.
    async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus>;

    /// The containers that pass the filter.
    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>>;

    /// Changes the resources of a container that is made or runs; what is `None` stays. What is in force
    /// then, [`container_status`](Self::container_status) says. One that has ended is
    /// [`Error::FailedPrecondition`].
    async fn update_container_resources(&self, id: &ContainerId, resources: &Resources) -> Result<()>;

    /// Closes a container's log and opens it again by its name, after somebody has moved it.
    async fn reopen_container_log(&self, id: &ContainerId) -> Result<()>;

    /// Runs a command in a running container and answers when it has ended. One that takes longer than
    /// `timeout` is killed and is [`Error::DeadlineExceeded`]; `None` waits for as long as it takes.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecOutput>;

    /// Starts a command in a running container, and hands over its ends. A runtime without processes answers
    /// [`Error::Unsupported`].
    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Execution> {
        let _ = request;
        Err(Error::Unsupported(format!("no command can be run in container {id}")))
    }

    /// What a running container uses.
    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats>;

    /// What the running containers that pass the filter use.
    async fn list_container_stats(&self, filter: &StatsFilter) -> Result<Vec<ContainerStats>>;

    /// What a pod uses, as a whole and by container.
    async fn sandbox_stats(&self, id: &SandboxId) -> Result<SandboxStats>;

    /// What the pods that pass the filter use.
    async fn list_sandbox_stats(&self, filter: &SandboxFilter) -> Result<Vec<SandboxStats>>;

    /// Asks the kernel to take this many bytes back from a container without touching its limit, and answers
    /// how many it gave up. It may be fewer, or none.
    async fn reclaim_memory(&self, id: &ContainerId, bytes: u64) -> Result<u64> {
        let _ = bytes;
        Err(Error::Unsupported(format!("memory cannot be reclaimed from container {id}")))
    }

    /// The images that are here.
    async fn list_images(&self) -> Result<Vec<Image>>;

    /// The image of this name or id, if it is here.
    async fn image_status(&self, name: &str) -> Result<Option<Image>>;

    /// Fetches an image; answers its id. A runtime without a registry answers [`Error::NotFound`] for what is
    /// not here already.
    async fn pull_image(&self, name: &str) -> Result<String>;

    /// Removes an image by name or id. Idempotent; one that containers use is [`Error::FailedPrecondition`].
    async fn remove_image(&self, name: &str) -> Result<()>;

    /// The disk that images take.
    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>>;

    /// What happens from now on. A reader that falls behind gets [`Event::Missed`] and lists again.
    fn events(&self) -> Events;
}
