//! The pod worker: requests an allocation, observes the runtime, performs the decided actions, and patches the
//! status.
//!
//! ```text
//!   message ▸ sync: request ▸ observe ▸ decide ▸ patch status ▸ act ▸ sync again, until no action is left
//! ```
//!
//! A worker has no state of its own that must survive: the allocation is in the journal, and containers are in the
//! runtime. Slow operations (stopping a container, pulling an image) run in tasks of their own and send a [`Message`] when
//! they are done; the status is patched while the worker waits for messages or for the runtime.

mod act;
mod actuation;
mod allocated;
mod announced;
mod cleanup;
mod count;
mod ephemeral;
mod error;
mod failures;
mod growth;
mod image;
mod message;
mod pin;
mod probes;
mod request;
mod resize;
mod restored;
mod start_backoff;
mod state;
mod status_manager;
mod stop;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use plumb_resize::plan::{CgroupState, Step, inherited, plan, start_waits};
use plumb_resize::pod::PodResources;
use plumb_resize::resource::{PerResource, Requirements};
use plumb_resize::status::Allocation;
use plumb_runtime::Confirmation;
use plumb_runtime::types::ContainerId;
use plumb_supervise::Exponential;
use tokio::sync::mpsc;

use crate::allocation_manager::Trigger;
use crate::allocator::PodInfo;
use crate::journal::Entry;
use crate::lifecycle::{
    Action, Decision, Health, ObservedContainer, Phase, State, View, containers, decide, phase,
};
use crate::node::Node;
use crate::observe::{self, ActuatedResources, Observation, Outdated, observe, read_back};
use crate::shutdown::{OngoingTermination, Termination};
use crate::status::{StatusInput, begins_to_restart_all};
use actuation::Actuation;
use allocated::AdoptedVolumes;
use announced::AnnouncedResize;
use count::Counted;
use error::SyncError;
use failures::Failures;
use growth::Growth;
use image::Pull;
pub(crate) use message::Message;
use probes::ProbedContainer;
use request::ResizeRequest;
use start_backoff::StartBackoff;
use state::{Deletion, Failure, State as WorkerState};
pub(crate) use state::{grace_period, is_finished, to_duration};
use status_manager::StatusManager;
use stop::Stopping;

/// The name of workers in metrics of panics.
pub(crate) const POD_WORKER: &str = "pod-worker";
/// How many times a worker syncs its pod before it receives messages again.
const MAX_SYNCS: usize = 64;
/// The backoff after a failed sync.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(10));

/// When a worker syncs its pod again.
enum Requeue {
    /// At once.
    Now,
    /// At once, after the resources of running containers were changed and nothing else.
    ReadBack,
    /// After the next message, or after this long.
    After(Option<Duration>),
    /// Never: the pod is removed from the node and from the API.
    Never,
}

/// The worker of one pod. Where the pod is in its life is in three enums with diagrams: [`WorkerState`], [`Deletion`] and
/// [`ResizeRequest`].
pub(crate) struct Worker {
    node: Arc<Node>,
    /// The sender of its own inbox, for its tasks.
    sender: mpsc::UnboundedSender<Message>,
    uid: String,
    state: WorkerState,

    /// The pod in the API.
    pod: Arc<Pod>,
    info: PodInfo,
    deletion: Deletion,

    /// The pod in the journal: its allocation.
    entry: Entry,
    request: ResizeRequest,

    /// The pod in the runtime.
    observation: Observation,
    actuated: ActuatedResources,
    actuation: Actuation,
    growth: Growth,
    /// The last observed resources of each container while it ran, by position.
    last_actual: Vec<Option<Requirements>>,
    /// The attempt after the last one that ran, of each container by position.
    next_attempts: Vec<u32>,

    /// The resize that the pod announces.
    announced: AnnouncedResize,
    /// The containers whose post-start hook runs.
    post_start_hooks: BTreeSet<ContainerId>,
    /// The containers whose post-start hook failed, with the error, until the next observation.
    failed_hooks: BTreeMap<ContainerId, String>,
    /// The containers that are being stopped.
    stopping: Stopping,
    /// The images that are being pulled.
    images: BTreeMap<String, Pull>,
    /// The probes of each container, by position.
    probed: Vec<ProbedContainer>,
    /// The backoff of each container, by position.
    start_backoffs: Vec<StartBackoff>,
    /// The backoff of ephemeral containers that have not been started, by name.
    ephemeral_backoffs: BTreeMap<String, StartBackoff>,
    volumes: AdoptedVolumes,
    /// How the node terminates the pod: it shuts down, or the pod was preempted or evicted.
    termination: Option<OngoingTermination>,
    /// Whether everything of the pod was removed from the disk, though it is not deleted.
    is_disk_released: bool,
    /// Consecutive failed syncs.
    failures: Failures,

    status_manager: StatusManager,
    counted: Counted,
}

impl Worker {
    /// The worker of a pod with this entry.
    pub(crate) fn new(
        node: Arc<Node>,
        sender: mpsc::UnboundedSender<Message>,
        pod: Arc<Pod>,
        info: PodInfo,
        entry: Entry,
    ) -> Self {
        let count = info.shape.containers.len();
        let observed = observe::empty(&info.shape);
        let mut announced = AnnouncedResize::default();
        announced.observe(&pod, (node.clock)());
        Self {
            announced,
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node,
            sender,
            request: ResizeRequest::Outstanding,
            observation: Observation { observed, ..Observation::default() },
            actuated: ActuatedResources::default(),
            last_actual: vec![None; count],
            probed: (0..count).map(|_| ProbedContainer::default()).collect(),
            start_backoffs: vec![StartBackoff::default(); count],
            ephemeral_backoffs: BTreeMap::new(),
            next_attempts: next_attempts(&pod),
            post_start_hooks: BTreeSet::new(),
            failed_hooks: BTreeMap::new(),
            stopping: Stopping::default(),
            images: BTreeMap::new(),
            status_manager: StatusManager::default(),
            state: WorkerState::of(&pod),
            deletion: Deletion::default(),
            counted: Counted::default(),
            actuation: Actuation::default(),
            growth: Growth::default(),
            failures: Failures::default(),
            volumes: AdoptedVolumes::default(),
            termination: None,
            is_disk_released: false,
            pod,
            info,
            entry,
        }
    }

    /// The same, for an admitted pod that must fail now, and whose containers must be stopped.
    pub(crate) fn fail_with(mut self, reason: String, message: String) -> Self {
        self.state.fail(Failure { reason, message });
        self
    }

    /// The same, for a rejected pod.
    pub(crate) fn rejected(mut self, reason: String, message: String) -> Self {
        self.state = WorkerState::rejected(Failure { reason, message });
        self
    }

    /// Runs until the pod is removed.
    pub(crate) async fn run(mut self: Box<Self>, inbox: &mut mpsc::UnboundedReceiver<Message>) {
        self.observe_deletion();
        loop {
            // Boxed, so that an idle worker does not hold the memory of a sync.
            let requeue = Box::pin(self.sync_until_idle()).await;
            match requeue {
                Requeue::Never => break,
                // Let other workers run.
                Requeue::Now | Requeue::ReadBack => tokio::task::yield_now().await,
                Requeue::After(wait) => {
                    let timer = async {
                        match wait {
                            Some(wait) => tokio::time::sleep(wait).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        message = inbox.recv() => match message {
                            Some(message) => self.handle(message).await,
                            None => break,
                        },
                        outcome = self.status_manager.outcome() => self.handle_status_patched(outcome),
                        () = timer => self.observation.mark(Outdated::All),
                    }
                }
            }
            while let Ok(message) = inbox.try_recv() {
                self.handle(message).await;
            }
            if let Some(outcome) = self.status_manager.outcome().now_or_never() {
                self.handle_status_patched(outcome);
            }
        }
        self.update_gauges();
        self.node.workers.remove(&self.uid);
    }

    /// Handles a message.
    async fn handle(&mut self, message: Message) {
        match message {
            Message::Pod(pod) => self.handle_pod(pod),
            Message::Listed(pod) => self.handle_listed(pod),
            Message::Restored(pod) => self.handle_restored(*pod),
            Message::Deleted => self.handle_deleted(),
            Message::RuntimeEvent => self.observation.mark(Outdated::All),
            Message::OutOfMemory(id) => {
                self.observation.mark(Outdated::All);
                self.emit_oom(&id);
            }
            // Boxed, so that an idle worker does not hold their memory.
            Message::MemoryPressure(pressure) => {
                Box::pin(self.handle_memory_pressure(&pressure.0, pressure.1)).await;
            }
            Message::GrowthRequested(requested) => {
                let (id, resource, outcome) = *requested;
                Box::pin(self.handle_growth_requested(&id, resource, outcome)).await;
            }
            Message::ThrottlingMeasured(measured) => self.handle_throttling(&measured.0, measured.1),
            Message::LimitRestored => {
                self.observation.mark(Outdated::All);
                self.handle_restored_limit();
            }
            Message::UpdateFinished => self.observation.mark(Outdated::Resources),
            Message::Allocation(result, trigger) => self.handle_allocation(*result, Some(trigger)),
            Message::Retry => self.request.reopen(),
            Message::Stopped(id) => {
                self.observation.mark(Outdated::All);
                self.stopping.remove(&id);
            }
            Message::Pulled(pulled) => self.handle_pulled(*pulled),
            Message::PostStartHook(hook) => self.handle_post_start_hook(&hook.0, hook.1),
            Message::Probed(report) => self.handle_probed(*report),
            Message::Terminate(termination) => self.handle_termination(*termination),
            Message::ReleaseDisk(done) => {
                Box::pin(self.release_disk()).await;
                // The eviction manager may have given up on it.
                let _ = done.send(());
            }
        }
    }

    /// Handles an update of the pod, if it is newer.
    fn handle_pod(&mut self, pod: Arc<Pod>) {
        if is_newer(&pod, &self.pod) {
            self.update_pod(pod);
        }
    }

    fn update_pod(&mut self, pod: Arc<Pod>) {
        match self.node.pod_info(&pod) {
            Ok(info) => {
                if info.desired != self.info.desired || info.generation != self.info.generation {
                    self.request.reopen();
                }
                if info.desired != self.info.desired {
                    let old = std::mem::take(&mut self.info.desired);
                    self.count_desired(&old, &info.desired);
                }
                self.info = info;
            }
            // The pod keeps its last valid spec.
            Err(error) => tracing::warn!(%error, uid = self.uid, "invalid resources in a pod's spec"),
        }
        self.announced.observe(&pod, (self.node.clock)());
        self.pod = pod;
        self.refresh_volumes();
        self.node.workers.update_pod(&self.uid, self.pod.clone());
        self.state.observe_phase(&self.pod);
        self.observe_deletion();
    }

    /// Terminates the pod at the request of the node.
    fn handle_termination(&mut self, termination: Termination) {
        let Termination { cause, .. } = &termination;
        self.fail(cause.reason(), cause.message());
        match &mut self.termination {
            Some(begun) => begun.join(termination),
            None => self.termination = Some(termination.into()),
        }
        self.shorten_stops();
    }

    /// Reports the end of the pod to what has terminated it, once its status has it.
    fn report_termination(&mut self) {
        let is_terminated = matches!(self.state, WorkerState::Terminated(_));
        let has_ended =
            is_terminated && !self.runs() && self.stopping.is_empty() && !self.status_manager.is_open();
        if let Some(termination) = self.termination.take_if(|_| has_ended) {
            termination.report_end();
        }
    }

    /// Terminates the pod because it has failed.
    fn fail(&mut self, reason: &str, message: &str) {
        self.state.fail(Failure { reason: reason.to_owned(), message: message.to_owned() });
    }

    /// The API does not have the pod any more, and no status to patch.
    fn handle_deleted(&mut self) {
        self.status_manager = StatusManager::default();
        self.set_deletion(self.deletion.done(&self.pod, (self.node.clock)()));
    }

    /// Terminates the pod if it has a deletion timestamp.
    fn observe_deletion(&mut self) {
        self.set_deletion(self.deletion.observe(&self.pod));
    }

    fn set_deletion(&mut self, deletion: Deletion) {
        let before = std::mem::replace(&mut self.deletion, deletion);
        if deletion.is_requested() {
            self.state.terminate();
        }
        if deletion.grace_period() != before.grace_period() {
            self.shorten_stops();
        }
    }

    /// Syncs the pod until no action is due.
    async fn sync_until_idle(&mut self) -> Requeue {
        for _ in 0..MAX_SYNCS {
            match self.sync().await {
                Ok(Requeue::Now) => self.observation.mark(Outdated::All),
                Ok(Requeue::ReadBack) => self.observation.mark(Outdated::Resources),
                Ok(requeue) => {
                    self.failures.reset();
                    return requeue;
                }
                Err(error) => {
                    self.observation.mark(Outdated::All);
                    let error = error_chain(&error);
                    let is_logged = self.failures.add(&error);
                    let wait = DELAYS.after(self.failures.count());
                    if is_logged {
                        tracing::warn!(uid = self.uid, pod = self.info.name, error, ?wait, "will retry");
                    } else {
                        tracing::debug!(uid = self.uid, pod = self.info.name, error, ?wait, "will retry");
                    }
                    return Requeue::After(Some(wait));
                }
            }
        }
        Requeue::Now
    }

    async fn sync(&mut self) -> Result<Requeue, SyncError> {
        if self.state == WorkerState::CleanedUp {
            return Ok(if self.deletion.is_done() { Requeue::Never } else { self.delete_from_api().await? });
        }
        self.request_resize().await?;
        self.forget_outdated_failures();
        self.observe().await?;
        self.stop_after_failed_hooks();
        self.enforce_deadline();
        let mut cgroups = self.cgroups();
        let actual = cgroups.resources(&self.info.shape, &self.entry.allocation.allocated);
        if self.state.holds_allocation() {
            self.node.allocations.set_actual(&self.uid, actual.clone()).await;
        }
        self.sync_growth().await;
        self.update_probes();
        self.adopt_volumes().await;
        let steps = self.steps(&cgroups);
        let decision = self.decide(&steps);
        let phase = self.phase();
        self.emit_back_off(&decision);
        self.update_gauges();
        // That all containers are being restarted is reported even if they are back soon.
        let about_to_change = (!decision.actions.is_empty() || !steps.is_empty())
            && !begins_to_restart_all(&self.pod, &self.observation.observed);
        self.sync_status(phase, &actual, about_to_change);
        if phase.is_final() && !self.runs() && self.state.finish() {
            self.node.allocations.release(&self.uid, Trigger::PodTerminated).await;
        }
        self.release_if_evicted().await;
        self.report_termination();
        if !decision.actions.is_empty() {
            self.observation.mark(Outdated::All);
            if decision.actions.iter().any(|action| matches!(action, Action::Start { .. })) {
                self.raise_pod(&steps, &mut cgroups).await;
            }
            if self.act(&decision, cgroups.clone()).await? {
                return Ok(Requeue::Now);
            }
        }
        if self.deletion.is_requested() && !self.runs() && self.stopping.is_empty() {
            return self.sync_terminated_pod().await;
        }
        // Before the worker decides which actions are due, so that a retry in between is not missed.
        let now = (self.node.clock)();
        if self.state.is_syncing() && self.start_ephemeral().await {
            return Ok(Requeue::Now);
        }
        if self.pin().await? {
            return Ok(Requeue::Now);
        }
        self.node.allocations.release_unused_cpus(&self.uid).await;
        let wake = self.wake(decision.wake.into_iter().chain(self.next_ephemeral(now)).min());
        if self.may_be_resized() {
            return self.resize(steps, cgroups, wake).await;
        }
        Ok(Requeue::After(wake))
    }

    fn may_be_resized(&self) -> bool {
        self.state.is_syncing() && self.node.rules.resize
    }

    /// The steps from the actual to the allocated resources.
    fn steps(&self, cgroups: &CgroupState) -> Vec<Step> {
        if !self.may_be_resized() {
            return Vec::new();
        }
        plan(&self.info.shape, cgroups, &self.entry.allocation.allocated)
    }

    /// Observes the pod in the runtime, if the last observation may be outdated.
    async fn observe(&mut self) -> Result<(), SyncError> {
        let allocated = &self.entry.allocation.allocated;
        let pod = self.info.shape.cgroup(allocated);
        let is_current = match self.observation.outdated {
            Outdated::Nothing => true,
            Outdated::Resources => {
                let read = read_back(&*self.node.runtime, &mut self.observation, &self.actuated, pod).await;
                read.map_err(SyncError::runtime("reading the resources back"))?
            }
            Outdated::All => false,
        };
        if is_current {
            self.note_actual();
            return Ok(());
        }
        let effective: Vec<Requirements> = inherited(allocated).collect();
        let Self { node, uid, info, observation, actuated, .. } = self;
        let ephemeral = self.pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
        let ephemeral: Vec<&str> = ephemeral.map(|container| container.name.as_str()).collect();
        let whose = (&info.shape, ephemeral.as_slice());
        let observation =
            observe(&*node.runtime, uid, whose, &observation.observed, actuated, &effective, pod).await;
        self.observation = observation.map_err(SyncError::runtime("reading the state of the containers"))?;
        for observed in self.observation.observed.containers.iter_mut().flatten() {
            if observed.has_started() && self.post_start_hooks.contains(&observed.id) {
                observed.state = State::Starting;
            }
        }
        let observed = &self.observation.observed;
        self.actuated
            .containers
            .retain(|id, _| observed.containers.iter().flatten().any(|observed| observed.id == *id));
        for (next, observed) in self.next_attempts.iter_mut().zip(&observed.containers) {
            let ran = observed.as_ref().filter(|observed| !matches!(observed.state, State::Created));
            *next = ran.map_or(*next, |observed| observed.attempt.saturating_add(1));
        }
        self.note_actual();
        Ok(())
    }

    /// Notes the actual resources of the containers that run.
    fn note_actual(&mut self) {
        for (last_actual, observed) in self.last_actual.iter_mut().zip(&self.observation.observed.containers)
        {
            *last_actual = observed.as_ref().and_then(|observed| observed.actual).or(*last_actual);
        }
    }

    /// The state of the pod's cgroups.
    fn cgroups(&self) -> CgroupState {
        self.observation.cgroups(self.info.shape.cgroup(&self.entry.allocation.allocated))
    }

    /// Fails a pod that has exceeded its active deadline.
    fn enforce_deadline(&mut self) {
        let Some(deadline) = self.deadline() else { return };
        if (self.node.clock)() < deadline {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.fail("DeadlineExceeded", message);
        self.node.events.pod(&self.pod, crate::events::Kind::Normal, "DeadlineExceeded", message);
    }

    /// The pod's active deadline, unless it terminates already.
    fn deadline(&self) -> Option<Timestamp> {
        if !self.state.is_syncing() {
            return None;
        }
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let since = self.pod.status.as_ref()?.start_time.as_ref()?.0;
        since.checked_add(SignedDuration::from_secs(seconds)).ok()
    }

    fn decide(&self, steps: &[Step]) -> Decision {
        let none = PodSpec::default();
        let now = (self.node.clock)();
        let may_start = self.may_start(steps);
        let stopping: BTreeSet<ContainerId> = self.stopping.keys().cloned().collect();
        decide(View {
            spec: self.pod.spec.as_ref().unwrap_or(&none),
            shape: &self.info.shape,
            observed: &self.observation.observed,
            health: &self.health(),
            stopping: &stopping,
            next_attempts: &self.next_attempts,
            restarting: &self.entry.restarting,
            not_before: &self.not_before(),
            failed_until: &self.failed_until(),
            may_start: &may_start,
            resize_awaited: &self.resize_awaited(),
            terminating: !self.state.is_syncing(),
            now,
        })
    }

    /// Whether each container may be started now. One that was stopped for a resize waits for others that are being
    /// stopped for it; any other starts at once, if necessary with less than it is allocated.
    fn may_start(&self, steps: &[Step]) -> Vec<bool> {
        let others_stop = start_waits(steps) || !self.stopping.is_empty();
        let names = self.info.shape.containers.iter().map(|part| &part.name);
        names.map(|name| !(others_stop && self.entry.restarting.contains(name))).collect()
    }

    /// The pod's phase.
    fn phase(&self) -> Phase {
        if self.state.failure().is_some() && !self.runs() {
            return Phase::Failed;
        }
        if let Some(phase) = self.state.phase() {
            return phase;
        }
        let none = PodSpec::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&none);
        let observed = phase(spec, &self.info.shape, &self.observation.observed, &self.entry.restarting);
        if self.runs() {
            // It has finished when none of its containers run, sidecars included.
            return if observed.is_final() { Phase::Running } else { observed };
        }
        if !self.deletion.is_requested() || observed.is_final() {
            return observed;
        }
        // Terminated: no container is started again, whatever the restart policy.
        let codes = self.observation.observed.containers.iter().flatten().map(ObservedContainer::exit_code);
        let codes: Vec<Option<i32>> = codes.collect();
        if codes.is_empty() {
            observed
        } else if codes.iter().all(|code| *code == Some(0)) {
            Phase::Succeeded
        } else {
            Phase::Failed
        }
    }

    /// Whether any container of the pod runs, or its sandbox does.
    fn runs(&self) -> bool {
        let containers = self.observation.observed.containers.iter().flatten();
        containers.into_iter().any(ObservedContainer::runs)
            || self.observation.observed.sandbox.as_ref().is_some_and(|sandbox| sandbox.ready)
    }

    fn status_input<'a>(&'a self, parts: Parts<'a>) -> StatusInput<'a> {
        StatusInput {
            pod: &self.pod,
            shape: &self.info.shape,
            observed: &self.observation.observed,
            health: parts.health,
            waiting: parts.waiting,
            ephemeral_waiting: parts.ephemeral_waiting,
            phase: parts.phase,
            failure: self.state.failure().map(|failure| (&*failure.reason, &*failure.message)),
            disrupted: self.termination.as_ref().map(|termination| &termination.cause),
            admitted: !self.state.is_rejected(),
            desired: &self.info.desired,
            allocation: parts.allocation,
            actual: parts.actual,
            unconfirmed: self.confirmation() != Confirmation::Confirmed,
            rules: &self.node.rules,
            host: &self.node.facts.host_ips,
            runtime: &self.node.runtime_name,
            now: (self.node.clock)(),
        }
    }

    /// The time until the next thing is due: a decision's wake-up, the active deadline, a retry of a status patch.
    fn wake(&self, due: Option<Timestamp>) -> Option<Duration> {
        let now = (self.node.clock)();
        let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        let at = due.into_iter().chain(self.deadline()).min().map(until);
        at.into_iter().chain(self.status_manager.retry_after()).chain(self.volumes.retry_after()).min()
    }
}

/// The parts of [`StatusInput`] that are computed for each status.
#[derive(Clone, Copy)]
struct Parts<'a> {
    health: &'a [Health],
    waiting: &'a [Option<crate::status::Waiting>],
    ephemeral_waiting: &'a BTreeMap<String, crate::status::Waiting>,
    phase: Phase,
    actual: &'a PodResources,
    allocation: &'a Allocation,
}

/// Which limits are declared at pod level, so that its containers share them.
fn declared_by_pod(resources: &PodResources) -> PerResource<bool> {
    PerResource::of(|r| resources.pod.is_some_and(|pod| pod.limits[r].is_some_and(|limit| limit > 0)))
}

/// The attempt after the last one that ran by a pod's status, of each container by position. A runtime may have lost its
/// state, as some do with a reboot: restart counts do not start again at 0 then.
fn next_attempts(pod: &Pod) -> Vec<u32> {
    let of = |container: &Container| -> Option<u32> {
        let status = pod.status.as_ref()?;
        let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        let status = all.find(|status| status.name == container.name)?;
        let now =
            status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some());
        let before = status.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
        let count = u32::try_from(status.restart_count).unwrap_or(0);
        (now || before || count > 0).then(|| count.saturating_add(1))
    };
    pod.spec.iter().flat_map(containers).map(|container| of(container).unwrap_or(0)).collect()
}

/// Whether one is a later state of a pod than the other. Resource versions are compared as numbers; if they are none,
/// the state that arrives later is later.
fn is_newer(new: &Pod, old: &Pod) -> bool {
    let version = |pod: &Pod| pod.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    match (version(new), version(old)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}

/// An error with what caused it.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
