//! One pod: asks for what it wants, looks at what is there, does what is decided, and tells the API.
//!
//! ```text
//!   message ▸ ask ▸ look ▸ decide ▸ tell ▸ act ▸ look again, until nothing is left to do
//! ```
//!
//! A worker remembers nothing that it could not do without: what is promised is in the journal, what runs is the
//! runtime's to say. Whatever takes long (ending a container, fetching an image, telling the API) is done beside
//! it and comes back as a [`Message`], so that news is never kept waiting.

mod act;
mod allocated;
mod bury;
mod count;
mod hold;
mod pin;
mod report;
mod resize;
mod stop;
mod watch_over;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_resize::plan::{InForce, Step, inherited, plan, start_waits};
use plumb_resize::pod::PodResources;
use plumb_resize::resource::{PerResource, Requirements};
use plumb_resize::status::Outcome;
use plumb_runtime::types::ContainerId;
use plumb_supervise::Exponential;
use tokio::sync::mpsc;

use crate::allocation_manager::Trigger;
use crate::allocator::{AllocationResult, PodInfo};
use crate::journal::Entry;
use crate::lifecycle::{ContainerSeen, Decision, Health, Phase, State, View, decide, phase};
use crate::look::{self, Looked, Written, look};
use crate::node::Node;
use crate::probe::Report;
use crate::publish::Told;
use crate::resized;
use crate::status::Known;
use act::Fetch;
use allocated::FollowedVolumes;
use count::Counted;
use hold::Hold;
use report::Report as Telling;
use resize::RestoredLimits;
use watch_over::Watched;

/// The name that panics of workers are counted under.
pub(crate) const POD_WORKER: &str = "pod-worker";
/// How many times a worker acts before it looks at its messages again.
const TURNS: usize = 64;
/// How long it waits after something failed.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(10));

/// What a worker is told. Each inbox has room for some from the start, so they are small.
#[derive(Debug)]
pub(crate) enum Message {
    /// The pod as the API has it.
    Pod(Arc<Pod>),
    /// The API has it no more.
    Deleted,
    /// Something happened to its containers.
    Happened,
    /// One of its containers ran out of memory, though it may run on.
    OutOfMemory(ContainerId),
    /// A limit that was lowered is what it was before.
    LimitRestored,
    /// There is a new answer to what it wants.
    Allocation(Box<AllocationResult>, Trigger),
    /// What could not be done may be tried again.
    Again,
    /// A container that was asked to end has ended.
    Stopped(ContainerId),
    /// An image was fetched, or this went wrong.
    Pulled(Box<(String, Option<String>)>),
    /// What was to be done after a container's start went wrong.
    HookFailed(Box<(ContainerId, String)>),
    /// What became of what was told to the API.
    Told(Told),
    /// A probe of one of its containers has something to say.
    Probed(Box<Report>),
}

impl From<Report> for Message {
    fn from(report: Report) -> Self {
        Self::Probed(Box::new(report))
    }
}

/// What a worker does after a turn.
enum Turn {
    /// Look again at once.
    Again,
    /// Wait for a message, or for this long.
    Wait(Option<Duration>),
    /// Nothing is left of the pod.
    Gone,
}

/// Whoever works for one pod.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the pod")]
pub(crate) struct Worker {
    node: Arc<Node>,
    /// To itself, from what is done beside it.
    tell: mpsc::UnboundedSender<Message>,
    uid: String,
    pod: Arc<Pod>,
    info: PodInfo,
    entry: Entry,
    /// Whether the desk has answered the spec as it is.
    asked: bool,
    looked: Looked,
    /// Nothing has happened or been done since that could have changed what was seen.
    fresh: bool,
    written: Written,
    /// What was last seen applied to each container while it ran, by position.
    applied: Vec<Option<Requirements>>,
    watched: Vec<Watched>,
    holds: Vec<Hold>,
    stopping: BTreeSet<ContainerId>,
    images: BTreeMap<String, Fetch>,
    report: Telling,
    /// Why the pod as a whole is over, if its containers are not why.
    because: Option<(String, String)>,
    /// The pod is over: nothing of it is started again, and it holds no room.
    over: bool,
    /// The pod was never taken in, by this agent or by one before it.
    rejected: bool,
    /// It is to end: since when, and how long it has.
    ends: Option<(Timestamp, Duration)>,
    /// The API has it no more.
    deleted: bool,
    /// Nothing is left of it on this node.
    buried: bool,
    counted: Counted,
    /// A resize is being carried out, of this generation.
    resizing: Option<i64>,
    /// How many attempts in a row have not brought a memory limit down.
    stalled: u32,
    restored_limits: RestoredLimits,
    /// How often in a row something failed.
    failures: u32,
    volumes: FollowedVolumes,
}

impl Worker {
    /// Whoever works for a pod that is promised what `entry` says.
    pub(crate) fn new(
        node: Arc<Node>,
        tell: mpsc::UnboundedSender<Message>,
        pod: Arc<Pod>,
        info: PodInfo,
        entry: Entry,
    ) -> Self {
        let count = info.shape.containers.len();
        let seen = look::empty(&info.shape);
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node,
            tell,
            asked: false,
            looked: Looked { seen, ..Looked::default() },
            fresh: false,
            written: Written::default(),
            applied: vec![None; count],
            watched: (0..count).map(|_| Watched::default()).collect(),
            holds: vec![Hold::default(); count],
            stopping: BTreeSet::new(),
            images: BTreeMap::new(),
            report: Telling::default(),
            because: None,
            over: is_over(&pod),
            rejected: is_over(&pod) && !has_statuses(&pod),
            ends: None,
            deleted: false,
            buried: false,
            counted: Counted::default(),
            resizing: None,
            stalled: 0,
            restored_limits: RestoredLimits::default(),
            failures: 0,
            volumes: FollowedVolumes::default(),
            pod,
            info,
            entry,
        }
    }

    /// The same, for a pod that was admitted and must end now, with all containers that run.
    pub(crate) fn must_end(mut self, reason: String, message: String) -> Self {
        self.because = Some((reason, message));
        self
    }

    /// The same, for a pod that is not taken in.
    pub(crate) fn rejected(mut self, reason: String, message: String) -> Self {
        self.because = Some((reason, message));
        self.over = true;
        self.rejected = true;
        self
    }

    /// Works until nothing is left of the pod.
    pub(crate) async fn run(mut self: Box<Self>, inbox: &mut mpsc::UnboundedReceiver<Message>) {
        self.take_ending();
        loop {
            // What a pass needs in memory is given back while nothing happens.
            let wait = Box::pin(self.pass()).await;
            match wait {
                Turn::Gone => break,
                // Others want to work, too.
                Turn::Again => tokio::task::yield_now().await,
                Turn::Wait(wait) => {
                    let patience = async {
                        match wait {
                            Some(wait) => tokio::time::sleep(wait).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        message = inbox.recv() => match message {
                            Some(message) => self.take(message),
                            None => break,
                        },
                        () = patience => self.fresh = false,
                    }
                }
            }
            while let Ok(message) = inbox.try_recv() {
                self.take(message);
            }
        }
        self.count_standing();
        self.node.workers.dismiss(&self.uid);
    }

    /// Takes a message in.
    fn take(&mut self, message: Message) {
        match message {
            Message::Pod(pod) => self.take_pod(pod),
            Message::Deleted => {
                self.deleted = true;
                self.take_ending();
            }
            Message::Happened => self.fresh = false,
            Message::OutOfMemory(id) => {
                self.fresh = false;
                self.tell_out_of_memory(&id);
            }
            Message::LimitRestored => {
                self.fresh = false;
                self.take_taken_back();
            }
            Message::Allocation(result, trigger) => self.answered(*result, Some(trigger)),
            Message::Again => self.asked = false,
            Message::Stopped(id) => {
                self.fresh = false;
                self.stopping.remove(&id);
            }
            Message::Pulled(pulled) => self.take_image(&pulled.0, pulled.1),
            Message::HookFailed(failed) => self.take_failed_hook(&failed.0, &failed.1),
            Message::Told(told) => self.take_told(told),
            Message::Probed(report) => self.take_probed(*report),
        }
    }

    /// Takes the pod as it is now, if that is news.
    fn take_pod(&mut self, pod: Arc<Pod>) {
        if !is_newer(&pod, &self.pod) {
            return;
        }
        match PodInfo::of(&pod) {
            Ok(info) => {
                self.asked &= info.desired == self.info.desired && info.generation == self.info.generation;
                if info.desired != self.info.desired {
                    let old = std::mem::take(&mut self.info.desired);
                    self.count_wish(&old, &info.desired);
                }
                self.info = info;
            }
            // What was admitted once stays as it was.
            Err(error) => tracing::warn!(%error, uid = self.uid, "a pod cannot be read any more"),
        }
        self.pod = pod;
        self.forget_failures_of_other_images();
        self.refresh_volumes();
        self.node.workers.show(&self.uid, self.pod.clone());
        self.take_ending();
    }

    /// Notes that the pod is to end, and how long it has.
    fn take_ending(&mut self) {
        let meta = &self.pod.metadata;
        let spec_grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        if let Some(deletion) = meta.deletion_timestamp.as_ref().map(|time| time.0) {
            let grace = meta.deletion_grace_period_seconds.or(spec_grace).unwrap_or(30);
            // The time of deletion is when the grace will have run out.
            let since = deletion.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(deletion);
            self.ends = Some((since, seconds(grace)));
        } else if self.deleted && self.ends.is_none() {
            self.ends = Some(((self.node.clock)(), seconds(spec_grace.unwrap_or(30))));
        }
    }

    /// Does all there is to do now.
    async fn pass(&mut self) -> Turn {
        for _ in 0..TURNS {
            match self.turn().await {
                Ok(Turn::Again) => self.fresh = false,
                Ok(turn) => {
                    self.failures = 0;
                    return turn;
                }
                Err(error) => {
                    self.fresh = false;
                    self.failures = self.failures.saturating_add(1);
                    let wait = DELAYS.after(self.failures);
                    tracing::warn!(uid = self.uid, pod = self.info.name, error, ?wait, "will try again");
                    return Turn::Wait(Some(wait));
                }
            }
        }
        Turn::Again
    }

    async fn turn(&mut self) -> Result<Turn, String> {
        if self.buried {
            return Ok(if self.deleted { Turn::Gone } else { self.let_go().await? });
        }
        self.request_resize().await?;
        self.look().await?;
        self.enforce_deadline();
        let in_force = self.in_force();
        let actual = in_force.resources(&self.info.shape, &self.entry.allocation.allocated);
        if !self.over {
            self.node.allocations.set_actual(&self.uid, actual.clone()).await;
        }
        self.watch_over();
        self.follow_volumes().await;
        let steps = self.steps(&in_force);
        let decision = self.decide(&steps);
        let phase = self.phase();
        self.explain(&decision);
        self.count_standing();
        self.publish(phase, &actual, !decision.actions.is_empty() || !steps.is_empty());
        if phase.is_final() && !self.over && !self.runs() {
            self.over = true;
            self.node.allocations.release(&self.uid, Trigger::PodTerminated).await;
        }
        if !decision.actions.is_empty() {
            self.fresh = false;
            if self.act(&decision, in_force.clone()).await? {
                return Ok(Turn::Again);
            }
        }
        if self.ends.is_some() && !self.runs() && self.stopping.is_empty() {
            return self.bury().await;
        }
        if self.pin().await? {
            return Ok(Turn::Again);
        }
        let wake = self.wake(decision.wake);
        if self.may_be_resized() {
            return self.resize(steps, in_force, wake).await;
        }
        Ok(Turn::Wait(wake))
    }

    fn may_be_resized(&self) -> bool {
        self.ends.is_none() && !self.over && self.node.rules.resize
    }

    /// What is yet to be done of what was promised.
    fn steps(&self, in_force: &InForce) -> Vec<Step> {
        if !self.may_be_resized() {
            return Vec::new();
        }
        plan(&self.info.shape, in_force, &self.entry.allocation.allocated)
    }

    /// Asks the desk about the spec, if it has not answered it yet.
    async fn request_resize(&mut self) -> Result<(), String> {
        if self.asked || self.over || self.ends.is_some() {
            return Ok(());
        }
        let PodInfo { desired, generation, .. } = &self.info;
        let result = self.node.allocations.request_resize(&self.uid, desired.clone(), *generation).await;
        if let Some(result) = result.map_err(|error| error_chain(&error))? {
            self.answered(result, None);
        }
        self.asked = true;
        Ok(())
    }

    /// Takes an answer of the desk.
    fn answered(&mut self, result: AllocationResult, trigger: Option<Trigger>) {
        resized::emit_allocation(&self.node.events, &self.pod, &self.info, &result);
        self.count_allocation(&result, trigger);
        if result.outcome == Outcome::Started {
            self.resizing = Some(result.entry.allocation.generation);
            self.stalled = 0;
            self.restored_limits = RestoredLimits::default();
        }
        self.entry = result.entry;
        self.refresh_volumes();
    }

    /// Looks at what the runtime has of the pod, if it may be other than what was seen.
    async fn look(&mut self) -> Result<(), String> {
        if self.fresh {
            return Ok(());
        }
        let allocated = &self.entry.allocation.allocated;
        let promised: Vec<Requirements> = inherited(allocated).collect();
        let pod = self.info.shape.cgroup(allocated);
        let Self { node, uid, info, looked, written, .. } = self;
        let looked = look(&*node.runtime, uid, &info.shape, &looked.seen, written, &promised, pod).await;
        self.looked = looked.map_err(|error| format!("looking at the containers: {error}"))?;
        let seen = &self.looked.seen;
        self.written.containers.retain(|id, _| seen.containers.iter().flatten().any(|seen| seen.id == *id));
        for (applied, seen) in self.applied.iter_mut().zip(&seen.containers) {
            *applied = seen.as_ref().and_then(|seen| seen.in_force).or(*applied);
        }
        self.fresh = true;
        Ok(())
    }

    /// What is in force.
    fn in_force(&self) -> InForce {
        self.looked.in_force(self.info.shape.cgroup(&self.entry.allocation.allocated))
    }

    /// Ends a pod that has been active for longer than it may.
    fn enforce_deadline(&mut self) {
        let Some(deadline) = self.deadline().filter(|_| !self.over && self.ends.is_none()) else { return };
        if (self.node.clock)() < deadline || self.because.is_some() {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.because = Some(("DeadlineExceeded".to_owned(), message.to_owned()));
        self.node.events.pod(&self.pod, crate::events::Kind::Normal, "DeadlineExceeded", message);
    }

    /// When the pod has to be over.
    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let since = self.pod.status.as_ref()?.start_time.as_ref()?.0;
        since.checked_add(SignedDuration::from_secs(seconds)).ok()
    }

    fn decide(&self, steps: &[Step]) -> Decision {
        let none = PodSpec::default();
        let now = (self.node.clock)();
        let may_start = self.may_start(steps);
        decide(View {
            spec: self.pod.spec.as_ref().unwrap_or(&none),
            shape: &self.info.shape,
            seen: &self.looked.seen,
            health: &self.health(),
            stopping: &self.stopping,
            restarting: &self.entry.restarting,
            not_before: &self.not_before(),
            failed_until: &self.failed_until(),
            may_start: &may_start,
            ends: self.ends.is_some() || self.over || self.because.is_some(),
            now,
        })
    }

    /// Whether each container may be started now. One that was stopped for a resize waits for others that are stopped
    /// for it too; any other starts at once, if need be with less than it is allocated.
    fn may_start(&self, steps: &[Step]) -> Vec<bool> {
        let others_stop = start_waits(steps) || !self.stopping.is_empty();
        let names = self.info.shape.containers.iter().map(|part| &part.name);
        names.map(|name| !(others_stop && self.entry.restarting.contains(name))).collect()
    }

    /// Where the pod is in its life.
    fn phase(&self) -> Phase {
        if self.because.is_some() && !self.runs() {
            return Phase::Failed;
        }
        if let Some(phase) = final_phase(&self.pod) {
            return phase;
        }
        let none = PodSpec::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&none);
        let seen = phase(spec, &self.info.shape, &self.looked.seen, &self.entry.restarting);
        if self.runs() {
            // It is over when nothing of it runs any more, sidecars included.
            return if seen.is_final() { Phase::Running } else { seen };
        }
        if self.ends.is_none() || seen.is_final() {
            return seen;
        }
        // Asked to end, and has: nothing is started again, whatever its policy says.
        let codes = self.looked.seen.containers.iter().flatten().map(ContainerSeen::exit_code);
        let codes: Vec<Option<i32>> = codes.collect();
        match () {
            () if codes.is_empty() => seen,
            () if codes.iter().all(|code| *code == Some(0)) => Phase::Succeeded,
            () => Phase::Failed,
        }
    }

    /// Whether anything of the pod runs, or may be about to.
    fn runs(&self) -> bool {
        let containers = self.looked.seen.containers.iter().flatten();
        containers.into_iter().any(|seen| !matches!(seen.state, State::Exited { .. }))
            || self.looked.seen.sandbox.as_ref().is_some_and(|sandbox| sandbox.ready)
    }

    fn known<'a>(&'a self, parts: Parts<'a>) -> Known<'a> {
        Known {
            pod: &self.pod,
            shape: &self.info.shape,
            seen: &self.looked.seen,
            health: parts.health,
            waiting: parts.waiting,
            phase: parts.phase,
            because: self.because.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str())),
            taken_in: !self.rejected,
            desired: &self.info.desired,
            allocation: &self.entry.allocation,
            actual: parts.actual,
            rules: &self.node.rules,
            host: &self.node.facts.host_ips,
            runtime: &self.node.runtime_name,
            now: (self.node.clock)(),
        }
    }

    /// How long to wait for whatever comes first: what is due in the pod's life, its deadline, another attempt to
    /// tell the API.
    fn wake(&self, due: Option<Timestamp>) -> Option<Duration> {
        let now = (self.node.clock)();
        let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        let deadline = self.deadline().filter(|_| !self.over && self.because.is_none());
        let at = due.into_iter().chain(deadline).min().map(until);
        at.into_iter().chain(self.report.retry_after()).chain(self.volumes.retry_after()).min()
    }
}

/// What of [`Known`] is worked out for the occasion.
#[derive(Clone, Copy)]
struct Parts<'a> {
    health: &'a [Health],
    waiting: &'a [Option<crate::status::Waiting>],
    phase: Phase,
    actual: &'a PodResources,
}

/// Which limits the pod declares as a whole, so that its containers share them.
fn declared_by_pod(resources: &PodResources) -> PerResource<bool> {
    PerResource::of(|r| resources.pod.is_some_and(|pod| pod.limits[r].is_some_and(|limit| limit > 0)))
}

/// The phase of a pod of which the API says that it is over.
fn final_phase(pod: &Pod) -> Option<Phase> {
    match pod.status.as_ref()?.phase.as_deref()? {
        "Succeeded" => Some(Phase::Succeeded),
        "Failed" => Some(Phase::Failed),
        _ => None,
    }
}

/// Whether anything was ever said of a pod's containers.
fn has_statuses(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| status.container_statuses.as_ref().is_some_and(|all| !all.is_empty()))
}

/// Whether the API says that a pod is over. What is over stays over.
pub(crate) fn is_over(pod: &Pod) -> bool {
    final_phase(pod).is_some()
}

/// Whether one is a later state of a pod than the other. Resource versions are compared as the numbers they are;
/// where they are not, what comes later is later.
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
