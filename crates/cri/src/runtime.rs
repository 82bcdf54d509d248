//! The runtime trait, implemented by calls over the CRI socket.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use plumb_runtime::types::{
    Condition, Container, ContainerConfig, ContainerFilter, ContainerId, ContainerState, ContainerStats,
    ContainerStatus, Credentials, Event, ExecOutput, FilesystemUsage, Image, LinuxResources, NamespaceMode,
    QosClass, Resources, RuntimeStatus, Sandbox, SandboxConfig, SandboxFilter, SandboxId, SandboxState,
    SandboxStats, SandboxStatus, StatsFilter, Version,
};
use plumb_runtime::{
    AttachRequest, Confirmation, Connection, Error, Events, ExecRequest, Execution, Result, Runtime,
    Streaming,
};
use prost::Message;
use tokio::sync::broadcast::error::RecvError;

use crate::cgroups::actual;
use crate::error::{from_status, is_unimplemented};
use crate::names::CLUSTER;
use crate::stats::Running;
use crate::{Cri, State, api, convert, hosts, ipv4};
use plumb_grpc::Status;

/// The path of a call of the runtime service.
macro_rules! runtime_call {
    ($name:literal) => {
        concat!("/runtime.v1.RuntimeService/", $name)
    };
}

/// The path of a call of the image service.
macro_rules! image_call {
    ($name:literal) => {
        concat!("/runtime.v1.ImageService/", $name)
    };
}

/// The subject of a call, a sandbox, a container or an image, for error messages.
pub(crate) struct About<'a> {
    pub(crate) doing: &'static str,
    pub(crate) what: &'static str,
    pub(crate) id: &'a str,
}

impl About<'_> {
    fn error(&self, status: &Status) -> Error {
        let doing = match self.id {
            "" => self.doing.to_owned(),
            id => format!("{} {} {id}", self.doing, self.what),
        };
        from_status(&doing, self.what, self.id, status)
    }
}

fn sandbox<'a>(doing: &'static str, id: &'a SandboxId) -> About<'a> {
    About { doing, what: "sandbox", id: id.as_str() }
}

pub(crate) fn container<'a>(doing: &'static str, id: &'a ContainerId) -> About<'a> {
    About { doing, what: "container", id: id.as_str() }
}

impl State {
    pub(crate) async fn call<A: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message,
        about: About<'_>,
    ) -> Result<A> {
        self.runtime.call(path, request).await.map_err(|status| about.error(&status))
    }

    pub(crate) async fn call_images<A: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message,
        about: About<'_>,
    ) -> Result<A> {
        self.images.call(path, request).await.map_err(|status| about.error(&status))
    }

    /// Makes a call that returns the URL of a stream.
    async fn streaming<T>(
        &self,
        path: &'static str,
        request: impl Message,
        about: About<'_>,
    ) -> Result<Streaming<T>> {
        let response: api::StreamingResponse = self.call(path, request, about).await?;
        Ok(Streaming::Url(response.url))
    }

    /// The runtime's own status of a container.
    pub(crate) async fn status_of(&self, id: &ContainerId) -> Result<api::ContainerStatus> {
        let request = api::ContainerRequest { container_id: id.to_string() };
        let response: api::ContainerStatusResponse =
            self.call(runtime_call!("ContainerStatus"), request, container("reading", id)).await?;
        response.status.ok_or_else(|| Error::no_container(id.as_str()))
    }

    /// The containers of this cluster.
    pub(crate) async fn containers(&self, filter: &ContainerFilter) -> Result<Vec<api::Container>> {
        let mut labels = filter.labels.clone();
        labels.insert(CLUSTER.to_owned(), self.cluster.clone());
        let state = filter.state.map(|state| match state {
            ContainerState::Created => api::ContainerState::Created,
            ContainerState::Running => api::ContainerState::Running,
            ContainerState::Exited => api::ContainerState::Exited,
            ContainerState::Unknown => api::ContainerState::Unknown,
        });
        let filter = api::ContainerFilter {
            id: filter.id.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: state.map(|state| api::ContainerStateValue { state: state.into() }),
            pod_sandbox_id: filter.sandbox.as_ref().map(ToString::to_string).unwrap_or_default(),
            label_selector: labels,
        };
        let about = About { doing: "listing containers", what: "container", id: "" };
        let request = api::ListContainersRequest { filter: Some(filter) };
        let response: api::ListContainersResponse =
            self.call(runtime_call!("ListContainers"), request, about).await?;
        Ok(response.containers)
    }

    /// The sandboxes of this cluster.
    pub(crate) async fn pod_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<api::PodSandbox>> {
        let mut labels = filter.labels.clone();
        labels.insert(CLUSTER.to_owned(), self.cluster.clone());
        let state = filter.state.map(|state| match state {
            SandboxState::Ready => api::SandboxState::Ready,
            SandboxState::NotReady => api::SandboxState::NotReady,
        });
        let filter = api::PodSandboxFilter {
            id: filter.id.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: state.map(|state| api::PodSandboxStateValue { state: state.into() }),
            label_selector: labels,
        };
        let about = About { doing: "listing sandboxes", what: "sandbox", id: "" };
        let request = api::ListPodSandboxRequest { filter: Some(filter) };
        let response: api::ListPodSandboxResponse =
            self.call(runtime_call!("ListPodSandbox"), request, about).await?;
        Ok(response.items)
    }

    pub(crate) async fn running(&self, filter: &ContainerFilter) -> Result<Vec<Running>> {
        let filter = ContainerFilter { state: Some(ContainerState::Running), ..filter.clone() };
        Ok(self.containers(&filter).await?.into_iter().filter_map(Running::from_listed).collect())
    }

    /// Makes the runtime reopen the log file of a container after it was renamed.
    pub(crate) async fn reopen_log(&self, id: &ContainerId) -> Result<()> {
        let request = api::ContainerRequest { container_id: id.to_string() };
        let about = container("reopening the log of", id);
        let _: api::Empty = self.call(runtime_call!("ReopenContainerLog"), request, about).await?;
        Ok(())
    }

    /// Informs the runtime about new resources of a pod, unless it does not implement the call.
    async fn update_pod_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()> {
        if self.without_sandbox_update.load(Ordering::Relaxed) {
            return Ok(());
        }
        let request = api::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_string(),
            overhead: Some(api::LinuxContainerResources::default()),
            resources: Some(convert::updated_resources(resources)),
        };
        match self.runtime.call::<api::Empty>(runtime_call!("UpdatePodSandboxResources"), request).await {
            Ok(_) => Ok(()),
            Err(status) if is_unimplemented(&status) => {
                self.without_sandbox_update.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(status) => Err(sandbox("updating the resources of", id).error(&status)),
        }
    }

    /// The user of an image. The CRI requires a user if a group is set, so a container with a group gets that of its image.
    async fn image_user(&self, image: &str) -> Result<String> {
        let found = self.image(image).await?.ok_or_else(|| Error::no_image(image))?;
        Ok(if found.user.is_empty() { "0".to_owned() } else { found.user })
    }

    /// Removes the cgroup and the files of a pod, unless it has another sandbox.
    async fn clear_pod(&self, config: &SandboxConfig) -> Result<()> {
        let left = self.pod_sandboxes(&SandboxFilter::default()).await?;
        let uid = &config.meta.uid;
        if left.iter().any(|other| other.metadata.as_ref().is_some_and(|meta| meta.uid == *uid)) {
            return Ok(());
        }
        hosts::remove(&self.folder, uid);
        self.cgroups.delete_pod(config.class, uid).await
    }
}

/// Runs a closure on a blocking thread. Writing to a cgroup may block: the kernel reclaims memory before it returns from
/// lowering a limit.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(run).await;
    done.map_err(|error| Error::failed("running in the background", error))?
}

/// Ignores the error that a sandbox, container or image does not exist.
pub(crate) fn unless_missing<T>(done: Result<T>) -> Result<()> {
    match done {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[async_trait]
impl Runtime for Cri {
    async fn version(&self) -> Result<Version> {
        let about = About { doing: "asking for the version", what: "runtime", id: "" };
        let version: api::VersionResponse =
            self.state.call(runtime_call!("Version"), api::VersionRequest::default(), about).await?;
        Ok(Version {
            runtime_name: version.runtime_name,
            runtime_version: version.runtime_version,
            api_version: version.runtime_api_version,
        })
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        let about = About { doing: "asking for the status", what: "runtime", id: "" };
        let response: api::StatusResponse =
            self.state.call(runtime_call!("Status"), api::StatusRequest::default(), about).await?;
        let conditions = response.status.unwrap_or_default().conditions;
        let condition = |name: &str| match conditions.iter().find(|condition| condition.r#type == name) {
            Some(condition) if condition.status => Condition::ok(),
            Some(condition) => Condition::failed(condition.reason.clone(), condition.message.clone()),
            None => Condition::failed("Unknown", "the container runtime does not report it"),
        };
        Ok(RuntimeStatus {
            ready: condition("RuntimeReady"),
            network_ready: condition("NetworkReady"),
            has_events: self.state.has_events.load(Ordering::Relaxed),
        })
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId> {
        let uid = &config.meta.uid;
        let state = &self.state;
        if !state.cgroups.can_name(uid) {
            return Err(Error::InvalidArgument(format!("the uid {uid:?} cannot name a cgroup")));
        }
        if let Some(logs) = &config.log_directory {
            let create = std::fs::create_dir_all(logs);
            create.map_err(|error| Error::io(format!("creating {}", logs.display()), &error))?;
        }
        state.cgroups.create_pod(config.class, uid, &config.resources).await?;
        let parent = state.cgroups.parent(config.class, uid);
        let request = api::RunPodSandboxRequest {
            config: Some(convert::sandbox_config(&config, &state.cluster, parent)),
            runtime_handler: config.runtime_handler.clone(),
        };
        let about = About { doing: "running a sandbox", what: "sandbox", id: "" };
        let response: api::RunPodSandboxResponse =
            state.call(runtime_call!("RunPodSandbox"), request, about).await?;
        let id = SandboxId::from(response.pod_sandbox_id);
        state.sandboxes.insert(id.clone(), config);
        Ok(id)
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<()> {
        let request = api::PodSandboxRequest { pod_sandbox_id: id.to_string() };
        let about = sandbox("stopping", id);
        unless_missing(self.state.call::<api::Empty>(runtime_call!("StopPodSandbox"), request, about).await)?;
        // From here on another pod may get the addresses.
        if let Some(service) = self.state.service.get() {
            service.remove(id);
        }
        Ok(())
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<()> {
        let state = &self.state;
        let config = match state.config_of(id).await {
            Ok(config) => Some(config),
            // The sandbox does not exist any more, or was not created by this agent.
            Err(error) if !error.outcome_unknown() => None,
            Err(error) => return Err(error),
        };
        self.stop_sandbox(id).await?;
        let request = api::PodSandboxRequest { pod_sandbox_id: id.to_string() };
        let about = sandbox("removing", id);
        unless_missing(state.call::<api::Empty>(runtime_call!("RemovePodSandbox"), request, about).await)?;
        if let Some(config) = config {
            state.clear_pod(&config).await?;
        }
        state.sandboxes.remove(id);
        state.updates.remove_sandbox(id);
        Ok(())
    }

    async fn sandbox_status(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let status = self.state.pod_sandbox_status(id).await?;
        let resources = match convert::stored(&status) {
            Some(config) => {
                let group = self.state.cgroups.pod(config.class, &config.meta.uid);
                if group.exists() { Some(group.read()?) } else { None }
            }
            None => None,
        };
        Ok(convert::sandbox_status(status, resources))
    }

    async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>> {
        Ok(self.state.pod_sandboxes(filter).await?.into_iter().map(convert::sandbox).collect())
    }

    async fn update_sandbox_resources(&self, id: &SandboxId, resources: &LinuxResources) -> Result<()> {
        let state = &self.state;
        let config = state.config_of(id).await?;
        let uid = &config.meta.uid;
        let before = state.cgroups.pod(config.class, uid).read()?;
        // The runtime is informed before the cgroup changes, as by the kubelet, so that it can reject the resources.
        state.update_pod_sandbox_resources(id, resources).await?;
        if let Err(error) = state.cgroups.set_pod(config.class, uid, resources).await {
            if let Err(also) = state.update_pod_sandbox_resources(id, &before).await {
                tracing::warn!(sandbox = %id, error = %also, "cannot restore the pod's resources in the runtime");
            }
            return Err(error);
        }
        Ok(())
    }

    async fn update_class_resources(&self, class: QosClass, resources: &LinuxResources) -> Result<()> {
        self.state.cgroups.set_class(class, resources).await
    }

    async fn create_container(&self, id: &SandboxId, mut config: ContainerConfig) -> Result<ContainerId> {
        let state = &self.state;
        let status = state.pod_sandbox_status(id).await?;
        let made = state.config_of(id).await?;
        if config.security.group.is_some() && config.security.user.is_none() {
            config.security.user = Some(state.image_user(&config.image).await?);
        }
        if let (Some(logs), Some(path)) = (&made.log_directory, &config.log_path) {
            let folder = logs.join(path.parent().unwrap_or(Path::new("")));
            let create = std::fs::create_dir_all(&folder);
            create.map_err(|error| Error::io(format!("creating {}", folder.display()), &error))?;
        }
        let ips = convert::sandbox_status(status, None).ips;
        if let Some(service) = state.service.get().filter(|_| made.namespaces.network != NamespaceMode::Node)
        {
            for address in ipv4(&ips) {
                service.add(id, address)?;
            }
        }
        hosts::mount(&state.folder, &made, &ips, &mut config)?;
        let parent = state.cgroups.parent(made.class, &made.meta.uid);
        let request = api::CreateContainerRequest {
            pod_sandbox_id: id.to_string(),
            config: Some(convert::container_config(&config, (id, &made), &state.cluster)),
            sandbox_config: Some(convert::sandbox_config(&made, &state.cluster, parent)),
        };
        let about = About { doing: "creating a container", what: "container", id: "" };
        let response: api::CreateContainerResponse =
            state.call(runtime_call!("CreateContainer"), request, about).await?;
        let id = response.container_id.into();
        state.remember_created(&id, &config.resources);
        Ok(id)
    }

    async fn start_container(&self, id: &ContainerId) -> Result<()> {
        let request = api::ContainerRequest { container_id: id.to_string() };
        let about = container("starting", id);
        let _: api::Empty = self.state.call(runtime_call!("StartContainer"), request, about).await?;
        Ok(())
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        let state = &self.state;
        let request = api::StopContainerRequest { container_id: id.to_string(), timeout: seconds(grace) };
        let timeout = grace.saturating_add(state.runtime.timeout());
        let stopped = state.runtime.call_within::<api::Empty>(
            runtime_call!("StopContainer"),
            &[],
            request,
            Some(timeout),
        );
        unless_missing(stopped.await.map_err(|status| container("stopping", id).error(&status)))
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<()> {
        let request = api::ContainerRequest { container_id: id.to_string() };
        let about = container("removing", id);
        let removed = self.state.call::<api::Empty>(runtime_call!("RemoveContainer"), request, about).await;
        unless_missing(removed)?;
        self.state.updates.remove(id);
        Ok(())
    }

    async fn container_status(&self, id: &ContainerId) -> Result<ContainerStatus> {
        let status = self.state.status_of(id).await?;
        let reported = status.resources.as_ref().and_then(|resources| resources.linux.as_ref());
        let reported = reported.map(convert::read_resources);
        let group = self.state.remember(id, &status);
        let resources =
            actual(reported, self.state.known_resources(id), group.as_ref()).map(Resources::Linux);
        Ok(convert::container_status(status, resources))
    }

    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        Ok(self.state.containers(filter).await?.into_iter().map(convert::container).collect())
    }

    async fn update_container_resources(&self, id: &ContainerId, resources: &Resources) -> Result<()> {
        self.state.update_container(id, resources).await
    }

    async fn container_resources(&self, id: &ContainerId) -> Result<Option<Resources>> {
        match self.state.resources_of(id) {
            Some(resources) => Ok(Some(Resources::Linux(resources))),
            None => Ok(self.container_status(id).await?.resources),
        }
    }

    async fn sandbox_resources(&self, id: &SandboxId) -> Result<Option<LinuxResources>> {
        let config = self.state.config_of(id).await?;
        let group = self.state.cgroups.pod(config.class, &config.meta.uid);
        if group.exists() { Ok(Some(group.read()?)) } else { Ok(None) }
    }

    fn confirmation(&self, id: &ContainerId) -> Confirmation {
        self.state.updates.confirmation(id)
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> Result<()> {
        self.state.reopen_log(id).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecOutput> {
        let state = &self.state;
        let request = api::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            timeout: timeout.map_or(0, seconds),
        };
        // The runtime stops the command at its timeout; the longer timeout of the call is for a runtime that does not respond.
        let within = timeout.map(|timeout| timeout.saturating_add(state.runtime.timeout()));
        let response: api::ExecSyncResponse = state
            .runtime
            .call_within(runtime_call!("ExecSync"), &[], request, within)
            .await
            .map_err(|status| container("running a command in", id).error(&status))?;
        Ok(ExecOutput { stdout: response.stdout, stderr: response.stderr, exit_code: response.exit_code })
    }

    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Execution>> {
        let request = api::ExecRequest {
            container_id: id.to_string(),
            cmd: request.command,
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            // With a terminal, standard error is part of standard output; runtimes reject requests for both.
            stderr: request.stderr && !request.tty,
        };
        self.state.streaming(runtime_call!("Exec"), request, container("running a command in", id)).await
    }

    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Execution>> {
        let request = api::AttachRequest {
            container_id: id.to_string(),
            stdin: request.stdin,
            tty: request.tty,
            stdout: request.stdout,
            stderr: request.stderr && !request.tty,
        };
        self.state.streaming(runtime_call!("Attach"), request, container("attaching to", id)).await
    }

    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Connection>> {
        let request = api::PortForwardRequest { pod_sandbox_id: id.to_string(), port: vec![port.into()] };
        self.state.streaming(runtime_call!("PortForward"), request, sandbox("forwarding a port of", id)).await
    }

    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats> {
        let filter = ContainerFilter { id: Some(id.clone()), ..ContainerFilter::default() };
        match self.state.running(&filter).await?.first() {
            Some(running) => self.state.stats_of(running),
            None => Err(Error::FailedPrecondition(format!("container {id} is not running"))),
        }
    }

    async fn list_container_stats(&self, filter: &StatsFilter) -> Result<Vec<ContainerStats>> {
        let filter = ContainerFilter {
            id: filter.id.clone(),
            sandbox: filter.sandbox.clone(),
            state: None,
            labels: filter.labels.clone(),
        };
        let running = self.state.running(&filter).await?;
        // A container that has exited meanwhile has no cgroup.
        Ok(running.iter().filter_map(|running| self.state.stats_of(running).ok()).collect())
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> Result<SandboxStats> {
        let state = &self.state;
        let config = state.config_of(id).await?;
        let found = convert::sandbox_status(state.pod_sandbox_status(id).await?, None).sandbox;
        let containers = state.running(&ContainerFilter::of(id)).await?;
        state.pod_stats_of(found, &config, &containers)
    }

    async fn list_sandbox_stats(&self, filter: &SandboxFilter) -> Result<Vec<SandboxStats>> {
        let state = &self.state;
        // One list of all containers, instead of a call for each pod.
        let mut containers = state.running(&ContainerFilter::default()).await?;
        let mut stats = Vec::new();
        for sandbox in self.list_sandboxes(filter).await? {
            let (own, others) =
                containers.into_iter().partition(|running| running.container.sandbox == sandbox.id);
            containers = others;
            let own: Vec<Running> = own;
            if let Ok(config) = state.config_of(&sandbox.id).await
                && let Ok(found) = state.pod_stats_of(sandbox, &config, &own)
            {
                stats.push(found);
            }
        }
        Ok(stats)
    }

    async fn reclaim_memory(&self, id: &ContainerId, bytes: u64) -> Result<u64> {
        let status = self.state.status_of(id).await?;
        match self.state.cgroups.container(id.as_str(), &status.annotations) {
            Some(group) => blocking(move || Ok(group.reclaim(bytes)?)).await,
            None => Err(Error::Unsupported(format!("container {id} has no cgroup that is known"))),
        }
    }

    async fn list_images(&self) -> Result<Vec<Image>> {
        self.state.list_images().await
    }

    async fn image_status(&self, name: &str) -> Result<Option<Image>> {
        self.state.image(name).await
    }

    async fn pull_image(&self, name: &str, credentials: Option<&Credentials>) -> Result<String> {
        let auth = credentials.map(api::AuthConfig::from);
        let request = api::PullImageRequest { image: Some(name.into()), auth };
        // A pull has no timeout: the runtime cancels it if it makes no progress.
        let response: api::PullImageResponse = self
            .state
            .images
            .call_within(image_call!("PullImage"), &[], request, None)
            .await
            .map_err(|status| About { doing: "pulling", what: "image", id: name }.error(&status))?;
        Ok(response.image_ref)
    }

    async fn remove_image(&self, name: &str) -> Result<()> {
        self.state.remove_image(name).await
    }

    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        let about = About { doing: "asking for the disk usage of images", what: "image", id: "" };
        let response: api::ImageFsInfoResponse =
            self.state.call_images(image_call!("ImageFsInfo"), api::Empty {}, about).await?;
        Ok(response.image_filesystems.into_iter().map(convert::filesystem).collect())
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
