//! Growth of CPU limits of containers that are throttled while the node has idle CPU.
//!
//! The kernel notifies of no throttling, so the counters of containers that have opted in are read: every second while one is
//! throttled, and else every five seconds.

use std::time::Duration;

use plumb_resize::growth::{
    CpuReading, CpuSample, Throttled, ThrottlingDecision, ThrottlingGrowth, grown_cpu,
};
use plumb_resize::list::quantity_of;
use plumb_resize::qos::QosClass;
use plumb_resize::resource::Resource;
use plumb_runtime::types::ContainerId;
use tokio::time::Instant;

use super::requests::{Requested, Requests};
use super::{Message, OptedIn, Worker};
use crate::metrics::GrowthResult;

/// When a container that has opted in is measured first, and again after an error.
const FIRST: Duration = Duration::from_secs(1);

/// The counters of a container and of its node, read at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuMeasurement {
    at: Instant,
    container: CpuReading,
    /// The CPU time that the machine used; none if the node is not the whole machine.
    machine: Option<u64>,
}

/// The throttling of a running container.
#[derive(Debug, Default)]
pub(super) struct Throttling {
    /// A measurement is due, by a task.
    sampling: bool,
    last: Option<CpuMeasurement>,
    /// The limit that was applied at the last measurement.
    limit: i64,
    throttled: Throttled,
    pub(super) requests: Requests<CpuSample>,
}

impl Worker {
    /// Measures the containers that have opted in, and reports growth that has become actual.
    pub(super) fn sync_throttling(&mut self) {
        let opted_in = self.opted_in(Resource::Cpu);
        if opted_in.is_empty() && self.growth.throttled.is_empty() {
            return;
        }
        let mut before = std::mem::take(&mut self.growth.throttled);
        for container in opted_in {
            let mut throttling = before.remove(&container.id).unwrap_or_default();
            let desired = self.desired_limit(container.position, Resource::Cpu);
            if let Some(requested) = throttling.requests.settle(container.limit, desired) {
                self.emit_cpu_grown(container.position, &requested);
            }
            let may_grow = container.limit < container.maximum && !throttling.requests.are_refused();
            if may_grow && !throttling.sampling && !throttling.requests.are_open() {
                self.measure_after(&container.id, &mut throttling, FIRST);
            }
            self.growth.throttled.insert(container.id, throttling);
        }
    }

    /// Handles a measurement. One that failed, as of a container that has ended, is repeated while it has opted in.
    pub(crate) fn handle_throttling(&mut self, id: &ContainerId, measured: Option<CpuMeasurement>) {
        let container = self.find_opted_in(Resource::Cpu, id);
        let Some(mut throttling) = self.growth.throttled.remove(id) else { return };
        throttling.sampling = false;
        let Some(container) = container else { return };
        self.decide_throttling(&container, &mut throttling, measured);
        self.growth.throttled.insert(container.id, throttling);
    }

    fn decide_throttling(
        &self,
        container: &OptedIn,
        throttling: &mut Throttling,
        measured: Option<CpuMeasurement>,
    ) {
        if throttling.requests.are_open() || throttling.requests.are_refused() {
            return;
        }
        let Some(now) = measured else { return self.measure_after(&container.id, throttling, FIRST) };
        let before = throttling.last.replace(now);
        if throttling.limit != container.limit {
            // The time before was under another limit.
            throttling.limit = container.limit;
            throttling.throttled = Throttled::default();
            return self.measure_after(&container.id, throttling, FIRST);
        }
        let sample = before.and_then(|before| {
            let elapsed = now.at.saturating_duration_since(before.at);
            let sample = CpuSample::between(before.container, now.container, elapsed)?;
            Some((sample, self.idle_cpu(&before, &now, elapsed)))
        });
        let Some((sample, idle)) = sample else {
            return self.measure_after(&container.id, throttling, FIRST);
        };
        throttling.throttled.observe(sample, container.limit);
        let class = self.info.shape.qos;
        let free = || self.node.allocations.left(&self.uid).cpu;
        let growth = ThrottlingGrowth {
            limit: container.limit,
            desired: self.desired_limit(container.position, Resource::Cpu),
            sample,
            throttled: throttling.throttled,
            maximum: container.maximum,
            idle,
            free: (class == QosClass::Guaranteed).then(free),
        };
        match growth.decide() {
            ThrottlingDecision::SampleAgain(after) => self.measure_after(&container.id, throttling, after),
            // The next sync measures it again, if the limit is lowered.
            ThrottlingDecision::AtMaximum => {}
            ThrottlingDecision::Grow(to) => {
                let desired = self.info.desired.containers.get(container.position).copied();
                let Some(desired) = desired else { return };
                let from = container.limit;
                throttling.requests.open(Requested { from, to, since: now.at, cause: sample });
                self.request_growth(container, Resource::Cpu, grown_cpu(desired, to, class));
            }
            ThrottlingDecision::NodeIsBusy => {
                let idle = quantity_of(Resource::Cpu, idle.max(0));
                let message = format!("the node has only {idle} of idle CPU");
                self.refuse(container, throttling, GrowthResult::NodeBusy, &message);
            }
            ThrottlingDecision::NodeIsFull => {
                let message = self.full(Resource::Cpu);
                self.refuse(container, throttling, GrowthResult::NodeFull, &message);
            }
        }
    }

    /// The CPU of the node that nothing used between two measurements. Without the kernel's counters it is what no pod requests.
    fn idle_cpu(&self, before: &CpuMeasurement, now: &CpuMeasurement, elapsed: Duration) -> i64 {
        let measured = self.node.machine_cpu.as_ref().zip(before.machine).zip(now.machine);
        measured.map_or_else(
            || self.node.allocations.left(&self.uid).cpu,
            |((machine, before), now)| machine.idle(before, now, elapsed),
        )
    }

    /// The API server refused a higher limit, or did not respond.
    pub(super) fn refuse_throttled(&mut self, container: &OptedIn, result: GrowthResult, message: &str) {
        let Some(mut throttling) = self.growth.throttled.remove(&container.id) else { return };
        self.refuse(container, &mut throttling, result, message);
        self.growth.throttled.insert(container.id.clone(), throttling);
    }

    fn refuse(&self, container: &OptedIn, throttling: &mut Throttling, result: GrowthResult, message: &str) {
        throttling.throttled = Throttled::default();
        let wait = throttling.requests.refuse();
        self.report_refused(container, Resource::Cpu, result, message, wait);
    }

    /// Measures a container after a while.
    fn measure_after(&self, id: &ContainerId, throttling: &mut Throttling, after: Duration) {
        throttling.sampling = true;
        let (runtime, sender, id) = (self.node.runtime.clone(), self.sender.clone(), id.clone());
        let machine = self.node.machine_cpu.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let stats = runtime.container_stats(&id).await.ok();
            let measured = stats.and_then(|stats| {
                let throttling = stats.cpu.throttling?;
                let container = CpuReading {
                    used_nanos: stats.cpu.usage_nanos,
                    throttled_nanos: throttling.throttled_nanos,
                };
                let machine = machine.and_then(|machine| machine.used_nanos().ok());
                Some(CpuMeasurement { at: Instant::now(), container, machine })
            });
            // The worker may have ended.
            let _ = sender.send(Message::ThrottlingMeasured(Box::new((id, measured))));
        });
    }

    fn emit_cpu_grown(&self, position: usize, requested: &Requested<CpuSample>) {
        let CpuSample { used, throttled } = requested.cause;
        let [used, throttled] = [used, throttled].map(|milli| quantity_of(Resource::Cpu, milli));
        let why = format!("it used {used} and was throttled for {throttled}");
        self.emit_grown(position, Resource::Cpu, requested, &why);
    }
}
