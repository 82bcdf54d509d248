//! The runtime trait for the virtual runtime.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;

use super::Virtual;
use super::model::Model;
use super::pods::{
    All, VirtualContainer, VirtualLife, VirtualSandbox, container_prefix, filled, image_id, merge,
};
use crate::error::{Error, Result};
use crate::execution::{ExecRequest, Execution, Streaming};
use crate::image::normalise;
use crate::runtime::{Events, Runtime};
use crate::types::{
    Condition, Container, ContainerChange, ContainerConfig, ContainerFilter, ContainerId, ContainerState,
    ContainerStats, ContainerStatus, CpuUsage, Credentials, Event, ExecOutput, FilesystemUsage, Image,
    LinuxResources, MemoryUsage, NamespaceMode, QosClass, Resources, RuntimeStatus, Sandbox, SandboxConfig,
    SandboxFilter, SandboxId, SandboxState, SandboxStats, SandboxStatus, StatsFilter, Throttling, Version,
};

/// The image whose arguments are a model.
const LOAD: &str = "docker.io/plumb/load:latest";

impl Virtual {
    fn sandbox_of(id: &SandboxId, sandbox: &VirtualSandbox) -> Sandbox {
        Sandbox {
            id: id.clone(),
            meta: sandbox.config.meta.clone(),
            state: sandbox.state,
            created_at: sandbox.created_at,
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        }
    }

    fn stats_of(&self, id: &ContainerId, container: &mut VirtualContainer) -> ContainerStats {
        container.count();
        let at = self.pods.now();
        let usage = container.memory();
        let limit = container.resources.memory_limit.and_then(|limit| u64::try_from(limit).ok());
        ContainerStats {
            id: id.clone(),
            sandbox: container.sandbox.clone(),
            meta: container.config.meta.clone(),
            labels: container.config.labels.clone(),
            created_at: container.created_at,
            cpu: CpuUsage {
                at,
                usage_nanos: container.cpu.0,
                throttling: Some(Throttling { throttled_nanos: container.cpu.1, ..Throttling::default() }),
                pressure: None,
            },
            memory: MemoryUsage {
                at,
                usage,
                working_set: usage,
                rss: usage,
                available: limit.map(|limit| limit.saturating_sub(usage)),
                oom_kills: container.oom_kills,
                ..MemoryUsage::default()
            },
            tasks: Some(1),
            writable_layer: None,
        }
    }

    fn sandbox_stats_of(&self, all: &mut All, id: &SandboxId) -> Option<SandboxStats> {
        let sandbox = all.sandboxes.get(id)?;
        let mut stats = SandboxStats {
            id: id.clone(),
            meta: sandbox.config.meta.clone(),
            labels: sandbox.config.labels.clone(),
            cpu: CpuUsage { at: self.pods.now(), ..CpuUsage::default() },
            memory: MemoryUsage { at: self.pods.now(), ..MemoryUsage::default() },
            tasks: Some(0),
            network: Vec::new(),
            containers: Vec::new(),
        };
        for (container_id, container) in all.containers_of(id) {
            let one = self.stats_of(container_id, container);
            stats.cpu.usage_nanos += one.cpu.usage_nanos;
            stats.memory.usage += one.memory.usage;
            stats.memory.working_set += one.memory.working_set;
            stats.memory.rss += one.memory.rss;
            if container.state() == ContainerState::Running {
                stats.tasks = stats.tasks.map(|tasks| tasks + 1);
                stats.containers.push(one);
            }
        }
        Some(stats)
    }

    fn stop_all(&self, id: &SandboxId) -> Vec<ContainerId> {
        let inside: Vec<ContainerId> = {
            let mut all = self.pods.all.lock();
            all.containers_of(id).map(|(id, _)| id.clone()).collect()
        };
        for container in &inside {
            self.pods.finish(container, 137, false);
        }
        inside
    }

    fn image_named(name: &str) -> Image {
        let whole = normalise(name);
        let named = if whole.contains('@') { (Vec::new(), vec![whole]) } else { (vec![whole], Vec::new()) };
        Image { id: image_id(name), tags: named.0, digests: named.1, ..Image::default() }
    }
}

#[async_trait]
impl Runtime for Virtual {
    async fn version(&self) -> Result<Version> {
        Ok(Version {
            runtime_name: "plumb-virtual".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            api_version: "v1".into(),
        })
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        Ok(RuntimeStatus { ready: Condition::ok(), network_ready: Condition::ok(), has_events: true })
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId> {
        config.check_handler()?;
        let mut all = self.pods.all.lock();
        // One sandbox has one id: asking twice finds the first without looking at all others.
        let meta = &config.meta;
        let id = SandboxId::from(format!("{}-{}", meta.uid, meta.attempt));
        if all.sandboxes.contains_key(&id) {
            return Err(Error::AlreadyExists { what: "sandbox", id: id.to_string() });
        }
        let own_network = config.namespaces.network != NamespaceMode::Node;
        let ip = own_network.then(|| self.pods.address(&mut all));
        let sandbox = VirtualSandbox {
            created_at: self.pods.now(),
            state: SandboxState::Ready,
            ip,
            resources: filled(config.resources.clone()),
            config: Box::new(config),
        };
        all.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<()> {
        self.stop_all(id);
        if let Some(sandbox) = self.pods.all.lock().sandboxes.get_mut(id) {
            sandbox.state = SandboxState::NotReady;
            sandbox.ip = None;
        }
        Ok(())
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<()> {
        for container in self.stop_all(id) {
            self.remove_container(&container).await?;
        }
        self.pods.all.lock().sandboxes.remove(id);
        Ok(())
    }

    async fn sandbox_status(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let all = self.pods.all.lock();
        let sandbox = all.sandboxes.get(id).ok_or_else(|| Error::no_sandbox(id.as_str()))?;
        Ok(SandboxStatus {
            sandbox: Self::sandbox_of(id, sandbox),
            ips: sandbox.ip.into_iter().collect(),
            namespaces: sandbox.config.namespaces,
            resources: Some(sandbox.resources.clone()),
            runtime_handler: sandbox.config.runtime_handler.clone(),
        })
    }

    async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>> {
        let all = self.pods.all.lock();
        let sandboxes = all.sandboxes.iter().map(|(id, sandbox)| Self::sandbox_of(id, sandbox));
        Ok(sandboxes.filter(|sandbox| filter.matches(sandbox)).collect())
    }

    async fn update_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()> {
        let mut all = self.pods.all.lock();
        let sandbox = all.sandboxes.get_mut(id).ok_or_else(|| Error::no_sandbox(id.as_str()))?;
        merge(&mut sandbox.resources, resources);
        Ok(())
    }

    async fn update_class_resources(&self, _class: QosClass, _resources: &LinuxResources) -> Result<()> {
        Ok(())
    }

    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId> {
        if config.resources.linux().is_none() {
            return Err(Error::InvalidArgument("this runtime has no Windows containers".to_owned()));
        }
        let id = {
            let mut all = self.pods.all.lock();
            let number = all.number();
            let found = all.sandboxes.get(sandbox).ok_or_else(|| Error::no_sandbox(sandbox.as_str()))?;
            if found.state != SandboxState::Ready {
                return Err(Error::FailedPrecondition(format!("sandbox {sandbox} is not ready")));
            }
            let load = normalise(&config.image) == LOAD;
            let model = Model::of(
                &found.config.annotations,
                &config.meta.name,
                load.then_some(config.args.as_slice()),
            );
            let model = model.map_err(|error| Error::InvalidArgument(error.to_string()))?;
            let id = ContainerId::from(format!(
                "{}{}-{}",
                container_prefix(sandbox),
                config.meta.name,
                config.meta.attempt
            ));
            if all.containers.contains_key(&id) {
                return Err(Error::AlreadyExists { what: "container", id: id.to_string() });
            }
            let container = self.pods.new_container(sandbox, config, model, number);
            all.containers.insert(id.clone(), container);
            id
        };
        self.pods.emit(&id, sandbox, ContainerChange::Created);
        Ok(id)
    }

    async fn start_container(&self, id: &ContainerId) -> Result<()> {
        self.pods.start(id)
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        // A virtual container ends at once when it is stopped.
        self.pods.finish(id, if grace.is_zero() { 137 } else { 0 }, false);
        Ok(())
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<()> {
        self.pods.finish(id, 137, false);
        let removed = self.pods.all.lock().containers.remove(id);
        if let Some(container) = removed {
            self.pods.emit(id, &container.sandbox, ContainerChange::Deleted);
        }
        Ok(())
    }

    async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus> {
        let all = self.pods.all.lock();
        let container = all.containers.get(id).ok_or_else(|| Error::no_container(id.as_str()))?;
        let (started_at, ended) = match container.life {
            VirtualLife::Created => (None, None),
            VirtualLife::Running(_, started) => (Some(started), None),
            VirtualLife::Exited { started, at, code, oom } => (started, Some((at, code, oom))),
        };
        let reason = match ended {
            None => "",
            Some((_, _, true)) => "OOMKilled",
            Some((_, 0, _)) => "Completed",
            Some(_) => "Error",
        };
        Ok(ContainerStatus {
            container: container.container(id),
            pid: container.running_for().map(|_| container.pid),
            started_at,
            finished_at: ended.map(|(at, ..)| at),
            exit_code: ended.map(|(_, code, _)| code),
            reason: reason.to_owned(),
            message: String::new(),
            log_path: None,
            resources: ended.is_none().then(|| Resources::Linux(container.resources.clone())),
            mounts: container.config.mounts.clone(),
            user: None,
            stop_signal: container.config.stop_signal.clone().unwrap_or_else(|| "SIGTERM".to_owned()),
        })
    }

    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        let all = self.pods.all.lock();
        let containers = all.containers.iter().map(|(id, container)| container.container(id));
        Ok(containers.filter(|container| filter.matches(container)).collect())
    }

    async fn update_container_resources(&self, id: &ContainerId, resources: &Resources) -> Result<()> {
        let Some(resources) = resources.linux() else {
            return Err(Error::InvalidArgument("this runtime has no Windows containers".to_owned()));
        };
        self.pods.update(id, resources)
    }

    async fn reopen_container_log(&self, _id: &ContainerId) -> Result<()> {
        Ok(())
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        _command: &[String],
        _timeout: Option<Duration>,
    ) -> Result<ExecOutput> {
        let mut all = self.pods.all.lock();
        let container = all.containers.get_mut(id).ok_or_else(|| Error::no_container(id.as_str()))?;
        container.count();
        let Some(elapsed) = container.running_for() else {
            return Err(Error::FailedPrecondition(format!("container {id} is not running")));
        };
        let started = container.model.has_started(elapsed, container.cpu.0);
        Ok(ExecOutput { exit_code: i32::from(!started), ..ExecOutput::default() })
    }

    async fn exec(&self, id: &ContainerId, _request: ExecRequest) -> Result<Streaming<Execution>> {
        Err(Error::Unsupported(format!(
            "container {id} is virtual: it has no processes to run a command beside (see --runtime builtin)"
        )))
    }

    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats> {
        let mut all = self.pods.all.lock();
        let container = all.containers.get_mut(id).ok_or_else(|| Error::no_container(id.as_str()))?;
        if container.state() != ContainerState::Running {
            return Err(Error::FailedPrecondition(format!("container {id} is not running")));
        }
        Ok(self.stats_of(id, container))
    }

    async fn list_container_stats(&self, filter: &StatsFilter) -> Result<Vec<ContainerStats>> {
        let mut all = self.pods.all.lock();
        let wanted = all.containers.iter_mut().filter(|(id, container)| {
            filter.id.as_ref().is_none_or(|wanted| wanted == *id)
                && filter.sandbox.as_ref().is_none_or(|wanted| *wanted == container.sandbox)
                && filter.labels.iter().all(|(name, value)| container.config.labels.get(name) == Some(value))
                && container.state() == ContainerState::Running
        });
        Ok(wanted.map(|(id, container)| self.stats_of(id, container)).collect())
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> Result<SandboxStats> {
        let mut all = self.pods.all.lock();
        self.sandbox_stats_of(&mut all, id).ok_or_else(|| Error::no_sandbox(id.as_str()))
    }

    async fn list_sandbox_stats(&self, filter: &SandboxFilter) -> Result<Vec<SandboxStats>> {
        let mut all = self.pods.all.lock();
        let wanted = all.sandboxes.iter().map(|(id, sandbox)| Self::sandbox_of(id, sandbox));
        let wanted: Vec<_> =
            wanted.filter(|sandbox| filter.matches(sandbox)).map(|sandbox| sandbox.id).collect();
        Ok(wanted.iter().filter_map(|id| self.sandbox_stats_of(&mut all, id)).collect())
    }

    async fn reclaim_memory(&self, id: &ContainerId, bytes: u64) -> Result<u64> {
        let mut all = self.pods.all.lock();
        let container = all.containers.get_mut(id).ok_or_else(|| Error::no_container(id.as_str()))?;
        Ok(container.reclaim(bytes))
    }

    async fn list_images(&self) -> Result<Vec<Image>> {
        let all = self.pods.all.lock();
        Ok(std::iter::once(LOAD)
            .chain(all.pulled.iter().map(String::as_str))
            .map(Self::image_named)
            .collect())
    }

    async fn image_status(&self, name: &str) -> Result<Option<Image>> {
        let whole = normalise(name);
        let there = whole == LOAD || self.pods.all.lock().pulled.contains(&whole);
        Ok(there.then(|| Self::image_named(name)))
    }

    async fn pull_image(&self, name: &str, _credentials: Option<&Credentials>) -> Result<String> {
        // Any image is as good as any other here.
        let whole = normalise(name);
        if whole != LOAD {
            self.pods.all.lock().pulled.insert(whole);
        }
        Ok(image_id(name))
    }

    async fn remove_image(&self, name: &str) -> Result<()> {
        let whole = normalise(name);
        // By its id, too, as the garbage collection of a node removes it.
        self.pods.all.lock().pulled.retain(|pulled| *pulled != whole && image_id(pulled) != name);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        Ok(Vec::new())
    }

    fn events(&self) -> Events {
        let receiver = self.pods.events.subscribe();
        Box::pin(stream::unfold(receiver, |mut receiver| async {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(RecvError::Lagged(missed)) => Some((Event::Missed(missed), receiver)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}
