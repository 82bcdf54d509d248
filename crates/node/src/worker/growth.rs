//! Growth of limits before a container suffers for one that the node could raise.
//!
//! ```text
//!   the runtime: usage is near the memory limit, or a process is held at it     cpu.stat: throttled while the node has idle CPU
//!                                        ▼                                                  ▼
//!                 decide (`plumb_resize::growth`) ▸ PATCH /resize ▸ the usual path of a resize ▸ the limit is raised
//! ```
//!
//! The worker changes no limit by itself: it requests a resize of its own pod, with the node's identity, as any client would.
//! What is refused is not held any longer: the kernel kills at once, as for a pod that has not opted in.

mod request;
mod requests;
mod sample;
mod throttling;

use std::collections::BTreeMap;
use std::time::Duration;

use plumb_resize::aggregate::Role;
use plumb_resize::growth::{GrowthBounds, GrowthDecision, HOLD, MemoryGrowth, Thresholds, annotation, grown};
use plumb_resize::list::quantity_of;
use plumb_resize::pod::RestartPolicy;
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{PerResource, Requirements, Resource};
use plumb_runtime::cgroup::page_size;
use plumb_runtime::types::{ContainerId, MemoryPressure, MemoryWatch};
use tokio::time::Instant;

use super::{Message, Worker};
use crate::events::Kind;
use crate::metrics::GrowthResult;
pub(crate) use request::GrowthOutcome;
use request::GrowthRequest;
use requests::{Requested, Requests};
use sample::Samples;
pub(crate) use throttling::CpuMeasurement;
use throttling::Throttling;

/// The reasons of the events about limits that were raised, and about those that were not.
const GROWN: PerResource<&str> = PerResource::new("ThrottlingGrowth", "MemoryPressureGrowth");
const FAILED: PerResource<&str> = PerResource::new("ThrottlingGrowthFailed", "MemoryPressureGrowthFailed");

/// The growth of a pod's containers.
#[derive(Debug, Default)]
pub(super) struct Growth {
    containers: BTreeMap<ContainerId, Growing>,
    throttled: BTreeMap<ContainerId, Throttling>,
    /// The annotation that could not be read, once an event says so.
    invalid: PerResource<Option<String>>,
}

/// The growth of the memory limit of a running container.
#[derive(Debug, Default)]
struct Growing {
    /// The limit that is watched; none while the container is not watched.
    watched: Option<i64>,
    samples: Samples,
    /// Since when a process is held at the limit.
    held_since: Option<Instant>,
    /// A sample is due, by a task.
    sampling: bool,
    requests: Requests<MemoryCause>,
}

/// Why a higher memory limit was requested.
#[derive(Clone, Copy, Debug)]
struct MemoryCause {
    rate: Option<i64>,
    held_since: Option<Instant>,
}

/// A container that has opted in.
#[derive(Debug)]
struct OptedIn {
    position: usize,
    id: ContainerId,
    /// Its actual limit.
    limit: i64,
    maximum: i64,
}

impl Worker {
    /// Watches the containers that have opted in, and reports growth that has become actual. To be called after an
    /// observation.
    pub(super) async fn sync_growth(&mut self) {
        let opted_in = self.opted_in(Resource::Memory);
        if !opted_in.is_empty() || !self.growth.containers.is_empty() {
            // Boxed, so that the workers of other pods do not hold its memory.
            Box::pin(self.sync_containers(opted_in)).await;
        }
        self.sync_throttling();
    }

    async fn sync_containers(&mut self, opted_in: Vec<OptedIn>) {
        let mut before = std::mem::take(&mut self.growth.containers);
        for container in opted_in {
            let mut growing = before.remove(&container.id).unwrap_or_default();
            self.sync_container(&container, &mut growing).await;
            self.growth.containers.insert(container.id, growing);
        }
        for (id, growing) in before {
            let observed = self.observation.observed.containers.iter().flatten();
            let runs = observed.into_iter().any(|observed| observed.id == id && observed.runs());
            if runs && growing.watched.is_some() {
                self.watch_memory(&id, None).await;
            }
        }
    }

    async fn sync_container(&self, container: &OptedIn, growing: &mut Growing) {
        let desired = self.desired_limit(container.position, Resource::Memory);
        if let Some(requested) = growing.requests.settle(container.limit, desired) {
            self.emit_memory_grown(container.position, &requested);
            growing.held_since = None;
        }
        let may_grow = container.limit < container.maximum && !growing.requests.are_refused();
        let wanted = may_grow.then_some(container.limit);
        if growing.watched == wanted {
            return;
        }
        let watch = wanted.map(|limit| {
            let Thresholds { lower, upper } = Thresholds::for_limit(limit);
            MemoryWatch { thresholds: [lower.unsigned_abs(), upper.unsigned_abs()], hold: HOLD }
        });
        if self.watch_memory(&container.id, watch).await {
            growing.watched = wanted;
        }
    }

    async fn watch_memory(&self, id: &ContainerId, watch: Option<MemoryWatch>) -> bool {
        match self.node.runtime.watch_memory(id, watch).await {
            // A runtime that watches nothing is not asked again.
            Ok(()) | Err(plumb_runtime::Error::Unsupported(_)) => true,
            Err(error) => {
                tracing::debug!(uid = self.uid, container = %id, %error, "cannot watch the memory of a container");
                false
            }
        }
    }

    /// The running containers whose limit of a resource may grow.
    fn opted_in(&mut self, resource: Resource) -> Vec<OptedIn> {
        if !self.may_be_resized() {
            return Vec::new();
        }
        let bounds = match GrowthBounds::for_pod(&self.pod, resource) {
            None => return Vec::new(),
            Some(Ok(bounds)) => bounds,
            Some(Err(error)) => {
                let message = format!("annotation {}: {error}", annotation(resource));
                let reported = &mut self.growth.invalid[resource];
                if reported.as_ref() != Some(&message) {
                    self.node.events.pod(&self.pod, Kind::Warning, FAILED[resource], message.clone());
                    *reported = Some(message);
                }
                return Vec::new();
            }
        };
        // Containers of a pod with a limit of its own share that one, which a node may not raise.
        if self.info.desired.pod.is_some_and(|pod| pod.limits[resource].is_some()) {
            return Vec::new();
        }
        // The static CPU manager refuses to resize them, and assigns CPUs that no limit throttles.
        let has_exclusive_cpus =
            self.info.shape.qos == QosClass::Guaranteed && self.node.allocations.shared_cpus().is_some();
        if resource == Resource::Cpu && has_exclusive_cpus {
            return Vec::new();
        }
        let parts = self.info.shape.containers.iter().zip(&self.observation.observed.containers);
        let opted_in = parts.enumerate().filter_map(|(position, (part, observed))| {
            let observed = observed.as_ref().filter(|observed| observed.runs())?;
            // A restart is what growth is to prevent.
            if part.policy[resource] == RestartPolicy::RestartContainer || part.role == Role::Init {
                return None;
            }
            let limit = observed.actual?.limits[resource].filter(|limit| *limit > 0)?;
            Some(OptedIn { position, id: observed.id.clone(), limit, maximum: bounds.maximum(&part.name)? })
        });
        opted_in.collect()
    }

    /// Handles a notification that a container is near its limit, or a sample of its usage.
    pub(super) async fn handle_memory_pressure(&mut self, id: &ContainerId, pressure: MemoryPressure) {
        let now = Instant::now();
        let opted_in = self.find_opted_in(Resource::Memory, id);
        let mut growing = self.growth.containers.remove(id).unwrap_or_default();
        growing.sampling = false;
        if let Some(container) = opted_in {
            self.grow(&container, &mut growing, pressure, now).await;
        }
        // One that has not opted in any more is kept too: the next sync ends its watch.
        self.growth.containers.insert(id.clone(), growing);
    }

    async fn grow(
        &mut self,
        container: &OptedIn,
        growing: &mut Growing,
        pressure: MemoryPressure,
        now: Instant,
    ) {
        let usage = i64::try_from(pressure.usage).unwrap_or(i64::MAX);
        let rate = growing.samples.add(now, usage);
        growing.held_since = pressure.held.then(|| growing.held_since.unwrap_or(now));
        // A request is on its way, or a resize that was refused is not repeated yet.
        if growing.requests.are_open() || growing.watched.is_none() {
            return;
        }
        let Some(desired) = self.info.desired.containers.get(container.position).copied() else { return };
        let limit = applied(pressure, container.limit);
        let growth = MemoryGrowth {
            limit,
            desired: self.desired_limit(container.position, Resource::Memory),
            usage,
            rate,
            held: pressure.held,
            maximum: container.maximum,
            free: self.node.allocations.left(&self.uid).memory,
        };
        match growth.decide() {
            GrowthDecision::Ignore => {}
            GrowthDecision::SampleAgain(after) => {
                if !growing.sampling {
                    growing.sampling = true;
                    self.sample_after(container.id.clone(), after);
                }
            }
            GrowthDecision::Grow(to) => {
                let cause = MemoryCause { rate, held_since: growing.held_since };
                growing.requests.open(Requested { from: limit, to, since: now, cause });
                self.request_growth(container, Resource::Memory, grown(desired, to));
            }
            GrowthDecision::AtMaximum => self.release(container, growing).await,
            GrowthDecision::NodeIsFull => {
                let message = self.full(Resource::Memory);
                self.refuse_memory(container, growing, GrowthResult::NodeFull, &message).await;
            }
        }
    }

    fn find_opted_in(&mut self, resource: Resource, id: &ContainerId) -> Option<OptedIn> {
        self.opted_in(resource).into_iter().find(|container| container.id == *id)
    }

    /// The limit of a container in the spec.
    fn desired_limit(&self, position: usize, resource: Resource) -> i64 {
        let desired = self.info.desired.containers.get(position);
        desired.and_then(|desired| desired.limits[resource]).unwrap_or(0)
    }

    /// Why nothing can grow on a full node.
    fn full(&self, resource: Resource) -> String {
        let holders = self.node.allocations.holders(&self.uid, resource);
        format!("the node has no {resource} left; most is held by {holders}")
    }

    /// Requests a higher limit, in a task of its own.
    fn request_growth(&self, container: &OptedIn, resource: Resource, to: Requirements) {
        let Some(part) = self.info.shape.containers.get(container.position) else { return };
        let request = GrowthRequest {
            pod: self.pod.clone(),
            container: part.name.clone(),
            is_init: part.role != Role::Main,
            resource,
            to,
        };
        let (client, sender, id) = (self.node.client.clone(), self.sender.clone(), container.id.clone());
        let supervisor = self.node.supervisor.clone();
        tokio::spawn(async move {
            let sent = supervisor.guard(super::POD_WORKER, Box::pin(request.send(client, HOLD))).await;
            let outcome = sent.unwrap_or_else(|panic| GrowthOutcome::Failed(panic.to_string()));
            // The worker may have ended.
            let _ = sender.send(Message::GrowthRequested(Box::new((id, resource, outcome))));
        });
    }

    /// Handles the response to a request.
    pub(super) async fn handle_growth_requested(
        &mut self,
        id: &ContainerId,
        resource: Resource,
        outcome: GrowthOutcome,
    ) {
        let (result, message) = match outcome {
            // Not awaited from the watch: a process may be held.
            GrowthOutcome::Accepted(pod) => {
                match resource {
                    Resource::Cpu => {
                        if let Some(throttling) = self.growth.throttled.get_mut(id) {
                            throttling.requests.accept();
                        }
                    }
                    Resource::Memory => {
                        if let Some(growing) = self.growth.containers.get_mut(id) {
                            growing.requests.accept();
                        }
                    }
                }
                return self.handle_pod((*pod).into());
            }
            GrowthOutcome::Refused(message) => (GrowthResult::Refused, message),
            GrowthOutcome::Failed(message) => (GrowthResult::Failed, message),
        };
        let Some(container) = self.find_opted_in(resource, id) else { return };
        match resource {
            Resource::Cpu => self.refuse_throttled(&container, result, &message),
            Resource::Memory => {
                let Some(mut growing) = self.growth.containers.remove(id) else { return };
                self.refuse_memory(&container, &mut growing, result, &message).await;
                self.growth.containers.insert(id.clone(), growing);
            }
        }
    }

    /// The memory limit cannot be raised: the container is not held any more, for a while.
    async fn refuse_memory(
        &self,
        container: &OptedIn,
        growing: &mut Growing,
        result: GrowthResult,
        message: &str,
    ) {
        self.release(container, growing).await;
        let wait = growing.requests.refuse();
        self.report_refused(container, Resource::Memory, result, message, wait);
    }

    /// Emits the event of a limit that could not be raised, and has the pod synced when that may be tried again.
    fn report_refused(
        &self,
        container: &OptedIn,
        resource: Resource,
        result: GrowthResult,
        message: &str,
        wait: Duration,
    ) {
        self.node.metrics.growth(resource, result);
        let name = self.name_of(container.position);
        let limit = quantity_of(resource, container.limit);
        let message =
            format!("{} limit {limit} of container {name} was not raised: {message}", title(resource));
        self.node.events.container(&self.pod, name, Kind::Warning, FAILED[resource], message);
        let sender = self.sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = sender.send(Message::UpdateFinished);
        });
    }

    /// Ends the watch of a container and its hold: at its limit, the kernel kills.
    async fn release(&self, container: &OptedIn, growing: &mut Growing) {
        growing.requests.cancel();
        growing.held_since = None;
        if self.watch_memory(&container.id, None).await {
            growing.watched = None;
        }
    }

    fn emit_memory_grown(&self, position: usize, requested: &Requested<MemoryCause>) {
        let MemoryCause { rate, held_since } = requested.cause;
        let rate = rate.filter(|rate| *rate > 0).map_or_else(
            || "usage was near the limit".to_owned(),
            |rate| format!("usage grew by {}Mi per second", rate >> 20),
        );
        let held = held_since.map_or_else(
            || "it was not held".to_owned(),
            |since| format!("it was held for {} ms", since.elapsed().as_millis()),
        );
        self.emit_grown(position, Resource::Memory, requested, &format!("{rate}, {held}"));
    }

    /// Emits the event of a limit that has grown.
    fn emit_grown<C>(&self, position: usize, resource: Resource, requested: &Requested<C>, why: &str) {
        self.node.metrics.growth(resource, GrowthResult::Grown);
        self.node.metrics.growth_took(resource, requested.since.elapsed());
        let name = self.name_of(position);
        let [from, to] = [requested.from, requested.to].map(|amount| quantity_of(resource, amount));
        let message =
            format!("{} limit of container {name} was raised from {from} to {to}: {why}", title(resource));
        self.node.events.container(&self.pod, name, Kind::Normal, GROWN[resource], message);
    }

    /// How far a container's growth was exhausted, for the event of its OOM kill.
    pub(super) fn exhausted(&mut self, id: &ContainerId) -> Option<String> {
        let container = self.find_opted_in(Resource::Memory, id)?;
        (container.limit >= container.maximum).then(|| {
            let limit = quantity_of(Resource::Memory, container.limit);
            format!("; its memory limit {limit} is its maximum for growth under pressure")
        })
    }

    /// Reads the usage of a container after a while.
    fn sample_after(&self, id: ContainerId, after: Duration) {
        let (runtime, sender) = (self.node.runtime.clone(), self.sender.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // A container that has ended meanwhile is not sampled any more.
            if let Ok(pressure) = runtime.memory_pressure(&id).await {
                let _ = sender.send(Message::MemoryPressure(Box::new((id, pressure))));
            }
        });
    }
}

/// The limit that is applied: that of the cgroup, which may be newer than the last observation. The kernel rounds it down to
/// whole pages, and the observation does not.
fn applied(pressure: MemoryPressure, observed: i64) -> i64 {
    let read = pressure.limit.and_then(|limit| i64::try_from(limit).ok());
    read.filter(|limit| limit.abs_diff(observed) >= page_size().unsigned_abs()).unwrap_or(observed)
}

/// A resource as the first word of a sentence.
fn title(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Memory => "Memory",
    }
}
