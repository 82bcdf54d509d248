//! Actuating an allocation: the plan, step by step.
//!
//! Every sync plans from the actual resources, so a plan that was interrupted, by a failure, a crash or another resize,
//! needs no rollback. A memory limit is lowered to its target or not at all: while usage is too high, the limit that was
//! applied before stays, and the decrease is retried with backoff. CPU does not wait for that, nor does a restart of another container
//! that has enough of the pod's memory meanwhile.

use std::sync::Arc;
use std::time::Duration;

use plumb_resize::memory::{Lowering, LoweringStep};
use plumb_resize::plan::{CgroupState, Step, plan, start_with};
use plumb_resize::pod::{PodCgroup, PodResources, PodShape};
use plumb_resize::resource::{Requirements, Resource};
use plumb_runtime::cgroup::page_size;
use plumb_runtime::types::{ContainerId, LinuxResources, Resources};
use plumb_runtime::{Confirmation, Error};
use tokio::time::Instant;

use super::actuation::ResizeError;
use super::error::SyncError;
use super::{Requeue, Worker, declared_by_pod, error_chain};
use crate::journal::JournalError;
use crate::lifecycle::StopReason;
use crate::observe::Outdated;
use crate::{readback, resized};

/// How long to wait for memory of a whole pod, which cannot be reclaimed directly.
const POD_MEMORY_WAIT: Duration = Duration::from_millis(100);

/// How far steps were actuated.
enum Progress {
    /// All of them, or as far as possible until a container has stopped.
    AsFarAsPossible,
    /// Usage is above the new memory limit; retry after this long.
    WaitsForMemory { after: Duration, why: Arc<ResizeError> },
}

/// How a limit is lowered.
enum Lower {
    /// Set it to its target.
    ToTarget,
    /// Do not change it, and reclaim this many bytes first.
    Reclaim(u64),
    /// Do not change it for this long.
    Wait(Duration),
}

impl Worker {
    /// Actuates the steps from the actual to the allocated resources.
    pub(super) async fn resize(
        &mut self,
        steps: Vec<Step>,
        now: CgroupState,
        wake: Option<Duration>,
    ) -> Result<Requeue, SyncError> {
        if steps.is_empty() {
            self.actuation.steps.clear();
            if let Some(wait) = self.actuation.restored_limits.until_stable() {
                return Ok(Requeue::After(Some(wake.map_or(wait, |wake| wake.min(wait)))));
            }
            match self.confirmation() {
                Confirmation::Confirmed => {}
                Confirmation::Awaited => return Ok(Requeue::After(wake)),
                Confirmation::Failing(error) => {
                    let before = self.entry.allocation.error.clone();
                    self.failed(self.runtime_error(error)).await?;
                    let is_new = self.entry.allocation.error != before;
                    return Ok(if is_new { Requeue::ReadBack } else { Requeue::After(wake) });
                }
            }
            self.completed().await?;
            return Ok(Requeue::After(wake));
        }
        if std::mem::take(&mut self.actuation.steps) == steps {
            // Retried with backoff, not at once: it may never be as it should.
            let why = Error::failed("reading the resources back", "they are not those that were set");
            let why = self.runtime_error(why);
            // A lowered limit that the runtime has restored is no error; the runtime sends an event about it.
            if !steps.iter().any(|step| lowers_memory(step, &now)) {
                self.failed(why.clone()).await?;
            }
            return Err(SyncError::Resize(why));
        }
        let allocated = self.entry.allocation.allocated.clone();
        let restarts = |step: &Step| matches!(step, Step::Stop { .. } | Step::Start { .. });
        let restarts = steps.iter().any(restarts);
        self.observation.mark(if restarts { Outdated::All } else { Outdated::Resources });
        self.actuation.generation.get_or_insert(self.entry.allocation.generation);
        let mut then = now;
        let begun = Instant::now();
        let actuated = self.actuate(&steps, &mut then).await;
        self.node.metrics.actuated(actuated.is_ok(), begun.elapsed());
        let wait = match actuated {
            Ok(Progress::AsFarAsPossible) => {
                self.actuation.steps = if restarts { Vec::new() } else { steps };
                None
            }
            Ok(Progress::WaitsForMemory { after, why }) => {
                let cpu = with_actual_memory(&allocated, &then);
                let steps = plan(&self.info.shape, &then, &cpu);
                let steps = steps.into_iter().filter_map(|step| cpu_of(step, &then));
                let steps: Vec<Step> =
                    steps.chain(possible_restarts(&self.info.shape, &then, &allocated)).collect();
                self.actuate(&steps, &mut then)
                    .await
                    .map_err(|error| SyncError::Resize(self.runtime_error(error)))?;
                // An error that is retried at once is not reported yet.
                if !after.is_zero() {
                    self.failed(why).await?;
                }
                Some(after)
            }
            Err(error @ (Error::FailedPrecondition(_) | Error::NotFound { .. })) => {
                // Its containers have changed meanwhile.
                return Err(SyncError::Resize(self.runtime_error(error)));
            }
            Err(error) => {
                let error = self.runtime_error(error);
                self.failed(error.clone()).await?;
                return Err(SyncError::Resize(error));
            }
        };
        Ok(match wait {
            _ if !self.stopping.is_empty() => Requeue::After(wait.into_iter().chain(wake).min()),
            Some(wait) => Requeue::After(Some(wake.map_or(wait, |wake| wake.min(wait)))),
            None => Requeue::ReadBack,
        })
    }

    /// Raises the limits of the pod's cgroup before a container starts, if that is the first step of a resize: within the former
    /// ones a container that ran out of memory would do so again, and wait out another backoff.
    pub(super) async fn raise_pod(&mut self, steps: &[Step], now: &mut CgroupState) {
        let Some(Step::Pod(to)) = steps.first().copied() else { return };
        if decreases(now.pod.limits.memory, to.limits.memory) {
            return;
        }
        self.actuation.generation.get_or_insert(self.entry.allocation.generation);
        // The resize itself reports an error. Until it succeeds, the container starts within the limits that are applied.
        if let Err(error) = self.set_pod(now, to).await {
            tracing::debug!(uid = self.uid, %error, "cannot raise the limits of a pod before a container starts");
        }
    }

    /// Whether the runtime has confirmed the resources of the containers' cgroups.
    pub(super) fn confirmation(&self) -> Confirmation {
        let mut confirmation = Confirmation::Confirmed;
        for observed in self.observation.observed.containers.iter().flatten() {
            match self.node.runtime.confirmation(&observed.id) {
                Confirmation::Confirmed => {}
                Confirmation::Awaited => confirmation = Confirmation::Awaited,
                failing @ Confirmation::Failing(_) => return failing,
            }
        }
        confirmation
    }

    fn runtime_error(&self, error: Error) -> Arc<ResizeError> {
        Arc::new(ResizeError::Runtime { pod: self.info.name.clone(), error })
    }

    /// Records an error, with an event if it is new.
    async fn failed(&mut self, error: Arc<ResizeError>) -> Result<(), JournalError> {
        let is_known = self.actuation.last_error.as_ref().is_some_and(|last| last.is_same(&error))
            && self.entry.allocation.error.is_some();
        let message = error.to_string();
        self.actuation.last_error = Some(error);
        // After a restart of the agent, the journal has the message of the last error.
        if is_known || self.entry.allocation.error.as_deref() == Some(&*message) {
            return Ok(());
        }
        let noted =
            self.node.allocations.update_entry(&self.uid, |entry| entry.allocation.failed(message)).await;
        if let Some(entry) = noted? {
            self.entry = entry;
            resized::emit_failed(&self.node.events, &self.pod, &self.info.shape, &self.entry.allocation);
        }
        Ok(())
    }

    /// Records that the actual resources are the allocated ones.
    async fn completed(&mut self) -> Result<(), JournalError> {
        let settled: Vec<String> =
            self.entry.restarting.iter().filter(|name| self.is_up(name)).cloned().collect();
        if self.entry.allocation.error.is_some() || !settled.is_empty() {
            let noted = self.node.allocations.update_entry(&self.uid, |entry| {
                entry.allocation.actuated();
                entry.restarting.retain(|name| !settled.contains(name));
            });
            if let Some(entry) = noted.await? {
                self.entry = entry;
            }
        }
        // Unless a container that was stopped for it has yet to be started.
        if self.entry.restarting.is_empty() && self.actuation.complete() {
            self.count_completed();
            resized::emit_completed(&self.node.events, &self.pod, &self.info.shape, &self.entry.allocation);
        }
        Ok(())
    }

    /// Whether a container runs, and is not being stopped.
    fn is_up(&self, name: &str) -> bool {
        let position = self.info.shape.position(name);
        let observed =
            position.and_then(|position| self.observation.observed.containers.get(position)?.as_ref());
        observed.is_some_and(|observed| observed.runs() && !self.is_stopping(observed))
    }

    async fn actuate(&mut self, steps: &[Step], now: &mut CgroupState) -> Result<Progress, Error> {
        let mut stopped = false;
        for step in steps {
            match *step {
                Step::Stop { container } => {
                    self.stop_for_restart(container).await?;
                    stopped = true;
                }
                // Stopped containers have to exit first; then the lifecycle starts them again.
                _ if stopped => return Ok(Progress::AsFarAsPossible),
                Step::Start { .. } => return Ok(Progress::AsFarAsPossible),
                Step::Pod(to) => {
                    if let Some(waits) = self.set_pod(now, to).await? {
                        return Ok(waits);
                    }
                }
                Step::Update { container, to } => {
                    if let Some(waits) = self.set_container(now, container, to).await? {
                        return Ok(waits);
                    }
                }
            }
        }
        Ok(Progress::AsFarAsPossible)
    }

    /// Stops a container that is started again with its allocated resources; that is journalled first.
    async fn stop_for_restart(&mut self, position: usize) -> Result<(), Error> {
        let name = self.name_of(position).to_owned();
        if !self.entry.restarting.contains(&name) {
            let noted =
                self.node.allocations.update_entry(&self.uid, |entry| entry.restarting.push(name)).await;
            if let Some(entry) =
                noted.map_err(|error| Error::failed("noting a restart", error_chain(&error)))?
            {
                self.entry = entry;
            }
        }
        self.stop(position, StopReason::Resized);
        Ok(())
    }

    async fn set_pod(&mut self, now: &mut CgroupState, to: PodCgroup) -> Result<Option<Progress>, Error> {
        let Some(id) = self.observation.observed.sandbox.as_ref().map(|sandbox| sandbox.id.clone()) else {
            return Ok(None);
        };
        let runtime = self.node.runtime.clone();
        let mut set = to;
        let mut waits = None;
        if decreases(now.pod.limits.memory, to.limits.memory) {
            let usage = runtime.sandbox_stats(&id).await?.memory.working_set;
            let after = match self.lower(now.pod.limits.memory, to.limits.memory, usage) {
                Lower::ToTarget => None,
                Lower::Reclaim(bytes) => {
                    self.reclaim_all(bytes).await;
                    Some(POD_MEMORY_WAIT)
                }
                Lower::Wait(after) => Some(after),
            };
            waits = after.map(|after| waits_for_memory(after, "pod", to.limits.memory, usage));
            if waits.is_some() {
                set.limits.memory = now.pod.limits.memory;
            }
        }
        if set != now.pod {
            let begun = Instant::now();
            let config = readback::pod_cgroup(&set);
            let updated = self.reporting_status(runtime.update_sandbox_resources(&id, &config)).await;
            let operation = "update_podsandbox_resources";
            self.node.metrics.operation(operation, begun.elapsed(), updated.is_ok());
            match updated {
                Err(error) if error.is_busy() && decreases(now.pod.limits.memory, set.limits.memory) => {
                    let usage = runtime.sandbox_stats(&id).await?.memory.working_set;
                    return Ok(Some(self.usage_grew("pod", to.limits.memory, usage)));
                }
                updated => updated?,
            }
            self.actuated.pod = Some(set);
            now.pod = set;
        }
        Ok(waits)
    }

    async fn set_container(
        &mut self,
        now: &mut CgroupState,
        position: usize,
        to: Requirements,
    ) -> Result<Option<Progress>, Error> {
        let observed = self.observation.observed.containers.get(position).and_then(Option::as_ref);
        let Some(id) = observed.map(|observed| observed.id.clone()) else { return Ok(None) };
        let from = now.containers.get(position).copied().flatten().unwrap_or_default();
        let whose = format!("container {:?}", self.name_of(position));
        let mut set = to;
        let mut waits = None;
        if decreases(from.limits.memory, to.limits.memory) {
            let usage = self.node.runtime.container_stats(&id).await?.memory.working_set;
            let after = match self.lower(from.limits.memory, to.limits.memory, usage) {
                Lower::ToTarget => None,
                Lower::Reclaim(bytes) => {
                    self.reclaim(&id, bytes).await;
                    Some(Duration::ZERO)
                }
                Lower::Wait(after) => Some(after),
            };
            waits = after.map(|after| waits_for_memory(after, &whose, to.limits.memory, usage));
            if waits.is_some() {
                set = set.with(Resource::Memory, from);
            }
        }
        if set != from {
            match self.update(&id, readback::container_cgroup(&set)).await {
                Err(error) if error.is_busy() && decreases(from.limits.memory, set.limits.memory) => {
                    let usage = self.node.runtime.container_stats(&id).await?.memory.working_set;
                    return Ok(Some(self.usage_grew(&whose, to.limits.memory, usage)));
                }
                updated => updated?,
            }
            self.actuated.containers.insert(id, set);
            now.apply(&Step::Update { container: position, to: set });
        }
        Ok(waits)
    }

    /// Usage grew between the measurement and the write, so that the kernel returned EBUSY.
    fn usage_grew(&mut self, whose: &str, target: Option<i64>, usage: u64) -> Progress {
        self.actuation.restored_limits.again();
        waits_for_memory(super::DELAYS.after(self.actuation.restored_limits.times), whose, target, usage)
    }

    pub(super) async fn update(&mut self, id: &ContainerId, to: LinuxResources) -> Result<(), Error> {
        let begun = Instant::now();
        let (runtime, to) = (self.node.runtime.clone(), Resources::Linux(to));
        let updated = self.reporting_status(runtime.update_container_resources(id, &to)).await;
        self.node.metrics.operation("update_container", begun.elapsed(), updated.is_ok());
        updated
    }

    /// Has the kernel reclaim memory of each running container.
    async fn reclaim_all(&mut self, bytes: u64) {
        let running =
            self.observation.observed.containers.iter().flatten().filter(|observed| observed.runs());
        let ids: Vec<ContainerId> = running.map(|observed| observed.id.clone()).collect();
        for id in ids {
            self.reclaim(&id, bytes).await;
        }
    }

    /// Has the kernel reclaim memory of a container; the next attempt measures the effect.
    async fn reclaim(&mut self, id: &ContainerId, bytes: u64) {
        let runtime = self.node.runtime.clone();
        match self.reporting_status(runtime.reclaim_memory(id, bytes)).await {
            Ok(_) | Err(Error::Unsupported(_)) => {}
            Err(error) => tracing::debug!(container = %id, %error, "memory was not reclaimed"),
        }
    }

    /// Decides whether a limit is lowered now.
    fn lower(&mut self, from: Option<i64>, to: Option<i64>, usage: u64) -> Lower {
        let Some(target) = to.filter(|limit| *limit > 0) else { return Lower::ToTarget };
        if let Some(wait) = self.actuation.restored_limits.wait() {
            return Lower::Wait(wait);
        }
        let usage = i64::try_from(usage).unwrap_or(i64::MAX);
        let limit = from.filter(|limit| *limit > 0);
        match (Lowering { limit, target, usage, stalled: self.actuation.stalled, page: page_size() }).next() {
            LoweringStep::Done | LoweringStep::Set(_) => Lower::ToTarget,
            LoweringStep::Reclaim(bytes) => {
                self.actuation.stalled = self.actuation.stalled.saturating_add(1);
                Lower::Reclaim(bytes.unsigned_abs())
            }
            LoweringStep::Wait(after) => {
                self.actuation.stalled = self.actuation.stalled.saturating_add(1);
                Lower::Wait(after)
            }
        }
    }

    /// The runtime has restored a lowered limit: usage was about to exceed it.
    pub(super) fn handle_restored_limit(&mut self) {
        self.actuation.restored_limits.again();
    }
}

fn waits_for_memory(after: Duration, whose: &str, target: Option<i64>, usage: u64) -> Progress {
    let target = target.unwrap_or_default();
    Progress::WaitsForMemory {
        after,
        why: Arc::new(ResizeError::MemoryInUse { whose: whose.to_owned(), target, usage }),
    }
}

/// Whether a limit is lowered; none is infinite.
fn decreases(from: Option<i64>, to: Option<i64>) -> bool {
    let bound = |limit: Option<i64>| limit.filter(|limit| *limit > 0).unwrap_or(i64::MAX);
    bound(to) < bound(from)
}

/// Whether a step lowers a memory limit.
fn lowers_memory(step: &Step, now: &CgroupState) -> bool {
    match *step {
        Step::Pod(to) => decreases(now.pod.limits.memory, to.limits.memory),
        Step::Update { container, to } => {
            let from = now.containers.get(container).copied().flatten().unwrap_or_default();
            decreases(from.limits.memory, to.limits.memory)
        }
        Step::Stop { .. } | Step::Start { .. } => false,
    }
}

/// The allocated resources, but with the actual memory.
fn with_actual_memory(allocated: &PodResources, now: &CgroupState) -> PodResources {
    let mut resources = allocated.clone();
    for (container, now) in resources.containers.iter_mut().zip(&now.containers) {
        if let Some(now) = now {
            *container = container.with(Resource::Memory, *now);
        }
    }
    resources
}

/// The restarts that a plan can begin with while another container does not free its memory: the container starts again with its
/// allocation beside what the others have now.
fn possible_restarts(shape: &PodShape, now: &CgroupState, allocated: &PodResources) -> Vec<Step> {
    let mut then = now.clone();
    let mut stops = Vec::new();
    for step in plan(shape, now, allocated) {
        let Step::Start { container, to } = step else { continue };
        if start_with(&then, container, to, None, declared_by_pod(allocated)) == Some(to) {
            // Those that follow have what this one leaves.
            then.apply(&step);
            stops.push(Step::Stop { container });
        }
    }
    stops
}

/// A step without its change of memory, and without restarts: of these [`possible_restarts`] has those that need not wait.
fn cpu_of(step: Step, now: &CgroupState) -> Option<Step> {
    match step {
        Step::Pod(mut to) => {
            to.limits.memory = now.pod.limits.memory;
            (to != now.pod).then_some(Step::Pod(to))
        }
        Step::Update { .. } => Some(step),
        Step::Stop { .. } | Step::Start { .. } => None,
    }
}
