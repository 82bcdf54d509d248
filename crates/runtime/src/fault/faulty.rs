//! A runtime with injected faults.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Call, FaultKind, Faults};
use crate::error::Result;
use crate::execution::{AttachRequest, Connection, ExecRequest, Execution, Streaming};
use crate::runtime::{Confirmation, Events, Runtime};
use crate::types::{
    Container, ContainerConfig, ContainerFilter, ContainerId, ContainerStats, ContainerStatus, Credentials,
    ExecOutput, FilesystemUsage, Image, LinuxResources, MemoryPressure, MemoryWatch, QosClass, Resources,
    RuntimeStatus, Sandbox, SandboxConfig, SandboxFilter, SandboxId, SandboxStats, SandboxStatus,
    StatsFilter, Version,
};

/// A runtime whose calls fail according to its [`Faults`]. Without faults it only forwards.
#[derive(Debug)]
pub struct Faulty<R: ?Sized = dyn Runtime> {
    inner: Arc<R>,
    faults: Faults,
}

impl<R: Runtime + ?Sized> Faulty<R> {
    /// Wraps a runtime.
    pub fn new(inner: Arc<R>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    /// The faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The wrapped runtime.
    pub fn inner(&self) -> &Arc<R> {
        &self.inner
    }

    async fn call_with_faults<T>(
        &self,
        call: Call,
        subject: &str,
        act: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.apply(self.faults.inject(call, subject), subject, act).await
    }

    async fn apply<T>(
        &self,
        fault: Option<FaultKind>,
        subject: &str,
        act: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match fault {
            None | Some(FaultKind::Alter(_)) => act.await,
            Some(FaultKind::Fail(error)) => Err(error),
            Some(FaultKind::Delay(time)) => {
                tokio::time::sleep(time).await;
                act.await
            }
            Some(FaultKind::DelayUntil(mut open)) => {
                // An error says that the sender is dropped.
                let _ = open.wait_for(|open| *open).await;
                act.await
            }
            Some(FaultKind::LoseResponse(error)) => {
                let _lost = act.await;
                Err(error)
            }
            Some(FaultKind::DelayResponse(time)) => {
                let answer = act.await;
                tokio::time::sleep(time).await;
                answer
            }
            Some(FaultKind::KillBefore) => {
                self.inner.stop_container(&ContainerId::from(subject), Duration::ZERO).await?;
                act.await
            }
            Some(FaultKind::KillAfter) => {
                let answer = act.await;
                self.inner.stop_container(&ContainerId::from(subject), Duration::ZERO).await?;
                answer
            }
        }
    }
}

/// The resources that an update applies.
fn altered(fault: Option<&FaultKind>, resources: &LinuxResources) -> LinuxResources {
    match fault {
        Some(FaultKind::Alter(alter)) => alter(resources.clone()),
        _ => resources.clone(),
    }
}

#[async_trait]
impl<R: Runtime + ?Sized> Runtime for Faulty<R> {
    async fn version(&self) -> Result<Version> {
        self.call_with_faults(Call::Version, "", self.inner.version()).await
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        self.call_with_faults(Call::Status, "", self.inner.status()).await
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId> {
        let name = config.meta.name.clone();
        self.call_with_faults(Call::RunSandbox, &name, self.inner.run_sandbox(config)).await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<()> {
        self.call_with_faults(Call::StopSandbox, id.as_str(), self.inner.stop_sandbox(id)).await
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<()> {
        self.call_with_faults(Call::RemoveSandbox, id.as_str(), self.inner.remove_sandbox(id)).await
    }

    async fn sandbox_status(&self, id: &SandboxId) -> Result<SandboxStatus> {
        self.call_with_faults(Call::SandboxStatus, id.as_str(), self.inner.sandbox_status(id)).await
    }

    async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>> {
        self.call_with_faults(Call::ListSandboxes, "", self.inner.list_sandboxes(filter)).await
    }

    async fn update_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()> {
        let fault = self.faults.inject(Call::UpdateSandboxResources, id.as_str());
        let resources = altered(fault.as_ref(), resources);
        self.apply(fault, id.as_str(), self.inner.update_sandbox_resources(id, &resources)).await
    }

    async fn update_class_resources(&self, class: QosClass, resources: &LinuxResources) -> Result<()> {
        let act = self.inner.update_class_resources(class, resources);
        self.call_with_faults(Call::UpdateClassResources, class.name(), act).await
    }

    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId> {
        let name = config.meta.name.clone();
        self.call_with_faults(Call::CreateContainer, &name, self.inner.create_container(sandbox, config))
            .await
    }

    async fn start_container(&self, id: &ContainerId) -> Result<()> {
        self.call_with_faults(Call::StartContainer, id.as_str(), self.inner.start_container(id)).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        self.call_with_faults(Call::StopContainer, id.as_str(), self.inner.stop_container(id, grace)).await
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<()> {
        self.call_with_faults(Call::RemoveContainer, id.as_str(), self.inner.remove_container(id)).await
    }

    async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus> {
        self.call_with_faults(Call::ContainerStatus, id.as_str(), self.inner.container_status(id)).await
    }

    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        self.call_with_faults(Call::ListContainers, "", self.inner.list_containers(filter)).await
    }

    async fn update_container_resources(&self, id: &ContainerId, resources: &Resources) -> Result<()> {
        let fault = self.faults.inject(Call::UpdateContainerResources, id.as_str());
        let resources = match resources {
            Resources::Linux(linux) => Resources::Linux(altered(fault.as_ref(), linux)),
            other @ Resources::Windows(_) => other.clone(),
        };
        self.apply(fault, id.as_str(), self.inner.update_container_resources(id, &resources)).await
    }

    fn confirmation(&self, id: &ContainerId) -> Confirmation {
        self.inner.confirmation(id)
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> Result<()> {
        self.call_with_faults(Call::ReopenContainerLog, id.as_str(), self.inner.reopen_container_log(id))
            .await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecOutput> {
        self.call_with_faults(Call::ExecSync, id.as_str(), self.inner.exec_sync(id, command, timeout)).await
    }

    // These are streams: there is no one moment for a fault.

    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Execution>> {
        self.inner.exec(id, request).await
    }

    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Execution>> {
        self.inner.attach(id, request).await
    }

    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Connection>> {
        self.inner.port_forward(id, port).await
    }

    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats> {
        self.call_with_faults(Call::ContainerStats, id.as_str(), self.inner.container_stats(id)).await
    }

    async fn list_container_stats(&self, filter: &StatsFilter) -> Result<Vec<ContainerStats>> {
        self.call_with_faults(Call::ListContainerStats, "", self.inner.list_container_stats(filter)).await
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> Result<SandboxStats> {
        self.call_with_faults(Call::SandboxStats, id.as_str(), self.inner.sandbox_stats(id)).await
    }

    async fn list_sandbox_stats(&self, filter: &SandboxFilter) -> Result<Vec<SandboxStats>> {
        self.call_with_faults(Call::ListSandboxStats, "", self.inner.list_sandbox_stats(filter)).await
    }

    async fn reclaim_memory(&self, id: &ContainerId, bytes: u64) -> Result<u64> {
        self.call_with_faults(Call::ReclaimMemory, id.as_str(), self.inner.reclaim_memory(id, bytes)).await
    }

    async fn watch_memory(&self, id: &ContainerId, watch: Option<MemoryWatch>) -> Result<()> {
        self.call_with_faults(Call::WatchMemory, id.as_str(), self.inner.watch_memory(id, watch)).await
    }

    async fn memory_pressure(&self, id: &ContainerId) -> Result<MemoryPressure> {
        self.call_with_faults(Call::MemoryPressure, id.as_str(), self.inner.memory_pressure(id)).await
    }

    async fn list_images(&self) -> Result<Vec<Image>> {
        self.call_with_faults(Call::ListImages, "", self.inner.list_images()).await
    }

    async fn image_status(&self, name: &str) -> Result<Option<Image>> {
        self.call_with_faults(Call::ImageStatus, name, self.inner.image_status(name)).await
    }

    async fn pull_image(&self, name: &str, credentials: Option<&Credentials>) -> Result<String> {
        self.call_with_faults(Call::PullImage, name, self.inner.pull_image(name, credentials)).await
    }

    fn image_advice(&self, name: &str) -> Option<String> {
        self.inner.image_advice(name)
    }

    fn has_image_volumes(&self) -> bool {
        self.inner.has_image_volumes()
    }

    async fn remove_image(&self, name: &str) -> Result<()> {
        self.call_with_faults(Call::RemoveImage, name, self.inner.remove_image(name)).await
    }

    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        self.call_with_faults(Call::ImageFsInfo, "", self.inner.image_fs_info()).await
    }

    fn events(&self) -> Events {
        self.inner.events()
    }
}
