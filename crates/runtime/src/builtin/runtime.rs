//! The runtime trait for the built-in runtime.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;

use super::sandbox::RECORD;
use super::specify::linux;
use super::state::{ContainerEntry, SandboxEntry};
use super::{Builtin, client, port_forward};
use crate::disk_usage::folder_usage;
use crate::error::{Error, Result};
use crate::execution::{AttachRequest, Connection, ExecRequest, Execution, Streaming};
use crate::image::ImageRecord;
use crate::runtime::{Events, Runtime};
use crate::shim::{ShimCommand, ShimResponse, store};
use crate::types::{
    Condition, Container, ContainerConfig, ContainerFilter, ContainerId, ContainerStats, ContainerStatus,
    Credentials, Event, ExecOutput, FilesystemUsage, Image, LinuxResources, MemoryPressure, MemoryWatch,
    QosClass, Resources, RuntimeStatus, Sandbox, SandboxConfig, SandboxFilter, SandboxId, SandboxState,
    SandboxStats, SandboxStatus, StatsFilter, Version,
};

impl Builtin {
    fn sandbox(&self, id: &SandboxId) -> Result<Arc<SandboxEntry>> {
        self.state.sandbox(id).ok_or_else(|| Error::no_sandbox(id.as_str()))
    }

    fn container(&self, id: &ContainerId) -> Result<Arc<ContainerEntry>> {
        self.state.container(id).ok_or_else(|| Error::no_container(id.as_str()))
    }

    async fn stop_whole_sandbox(&self, entry: &Arc<SandboxEntry>) -> Result<()> {
        let id = entry.record.lock().id.clone();
        let containers = self.state.containers_of(&id);
        for stopped in join_all(containers.iter().map(|c| self.state.stop(c, Duration::ZERO))).await {
            stopped?;
        }
        if entry.record.lock().state == SandboxState::NotReady {
            return Ok(());
        }
        let (state, entry) = (self.state.clone(), entry.clone());
        blocking(move || {
            state.release(&entry)?;
            let mut record = entry.record.lock();
            record.state = SandboxState::NotReady;
            record.address = None;
            record.pause = None;
            store(&entry.folder.join(RECORD), &*record, false)
                .map_err(|error| Error::io("writing the sandbox's record", &error))
        })
        .await
    }
}

/// Runs something that takes a while on a blocking thread.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(run).await;
    done.map_err(|error| Error::failed("running in the background", error))?
}

/// Runs something to its end, even if the caller is dropped.
async fn to_the_end<T: Send + 'static>(run: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let done = tokio::spawn(run).await;
    done.map_err(|error| Error::failed("running in the background", error))?
}

#[async_trait]
impl Runtime for Builtin {
    async fn version(&self) -> Result<Version> {
        Ok(Version {
            runtime_name: "plumb".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            api_version: "v1".into(),
        })
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        let ready = if self.state.tree.pods().exists() {
            Condition::ok()
        } else {
            Condition::failed("CgroupMissing", "the cgroup of all pods is gone")
        };
        Ok(RuntimeStatus { ready, network_ready: Condition::ok(), has_events: true })
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId> {
        config.check_handler()?;
        let state = self.state.clone();
        blocking(move || state.make_sandbox(config)).await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<()> {
        let Some(entry) = self.state.sandbox(id) else { return Ok(()) };
        let this = self.clone();
        to_the_end(async move {
            let _turn = entry.turn.lock().await;
            this.stop_whole_sandbox(&entry).await
        })
        .await
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<()> {
        let Some(entry) = self.state.sandbox(id) else { return Ok(()) };
        let (this, id) = (self.clone(), id.clone());
        to_the_end(async move {
            let _turn = entry.turn.lock().await;
            this.stop_whole_sandbox(&entry).await?;
            let containers = this.state.containers_of(&id);
            for removed in join_all(containers.iter().map(|container| this.state.remove(container))).await {
                removed?;
            }
            let (state, removing) = (this.state.clone(), entry.clone());
            blocking(move || state.tear_down_sandbox(&removing)).await?;
            this.state.pods.lock().sandboxes.remove(&id);
            Ok(())
        })
        .await
    }

    async fn sandbox_status(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let entry = self.sandbox(id)?;
        let (namespaces, runtime_handler) = {
            let record = entry.record.lock();
            (record.config.namespaces, record.config.runtime_handler.clone())
        };
        Ok(SandboxStatus {
            runtime_handler,
            sandbox: entry.sandbox(),
            ips: entry.ips(),
            namespaces,
            resources: if entry.group.exists() { Some(entry.group.read()?) } else { None },
        })
    }

    async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>> {
        let entries: Vec<_> = self.state.pods.lock().sandboxes.values().cloned().collect();
        Ok(entries.iter().map(|entry| entry.sandbox()).filter(|sandbox| filter.matches(sandbox)).collect())
    }

    async fn update_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()> {
        let entry = self.sandbox(id)?;
        entry.guard.set(resources).await
    }

    async fn update_class_resources(&self, class: QosClass, resources: &LinuxResources) -> Result<()> {
        // A lower limit has the kernel reclaim memory, which takes a while.
        let (group, resources) = (self.state.tree.class(class), resources.clone());
        blocking(move || Ok(group.set(&resources)?)).await
    }

    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId> {
        self.state.wait_at_gate(sandbox).await?;
        let (state, sandbox) = (self.state.clone(), sandbox.clone());
        blocking(move || state.make_container(&sandbox, config)).await
    }

    async fn start_container(&self, id: &ContainerId) -> Result<()> {
        let entry = self.container(id)?;
        let state = self.state.clone();
        to_the_end(async move { state.start(&entry).await }).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        match self.state.container(id) {
            Some(entry) => self.state.stop(&entry, grace).await,
            None => Ok(()),
        }
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<()> {
        let Some(entry) = self.state.container(id) else { return Ok(()) };
        let state = self.state.clone();
        to_the_end(async move { state.remove(&entry).await }).await
    }

    async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus> {
        let entry = self.container(id)?;
        let life = entry.life.borrow().clone();
        let (started, exit) = (life.started(), life.exit());
        let reason = match exit {
            None => String::new(),
            Some(exit) if exit.oom_killed => "OOMKilled".to_owned(),
            Some(exit) => match &exit.reason {
                Some(reason) => reason.clone(),
                None if exit.code == 0 => "Completed".to_owned(),
                None => "Error".to_owned(),
            },
        };
        Ok(ContainerStatus {
            container: entry.container(),
            pid: started.filter(|_| life.is_running()).map(|started| started.pid),
            started_at: started.map(|started| started.at),
            finished_at: exit.map(|exit| exit.at),
            exit_code: exit.map(|exit| exit.code),
            reason,
            message: exit.map(|exit| exit.message.clone()).unwrap_or_default(),
            log_path: entry.record.log_path.clone(),
            resources: match exit {
                // After a restart of the machine, one that was only made has no group either.
                None if entry.group.exists() => Some(Resources::Linux(entry.group.read()?)),
                _ => None,
            },
            mounts: entry.record.config.mounts.clone(),
            user: started.and_then(|started| started.user.clone()),
            stop_signal: entry.record.stop_signal.clone(),
        })
    }

    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        let entries: Vec<_> = self.state.pods.lock().containers.values().cloned().collect();
        Ok(entries.iter().map(|entry| entry.container()).filter(|found| filter.matches(found)).collect())
    }

    async fn update_container_resources(&self, id: &ContainerId, resources: &Resources) -> Result<()> {
        let entry = self.container(id)?;
        let resources = linux(resources)?;
        let (ended, running) = {
            let life = entry.life.borrow();
            (life.exit().is_some(), life.is_running())
        };
        if ended {
            return Err(Error::FailedPrecondition(format!("container {id} has ended")));
        }
        if running {
            return entry.guard.set(resources).await;
        }
        Ok(entry.group.set(resources)?)
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> Result<()> {
        let entry = self.container(id)?;
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {id} is not running")));
        }
        match client::send(&entry.folder, ShimCommand::ReopenLog).await {
            Ok(ShimResponse::Refused(why)) => Err(Error::failed("opening the log", why)),
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Unavailable(format!("the shim of container {id}: {error}"))),
        }
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecOutput> {
        let entry = self.container(id)?;
        self.state.exec(&entry, command, timeout).await
    }

    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Execution>> {
        let entry = self.container(id)?;
        Ok(Streaming::Streams(self.state.exec_streams(&entry, &request).await?))
    }

    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Execution>> {
        let entry = self.container(id)?;
        Ok(Streaming::Streams(self.state.attach(&entry, request).await?))
    }

    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Connection>> {
        let entry = self.sandbox(id)?;
        let stream = port_forward::connect(&entry, port).await?;
        // Clients wait for answers to the little that they send.
        let _ = stream.set_nodelay(true);
        Ok(Streaming::Streams(Box::new(stream)))
    }

    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats> {
        let entry = self.container(id)?;
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {id} is not running")));
        }
        let mut stats = entry.stats()?;
        // Only for a request about one container: it takes time for each file.
        let layer = entry.folder.join("upper");
        stats.writable_layer = Some(blocking(move || Ok(folder_usage(&layer))).await?);
        Ok(stats)
    }

    async fn list_container_stats(&self, filter: &StatsFilter) -> Result<Vec<ContainerStats>> {
        let entries: Vec<_> = self.state.pods.lock().containers.values().cloned().collect();
        let wanted = |entry: &&Arc<ContainerEntry>| {
            let container = entry.container();
            let whose = ContainerFilter {
                id: filter.id.clone(),
                sandbox: filter.sandbox.clone(),
                labels: filter.labels.clone(),
                state: None,
            };
            whose.matches(&container) && entry.life.borrow().is_running()
        };
        // A container that exits meanwhile has no stats.
        Ok(entries.iter().filter(wanted).filter_map(|entry| entry.stats().ok()).collect())
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> Result<SandboxStats> {
        self.state.sandbox_stats_of(&*self.sandbox(id)?)
    }

    async fn list_sandbox_stats(&self, filter: &SandboxFilter) -> Result<Vec<SandboxStats>> {
        let entries: Vec<_> = self.state.pods.lock().sandboxes.values().cloned().collect();
        let wanted = entries.iter().filter(|entry| filter.matches(&entry.sandbox()));
        Ok(wanted.filter_map(|entry| self.state.sandbox_stats_of(entry).ok()).collect())
    }

    async fn reclaim_memory(&self, id: &ContainerId, bytes: u64) -> Result<u64> {
        let entry = self.container(id)?;
        blocking(move || Ok(entry.group.reclaim(bytes)?)).await
    }

    async fn watch_memory(&self, id: &ContainerId, watch: Option<MemoryWatch>) -> Result<()> {
        let (state, entry) = (self.state.clone(), self.container(id)?);
        to_the_end(async move { state.watch_memory(&entry, watch).await }).await
    }

    async fn memory_pressure(&self, id: &ContainerId) -> Result<MemoryPressure> {
        Ok(self.container(id)?.group.memory_pressure()?)
    }

    async fn list_images(&self) -> Result<Vec<Image>> {
        Ok(self.state.images.list()?.iter().map(|record| image(record)).collect())
    }

    async fn image_status(&self, name: &str) -> Result<Option<Image>> {
        Ok(self.state.images.find(name)?.map(|record| image(&record)))
    }

    async fn pull_image(&self, name: &str, credentials: Option<&Credentials>) -> Result<String> {
        self.state.pulls.pull(name, credentials).await
    }

    fn image_advice(&self, name: &str) -> Option<String> {
        Some(format!("`plumb image pull {name}` or `plumb image import FILE` adds it to the node"))
    }

    fn has_image_volumes(&self) -> bool {
        true
    }

    async fn remove_image(&self, name: &str) -> Result<()> {
        let Some(found) = self.state.images.find(name)? else { return Ok(()) };
        let used = self.state.pods.lock().containers.values().any(|entry| entry.record.uses(&found.id));
        if used || found.pinned {
            let why = if used { "is used by containers" } else { "is part of plumb" };
            return Err(Error::FailedPrecondition(format!("image {name} {why}")));
        }
        let (state, name) = (self.state.clone(), name.to_owned());
        blocking(move || Ok(state.images.remove(&name)?)).await
    }

    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        let folder = self.state.images.snapshots();
        Ok(vec![blocking(move || Ok(folder_usage(&folder))).await?])
    }

    fn events(&self) -> Events {
        let receiver = self.state.events.subscribe();
        Box::pin(stream::unfold(receiver, |mut receiver| async {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(RecvError::Lagged(missed)) => Some((Event::Missed(missed), receiver)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}

fn image(record: &ImageRecord) -> Image {
    Image {
        id: record.id.clone(),
        tags: record.tags.clone(),
        digests: record.digests.clone(),
        size: record.size,
        user: record.config.user.clone(),
        pinned: record.pinned,
    }
}
