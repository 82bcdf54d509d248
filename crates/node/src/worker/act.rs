//! Performing the actions that the pod's lifecycle decides.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use plumb_resize::plan::{CgroupState, Step, inherited, start_with};
use plumb_resize::resource::Requirements;
use plumb_runtime::Error;
use plumb_runtime::types::{
    ContainerConfig, ContainerId, Dns, Image, LinuxResources, SandboxConfig, SandboxId,
};

use super::error::{GenerateError, SandboxError, SyncError};
use super::start_backoff::{BackoffKey, Retry, StartBackoff};
use super::{Message, POD_WORKER, Worker, declared_by_pod, error_chain};
use crate::cri_config;
use crate::env::{EnvFacts, environment};
use crate::events::Kind;
use crate::lifecycle::{
    Action, Decision, ObservedContainer, State, containers, is_restart_all_pending, is_restarted_by_other,
};
use crate::node::Node;
use crate::observe::{MADE_WITH, Outdated};
use crate::readback;
use crate::runtime_class;
use crate::status::Waiting;

/// The reason of a container whose spec refers to something that is missing.
const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// Why a container could not be started.
pub(super) struct StartFailure {
    /// The reason of its waiting state, and the message.
    reason: &'static str,
    message: String,
    /// The reason of the event that has the message, if its image is why.
    of_image: Option<&'static str>,
    /// Its waiting state during the backoff of a pull.
    later: Option<Waiting>,
}

impl StartFailure {
    pub(super) fn new(reason: &'static str, message: impl ToString) -> Self {
        Self { reason, message: message.to_string(), of_image: None, later: None }
    }

    /// Because of its image: the message has an event of its own.
    pub(super) fn of_image(reason: &'static str, event: &'static str, message: String) -> Self {
        Self { of_image: Some(event), ..Self::new(reason, message) }
    }

    /// With this waiting state if the same happens again.
    pub(super) fn then(self, later: Waiting) -> Self {
        Self { later: Some(later), ..self }
    }
}

impl Worker {
    /// Performs the actions in order; stops at the first failure. False if all of them have to wait for something that
    /// is in progress.
    pub(super) async fn act(&mut self, decision: &Decision, mut now: CgroupState) -> Result<bool, SyncError> {
        let mut done = false;
        for action in &decision.actions {
            match *action {
                Action::Start { container, attempt } => {
                    done |= self.start(container, attempt, &mut now).await?;
                    continue;
                }
                Action::CreateSandbox { attempt } => self.create_sandbox(attempt).await?,
                Action::StartCreated { container } => self.start_existing(container).await?,
                Action::Stop { container, why } => self.stop(container, why),
                Action::StopSandbox => self.stop_sandbox().await?,
            }
            done = true;
        }
        Ok(done)
    }

    async fn create_sandbox(&mut self, attempt: u32) -> Result<(), SyncError> {
        if let Some(volumes) = &self.node.volumes
            && let Err(error) = volumes.prepare(&self.allocated_pod()).await
        {
            self.node.events.pod(&self.pod, Kind::Warning, "FailedMount", error.to_string());
            return Err(SyncError::Volumes(error));
        }
        let cgroup = self.info.shape.cgroup(&self.entry.allocation.allocated);
        match self.run_sandbox(attempt, readback::pod_cgroup(&cgroup)).await {
            Ok(()) => {
                self.actuated.pod = Some(cgroup);
                self.clear_old_sandboxes().await;
                Ok(())
            }
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", error_chain(&error));
                self.node.events.pod(&self.pod, Kind::Warning, "FailedCreatePodSandBox", message);
                Err(error.into())
            }
        }
    }

    async fn run_sandbox(&self, attempt: u32, resources: LinuxResources) -> Result<(), SandboxError> {
        let runtime_class = self.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref());
        let handler = runtime_class::handler(&self.node.client, runtime_class).await?;
        let (class, defaults) = (self.info.shape.qos, &self.node.sandbox_defaults);
        let config = cri_config::sandbox(&self.pod, class, attempt, resources, defaults, self.pod_dns()?)?;
        self.node.runtime.run_sandbox(SandboxConfig { runtime_handler: handler, ..config }).await?;
        Ok(())
    }

    /// The DNS configuration of the pod, with the host's current one.
    fn pod_dns(&self) -> Result<Dns, SandboxError> {
        let defaults = &self.node.sandbox_defaults;
        let host = defaults.resolv_conf.as_deref().map(|file| {
            cri_config::read_resolv_conf(file)
                .map_err(|source| SandboxError::ResolvConf { path: file.to_owned(), source })
        });
        let found = cri_config::pod_dns(&self.pod, defaults.cluster_dns.as_ref(), host.transpose()?.as_ref());
        for message in found.omitted {
            self.node.events.pod(&self.pod, Kind::Warning, "DNSConfigForming", message);
        }
        Ok(found.dns)
    }

    /// Removes the sandboxes before the newest; their containers have exited with them.
    async fn clear_old_sandboxes(&self) {
        for id in &self.observation.old_sandboxes {
            if let Err(error) = self.node.runtime.remove_sandbox(id).await {
                tracing::warn!(uid = self.uid, %error, "cannot remove an old sandbox");
            }
        }
    }

    async fn stop_sandbox(&mut self) -> Result<(), SyncError> {
        let Some(sandbox) = &self.observation.observed.sandbox else { return Ok(()) };
        let stopped = self.node.runtime.stop_sandbox(&sandbox.id).await;
        stopped.map_err(SyncError::runtime("stopping the sandbox"))
    }

    /// Creates and starts a container within the limits that are applied now. False if its image is being pulled.
    async fn start(
        &mut self,
        position: usize,
        attempt: u32,
        now: &mut CgroupState,
    ) -> Result<bool, SyncError> {
        let Some(container) = self.container(position).cloned() else { return Ok(false) };
        let Some(sandbox) = self.observation.observed.sandbox.as_ref().map(|sandbox| sandbox.id.clone())
        else {
            return Ok(false);
        };
        let image = match self.image(&container).await {
            Ok(Some(image)) => image,
            // The pull sends a message when it is done.
            Ok(None) => return Ok(false),
            Err(failed) => {
                self.not_started(position, failed);
                return Ok(true);
            }
        };
        let Some(to) = self.start_resources(position, now) else {
            let why = "the other containers of the pod hold all that its limits allow";
            self.not_started(position, StartFailure::new("CreateContainerError", why));
            return Ok(true);
        };
        let created = self.create_container(&sandbox, &container, position, attempt, to, &image).await;
        match created {
            Ok(id) => {
                self.actuated.containers.insert(id.clone(), to);
                now.apply(&Step::Start { container: position, to });
                self.start_created(position, attempt, &id).await?;
            }
            Err(failed) => self.not_started(position, failed),
        }
        Ok(true)
    }

    /// The resources that a container starts with, as its cgroup gets them: its allocated ones, or less while others have
    /// not given up theirs.
    fn start_resources(&self, position: usize, now: &CgroupState) -> Option<Requirements> {
        let allocated = &self.entry.allocation.allocated;
        let to = inherited(allocated).nth(position).unwrap_or_default();
        let before = self.last_actual.get(position).copied().flatten();
        let start = start_with(now, position, to, before, declared_by_pod(allocated))?;
        if start != to {
            let container = self.name_of(position);
            tracing::info!(uid = self.uid, container, ?start, allocated = ?to, "starts with less than allocated");
        }
        Some(start)
    }

    fn container(&self, position: usize) -> Option<&Container> {
        self.pod.spec.as_ref().and_then(|spec| containers(spec).nth(position))
    }

    /// Creates a container with everything that its spec refers to.
    async fn create_container(
        &self,
        sandbox: &SandboxId,
        container: &Container,
        position: usize,
        attempt: u32,
        to: Requirements,
        image: &Image,
    ) -> Result<ContainerId, StartFailure> {
        let config = self.generate_config(position, attempt, to, image).await;
        self.create_with(sandbox, &container.name, config).await
    }

    /// Creates a container with its config, and emits an event.
    pub(super) async fn create_with(
        &self,
        sandbox: &SandboxId,
        name: &str,
        config: Result<ContainerConfig, GenerateError>,
    ) -> Result<ContainerId, StartFailure> {
        let config = config.map_err(|error| StartFailure::new(CONFIG_ERROR, error_chain(&error)))?;
        match self.node.runtime.create_container(sandbox, config).await {
            Ok(id) => {
                self.node.events.container(&self.pod, name, Kind::Normal, "Created", "Container created");
                Ok(id)
            }
            // An earlier attempt created it and lost the response.
            Err(Error::AlreadyExists { id, .. }) => Ok(id.into()),
            Err(error) => Err(StartFailure::new("CreateContainerError", error)),
        }
    }

    async fn generate_config(
        &self,
        position: usize,
        attempt: u32,
        to: Requirements,
        image: &Image,
    ) -> Result<ContainerConfig, GenerateError> {
        // A container has its allocated resources: while a resize is deferred or infeasible, the spec requests more
        // than its cgroup will ever have.
        let pod = self.allocated_pod();
        let container = pod.spec.as_ref().and_then(|spec| containers(spec).nth(position));
        let container = container.ok_or(GenerateError::NotInSpec)?;
        let mut resources = readback::container_cgroup(&to);
        let allocated = &self.entry.allocation.allocated;
        let score =
            cri_config::oom_score_adj(&self.pod, &self.info.shape, allocated, position, self.node.memory);
        resources.oom_score_adj = Some(score);
        resources.cpuset_cpus = self.cpus(position).map(|cpus| cpus.to_string());
        let mut config = self.container_config(&pod, container, attempt, resources, image).await?;
        // Plain data of our own types always has a JSON form.
        let made_with = serde_json::to_string(&to).unwrap_or_default();
        config.annotations.insert(MADE_WITH.to_owned(), made_with);
        Ok(config)
    }

    /// The configuration of a container, with everything that its spec refers to.
    pub(super) async fn container_config(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
        resources: LinuxResources,
        image: &Image,
    ) -> Result<ContainerConfig, GenerateError> {
        let mut resources = resources;
        if self.node.oom_group {
            // The kubelet's default without `singleProcessOOMKill`: the rest of the processes would go on in an unknown state,
            // and the container would neither end nor be restarted.
            resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
        }
        let facts = EnvFacts { pod_ips: self.addresses(), ..self.node.facts.clone() };
        let env =
            environment(&self.node.objects, self.node.services.as_ref(), pod, container, &facts).await?;
        let mut image_mounts = Vec::new();
        let mut devices = Vec::new();
        let mounts = match &self.node.volumes {
            Some(volumes) => {
                let ready = volumes.prepare(pod).await?;
                image_mounts = ready.image_mounts(container, &env)?;
                devices = ready.devices(container)?;
                let (container, env) = (container.clone(), env.clone());
                // It reads volumes that containers write, so it runs on a blocking thread.
                let mounts = tokio::task::spawn_blocking(move || ready.mounts(&container, attempt, &env));
                mounts.await??
            }
            None => Vec::new(),
        };
        if !image_mounts.is_empty() && !self.node.runtime.has_image_volumes() {
            return Err(GenerateError::NoImageVolumes);
        }
        let config = cri_config::container(pod, container, attempt, resources, image, env, mounts)?;
        Ok(ContainerConfig {
            image_mounts,
            devices,
            log_limits: self.node.sandbox_defaults.log_limits,
            ..config
        })
    }

    /// The pod's addresses.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let on_host = self.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        match &self.observation.observed.sandbox {
            Some(sandbox) if !on_host => sandbox.ips.clone(),
            _ => self.node.facts.host_ips.clone(),
        }
    }

    /// Starts a container that was created.
    async fn start_existing(&mut self, position: usize) -> Result<(), SyncError> {
        let observed = self.observation.observed.containers.get(position).and_then(Option::as_ref);
        let Some((id, attempt)) = observed.map(|observed| (observed.id.clone(), observed.attempt)) else {
            return Ok(());
        };
        self.start_created(position, attempt, &id).await
    }

    async fn start_created(
        &mut self,
        position: usize,
        attempt: u32,
        id: &ContainerId,
    ) -> Result<(), SyncError> {
        let runtime = self.node.runtime.clone();
        if let Err(error) = self.reporting_status(runtime.start_container(id)).await {
            self.not_started(position, StartFailure::new("RunContainerError", error));
            // A created container that does not start is removed; the next attempt creates another.
            let removed = self.node.runtime.remove_container(id).await;
            return removed.map_err(SyncError::runtime("removing a container that did not start"));
        }
        let name = self.name_of(position).to_owned();
        self.node.events.container(&self.pod, &name, Kind::Normal, "Started", "Container started");
        self.run_post_start_hook(position, id);
        let is_restarting = self.entry.restarting.contains(&name);
        let ran = self.observation.observed.containers.get(position).and_then(Option::as_ref).and_then(ran);
        let has_crashed = attempt > 0 && !is_restarting && !self.is_restarted_by_other(position);
        let key = self.backoff_key(position);
        if let Some(start_backoff) = self.start_backoffs.get_mut(position) {
            start_backoff.started(key, ran.filter(|_| has_crashed));
        }
        if is_restarting {
            let noted = self
                .node
                .allocations
                .update_entry(&self.uid, |entry| entry.restarting.retain(|other| *other != name));
            if let Some(entry) = noted.await? {
                self.entry = entry;
            }
        }
        self.clear_stale().await;
        Ok(())
    }

    /// Whether a container is started again only because of the exit of another one.
    fn is_restarted_by_other(&self, position: usize) -> bool {
        let spec = self.pod.spec.as_ref();
        spec.is_some_and(|spec| is_restarted_by_other(spec, &self.observation.observed, position))
    }

    /// Runs the post-start hook of a container, in a task of its own. The container is [`State::Starting`] until the hook has
    /// completed.
    fn run_post_start_hook(&mut self, position: usize, id: &ContainerId) {
        let Some(container) = self.container(position) else { return };
        let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        let Some(hook) = hook else { return };
        let target = self.target(container, id.clone(), Duration::ZERO);
        self.post_start_hooks.insert(id.clone());
        let (sender, supervisor) = (self.sender.clone(), self.node.supervisor.clone());
        tokio::spawn(async move {
            let ran = supervisor.guard(POD_WORKER, crate::hook::run(&target, &hook)).await;
            let error = ran.unwrap_or_else(|panic| Some(panic.to_string()));
            // The worker may have ended.
            let _ = sender.send(Message::PostStartHook(Box::new((target.id, error))));
        });
    }

    /// Handles the end of a post-start hook: the container has started, or is stopped because its hook failed.
    pub(super) fn handle_post_start_hook(&mut self, id: &ContainerId, error: Option<String>) {
        self.post_start_hooks.remove(id);
        self.observation.mark(Outdated::All);
        if let Some(error) = error {
            self.failed_hooks.insert(id.clone(), error);
        }
    }

    /// Stops the containers whose post-start hook failed. To be called after an observation: the last one may be from before
    /// the container was started.
    pub(super) fn stop_after_failed_hooks(&mut self) {
        for (id, error) in std::mem::take(&mut self.failed_hooks) {
            self.handle_failed_hook(&id, &error);
        }
    }

    /// Stops a container whose post-start hook failed; its restart policy decides whether it is started again.
    fn handle_failed_hook(&mut self, id: &ContainerId, message: &str) {
        let observed = self.observation.observed.containers.iter().position(|observed| {
            observed.as_ref().is_some_and(|observed| observed.id == *id && observed.runs())
        });
        let Some(position) = observed else { return };
        let name = self.name_of(position).to_owned();
        tracing::warn!(uid = self.uid, container = name, message, "a post-start hook failed");
        // The kubelet's message: without the output of the hook, which may be secret.
        self.node.events.container(
            &self.pod,
            &name,
            Kind::Warning,
            "FailedPostStartHook",
            "PostStartHook failed",
        );
        self.stop(position, crate::lifecycle::StopReason::HookFailed);
    }

    /// Removes stale containers, and older runs but for the one that has all containers of the pod restarted, until they are.
    async fn clear_stale(&self) {
        let observed = &self.observation.observed;
        let is_kept = |run: &ObservedContainer| {
            let spec = self.pod.spec.as_ref();
            spec.is_some_and(|spec| is_restart_all_pending(spec, observed, run))
        };
        let older = observed.older.iter().map(|(_, run)| run).filter(|run| !is_kept(run));
        for id in observed.stale.iter().chain(older.map(|run| &run.id)) {
            if let Err(error) = self.node.runtime.remove_container(id).await {
                tracing::warn!(uid = self.uid, container = %id, %error, "cannot remove an old container");
            }
        }
    }

    /// Notes that a container could not be started.
    pub(super) fn not_started(&mut self, position: usize, failed: StartFailure) {
        let name = self.name_of(position).to_owned();
        let key = self.backoff_key(position);
        let backoff = self.start_backoffs.get_mut(position);
        note_failure(&self.node, &self.pod, &name, key, failed, backoff);
    }
}

/// Emits the events of a container that could not be started, and notes when it is tried again.
pub(super) fn note_failure(
    node: &Node,
    pod: &Pod,
    container: &str,
    key: BackoffKey,
    failed: StartFailure,
    backoff: Option<&mut StartBackoff>,
) {
    let StartFailure { reason, message, of_image, later } = failed;
    let emit = |kind: Kind, reason: &'static str, text: String| {
        node.events.container(pod, container, kind, reason, text);
    };
    if let Some(event) = of_image {
        emit(Kind::Warning, event, message.clone());
    }
    let error = if of_image.is_some() { reason } else { message.as_str() };
    emit(Kind::Warning, "Failed", format!("Error: {error}"));
    let retry = if reason == CONFIG_ERROR { Retry::Steady } else { Retry::Backoff };
    let waiting = Waiting { reason: reason.to_owned(), message };
    let is_pull = later.is_some();
    let back_off = format!("Back-off pulling image {:?}", key.image);
    let again = backoff.is_some_and(|backoff| backoff.failed(key, waiting, later, retry, (node.clock)()));
    if again && is_pull {
        emit(Kind::Normal, "BackOff", back_off);
        emit(Kind::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
    }
}

/// How long a container ran that has ended by itself, and not with its sandbox.
fn ran(observed: &ObservedContainer) -> Option<jiff::SignedDuration> {
    match &observed.state {
        _ if observed.of_old_sandbox => None,
        State::Exited { started, finished, .. } => {
            Some(started.map_or(jiff::SignedDuration::ZERO, |started| finished.duration_since(started)))
        }
        _ => None,
    }
}
