//! Pods without processes, as numbers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use super::VirtualConfig;
use super::model::{Model, cpu_limit, memory_limit};
use crate::error::{Error, Result};
use crate::types::{
    Container, ContainerChange, ContainerConfig, ContainerId, ContainerState, Event, LinuxResources,
    SandboxConfig, SandboxId, SandboxState,
};

/// How many events a slow reader may be behind before it has to list again. The buffer is allocated at the start, on
/// each of thousands of nodes.
const EVENTS: usize = 128;
/// The exit code after an OOM kill.
const KILLED: i32 = 137;

#[derive(Debug)]
pub(super) struct Pods {
    start: Instant,
    now: Timestamp,
    network: u32,
    pub(super) all: Mutex<All>,
    pub(super) events: broadcast::Sender<Event>,
    /// Rung when there is something earlier to wait for.
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(super) struct All {
    pub(super) sandboxes: BTreeMap<SandboxId, VirtualSandbox>,
    pub(super) containers: BTreeMap<ContainerId, VirtualContainer>,
    pub(super) pulled: std::collections::BTreeSet<String>,
    /// The containers by the time of their exit. An outdated entry has no effect.
    ends: BinaryHeap<Reverse<(Instant, ContainerId)>>,
    /// A task waits for the first of them.
    waiting: bool,
    next: u32,
}

#[derive(Debug)]
pub(super) struct VirtualSandbox {
    pub(super) config: Box<SandboxConfig>,
    pub(super) created_at: Timestamp,
    pub(super) state: SandboxState,
    pub(super) ip: Option<IpAddr>,
    pub(super) resources: LinuxResources,
}

#[derive(Debug)]
pub(super) struct VirtualContainer {
    pub(super) sandbox: SandboxId,
    pub(super) config: Box<ContainerConfig>,
    pub(super) model: Model,
    pub(super) created_at: Timestamp,
    pub(super) resources: LinuxResources,
    pub(super) life: VirtualLife,
    pub(super) pid: i32,
    /// Cpu up to `counted`, in nanoseconds: used, and wanted but not given.
    pub(super) cpu: (u64, u64),
    counted: Duration,
    reclaimed: u64,
    pub(super) oom_kills: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum VirtualLife {
    Created,
    Running(Instant, Timestamp),
    Exited { started: Option<Timestamp>, at: Timestamp, code: i32, oom: bool },
}

/// The prefix of a container's id: that of its sandbox, so that the containers of a pod sort together.
pub(super) fn container_prefix(sandbox: &SandboxId) -> String {
    format!("{sandbox}-")
}

impl All {
    /// The containers of a sandbox. The ID of another sandbox may have the same prefix, so each container is checked.
    pub(super) fn containers_of<'a>(
        &'a mut self,
        sandbox: &'a SandboxId,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a mut VirtualContainer)> {
        let prefix = container_prefix(sandbox);
        let first = ContainerId::from(prefix.as_str());
        let near =
            self.containers.range_mut(first..).take_while(move |(id, _)| id.as_str().starts_with(&prefix));
        near.filter(move |(_, container)| container.sandbox == *sandbox)
    }

    /// A number that was not given before.
    pub(super) fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }
}

impl VirtualContainer {
    pub(super) fn running_for(&self) -> Option<Duration> {
        match self.life {
            VirtualLife::Running(since, _) => Some(since.elapsed()),
            _ => None,
        }
    }

    /// Adds up the CPU time until now, under the limit that applied.
    pub(super) fn count(&mut self) {
        let Some(elapsed) = self.running_for() else { return };
        let limit = cpu_limit(&self.resources);
        let (used, refused) = self.model.cpu_nanos(self.cpu.0, self.counted, elapsed, limit);
        self.cpu = (self.cpu.0.saturating_add(used), self.cpu.1.saturating_add(refused));
        self.counted = elapsed;
    }

    /// The memory in use.
    pub(super) fn memory(&self) -> u64 {
        let Some(elapsed) = self.running_for() else { return 0 };
        let wanted = self.model.memory(elapsed).saturating_sub(self.reclaimed);
        let wanted = wanted.max(self.model.kept(elapsed));
        memory_limit(&self.resources).map_or(wanted, |limit| wanted.min(limit))
    }

    /// Frees this much memory, as far as it can.
    pub(super) fn reclaim(&mut self, bytes: u64) -> u64 {
        let Some(elapsed) = self.running_for() else { return 0 };
        let got = self.memory().saturating_sub(self.model.kept(elapsed)).min(bytes);
        self.reclaimed = self.reclaimed.saturating_add(got);
        got
    }

    /// When, now or later, it ends by itself, with which code, and whether it is out of memory.
    fn end(&self, now: Instant) -> Option<(Instant, i32, bool)> {
        let VirtualLife::Running(since, _) = self.life else { return None };
        let elapsed = now.saturating_duration_since(since);
        let oom = memory_limit(&self.resources).and_then(|limit| self.model.exceeds(limit, elapsed));
        let done = self.model.duration;
        match (oom, done) {
            (Some(oom), done) if done.is_none_or(|done| oom < done) => Some((since + oom, KILLED, true)),
            (_, Some(done)) => Some((since + done, self.model.exit_code, false)),
            _ => None,
        }
    }

    pub(super) fn state(&self) -> ContainerState {
        match self.life {
            VirtualLife::Created => ContainerState::Created,
            VirtualLife::Running(..) => ContainerState::Running,
            VirtualLife::Exited { .. } => ContainerState::Exited,
        }
    }

    pub(super) fn container(&self, id: &ContainerId) -> Container {
        Container {
            id: id.clone(),
            sandbox: self.sandbox.clone(),
            meta: self.config.meta.clone(),
            image: self.config.image.clone(),
            image_id: image_id(&self.config.image),
            state: self.state(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }
}

/// Every image is present; its id is computed from its name.
pub(super) fn image_id(name: &str) -> String {
    let whole = crate::image::normalise(name);
    let digest = ring::digest::digest(&ring::digest::SHA256, whole.as_bytes());
    format!("sha256:{}", HEXLOWER.encode(digest.as_ref()))
}

impl Pods {
    pub(super) fn new(config: VirtualConfig) -> Self {
        Self {
            start: Instant::now(),
            now: config.now,
            network: u32::from(config.pod_network),
            all: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
            earlier: Arc::new(Notify::new()),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let passed = jiff::SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        self.now.checked_add(passed).unwrap_or(self.now)
    }

    pub(super) fn address(&self, all: &mut All) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(self.network.wrapping_add(1 + all.number() % 0xfffd)))
    }

    pub(super) fn emit(&self, id: &ContainerId, sandbox: &SandboxId, change: ContainerChange) {
        let _ = self.events.send(Event::Container {
            id: id.clone(),
            sandbox: sandbox.clone(),
            change,
            at: self.now(),
        });
    }

    pub(super) fn start(self: &Arc<Self>, id: &ContainerId) -> Result<()> {
        let sandbox = {
            let mut all = self.all.lock();
            let container = all.containers.get_mut(id).ok_or_else(|| Error::no_container(id.as_str()))?;
            if !matches!(container.life, VirtualLife::Created) {
                return Err(Error::FailedPrecondition(format!("container {id} was started before")));
            }
            container.life = VirtualLife::Running(Instant::now(), self.now());
            container.counted = Duration::ZERO;
            container.sandbox.clone()
        };
        self.emit(id, &sandbox, ContainerChange::Started);
        self.expect_end(id);
        Ok(())
    }

    /// Sets the limits of a container.
    pub(super) fn update(self: &Arc<Self>, id: &ContainerId, to: &LinuxResources) -> Result<()> {
        {
            let mut all = self.all.lock();
            let container = all.containers.get_mut(id).ok_or_else(|| Error::no_container(id.as_str()))?;
            if matches!(container.life, VirtualLife::Exited { .. }) {
                return Err(Error::FailedPrecondition(format!("container {id} has ended")));
            }
            if let (Some(elapsed), Some(limit)) = (container.running_for(), memory_limit(to))
                && container.model.kept(elapsed) > limit
            {
                return Err(Error::Failed {
                    doing: format!("limiting the memory of container {id}"),
                    message: "more is in use".into(),
                    errno: Some(nix::errno::Errno::EBUSY as i32),
                });
            }
            container.count();
            merge(&mut container.resources, to);
        }
        self.expect_end(id);
        Ok(())
    }

    /// Ends a container, if it runs.
    pub(super) fn finish(&self, id: &ContainerId, code: i32, oom: bool) {
        let sandbox = {
            let mut all = self.all.lock();
            let Some(container) = all.containers.get_mut(id) else { return };
            let VirtualLife::Running(_, started) = container.life else { return };
            container.count();
            container.oom_kills += u64::from(oom);
            container.life = VirtualLife::Exited { started: Some(started), at: self.now(), code, oom };
            container.sandbox.clone()
        };
        if oom {
            self.emit(id, &sandbox, ContainerChange::OutOfMemory);
        }
        self.emit(id, &sandbox, ContainerChange::Stopped);
    }

    /// Schedules the exit of a container, and wakes the task that waits for it.
    fn expect_end(self: &Arc<Self>, id: &ContainerId) {
        let mut all = self.all.lock();
        let end = all.containers.get(id).and_then(|container| container.end(Instant::now()));
        let Some((at, ..)) = end else { return };
        all.ends.push(Reverse((at, id.clone())));
        if all.waiting {
            self.earlier.notify_one();
            return;
        }
        all.waiting = true;
        let (pods, earlier) = (Arc::downgrade(self), self.earlier.clone());
        let ending = move || {
            let (pods, earlier) = (pods.clone(), earlier.clone());
            async move {
                loop {
                    // Not held while waiting: a runtime without owners ends.
                    let Some(pods) = pods.upgrade() else { return };
                    let Some(next) = pods.end_those_due() else { return };
                    drop(pods);
                    tokio::select! {
                        () = tokio::time::sleep_until(next) => {}
                        () = earlier.notified() => {}
                    }
                }
            }
        };
        tokio::spawn(plumb_supervise::process().finish_one_of("virtual-container-timer", ending));
    }

    /// Ends containers that are due; returns when the next one is.
    fn end_those_due(&self) -> Option<Instant> {
        loop {
            let due = {
                let mut all = self.all.lock();
                let now = Instant::now();
                match all.ends.peek() {
                    None => {
                        all.waiting = false;
                        return None;
                    }
                    Some(Reverse((at, _))) if *at > now => return Some(*at),
                    Some(_) => {}
                }
                let Some(Reverse((_, id))) = all.ends.pop() else { continue };
                // The limit may have changed since: then it ends later, or not.
                match all.containers.get(&id).and_then(|container| container.end(now)) {
                    Some((at, code, oom)) if at <= now => Some((id, code, oom)),
                    Some((at, ..)) => {
                        all.ends.push(Reverse((at, id)));
                        None
                    }
                    None => None,
                }
            };
            if let Some((id, code, oom)) = due {
                self.finish(&id, code, oom);
            }
        }
    }

    pub(super) fn new_container(
        &self,
        sandbox: &SandboxId,
        config: ContainerConfig,
        model: Model,
        number: u32,
    ) -> VirtualContainer {
        let resources = config.resources.linux().cloned().unwrap_or_default();
        VirtualContainer {
            sandbox: sandbox.clone(),
            config: Box::new(config),
            model,
            created_at: self.now(),
            resources: filled(resources),
            life: VirtualLife::Created,
            pid: i32::try_from(number).unwrap_or(i32::MAX),
            cpu: (0, 0),
            counted: Duration::ZERO,
            reclaimed: 0,
            oom_kills: 0,
        }
    }
}

/// The default resources of a new cgroup.
pub(super) fn filled(resources: LinuxResources) -> LinuxResources {
    let mut all = LinuxResources {
        cpu_period: Some(plumb_resize::cgroup::DEFAULT_PERIOD),
        cpu_quota: Some(-1),
        cpu_shares: Some(plumb_resize::cgroup::SHARES_PER_CPU),
        memory_limit: Some(-1),
        ..LinuxResources::default()
    };
    merge(&mut all, &resources);
    all
}

/// Sets the given resources, and leaves the rest.
pub(super) fn merge(into: &mut LinuxResources, to: &LinuxResources) {
    let LinuxResources {
        cpu_period,
        cpu_quota,
        cpu_shares,
        memory_limit,
        memory_swap_limit,
        memory_high,
        oom_score_adj,
        cpuset_cpus,
        cpuset_mems,
        pids_limit,
        hugepage_limits,
        unified,
    } = to.clone();
    into.cpu_period = cpu_period.or(into.cpu_period);
    into.cpu_quota = cpu_quota.or(into.cpu_quota);
    into.cpu_shares = cpu_shares.or(into.cpu_shares);
    // The kernel counts in pages.
    into.memory_limit = memory_limit.map(|bytes| bytes - bytes.max(0) % 4096).or(into.memory_limit);
    into.memory_swap_limit = memory_swap_limit.or(into.memory_swap_limit);
    into.memory_high = memory_high.or(into.memory_high);
    into.oom_score_adj = oom_score_adj.or(into.oom_score_adj);
    into.cpuset_cpus = cpuset_cpus.or(into.cpuset_cpus.take());
    into.cpuset_mems = cpuset_mems.or(into.cpuset_mems.take());
    into.pids_limit = pids_limit.or(into.pids_limit);
    if !hugepage_limits.is_empty() {
        into.hugepage_limits = hugepage_limits;
    }
    into.unified.extend(unified);
}
