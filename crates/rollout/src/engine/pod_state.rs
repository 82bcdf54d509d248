//! The state of a pod in a rollout, and the next write for it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plumb_resize::status::{self, Stage};

use super::change::{Change, Vertical};
use super::failure::{Failure, StuckReason};
use super::hooks::Hooks;
use super::record::{Direction, PodRecord, statuses};

/// The state of a pod in a rollout.
///
/// ```text
///   Pending ──▶ Resizing ──▶ Soaking ──▶ Done
///                  │  ▲          │
///                  ▼  │          ▼
///                 Stuck ◀────────┘ ──▶ RollingBack ──▶ RolledBack
///                                           └────────▶ RollbackFailed
/// ```
///
/// [`evaluate`] computes it from the pod alone each time, so a resize that was deferred past its deadline and then fits takes a
/// pod from `Stuck` to `Done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// The pod has other resources, and no intent is recorded yet.
    Pending,
    /// The intent is recorded; the node has to apply the resize, or a restarted container to become ready.
    Resizing {
        /// What it waits for, as a message.
        waits_for: String,
    },
    /// The node has applied the resize. The controller watches readiness, restarts and OOM kills until then.
    Soaking {
        /// When that ends.
        until: Timestamp,
    },
    /// The pod follows the revision.
    Done,
    /// The pod does not follow.
    Stuck {
        /// Why, in one word.
        reason: StuckReason,
        /// Why, for people.
        message: String,
    },
    /// The pod is being resized back to its resources before the rollout.
    RollingBack,
    /// The pod was resized back.
    RolledBack {
        /// Why it does not follow the revision.
        failure: Option<Failure>,
    },
    /// The pod could not be resized back. The controller does not retry.
    RollbackFailed {
        /// Why not.
        reason: StuckReason,
        /// Why not, for people.
        message: String,
    },
}

impl PodState {
    /// The state as one word, for status and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Resizing { .. } => "Resizing",
            Self::Soaking { .. } => "Soaking",
            Self::Done => "Done",
            Self::Stuck { .. } => "Stuck",
            Self::RollingBack => "RollingBack",
            Self::RolledBack { .. } => "RolledBack",
            Self::RollbackFailed { .. } => "RollbackFailed",
        }
    }

    /// Whether the pod counts against the pace: its resize is under way, or it is soaking.
    pub const fn is_in_flight(&self) -> bool {
        matches!(self, Self::Resizing { .. } | Self::Soaking { .. } | Self::RollingBack)
    }
}

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck { reason, message } | Self::RollbackFailed { reason, message } => {
                write!(f, "{}: {reason}: {message}", self.name())
            }
            Self::Resizing { waits_for } => write!(f, "Resizing: {waits_for}"),
            Self::Soaking { until } => write!(f, "Soaking until {until:.0}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// The next write for a pod. Each is idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum NextWrite {
    /// No action.
    Nothing,
    /// The intent, then the resize, if one is needed: when the pace allows it.
    Begin(Option<Box<Vertical>>),
    /// The resize again: it was not sent, because the controller crashed, or it was refused a while ago.
    Send(Box<Vertical>),
    /// That the resize is applied: soaking begins.
    MarkApplied,
    /// That the pod is done, with the patch of [`Hooks::on_done`].
    Confirm,
}

/// The state of a pod, and the next action of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Its state.
    pub state: PodState,
    /// The next write.
    pub next: NextWrite,
    /// Why the resize that is under way will be stuck after its deadline: the node defers it or fails to actuate it, or the
    /// pod is not ready since. After the deadline it is set while the node may still apply the resize.
    pub obstacle: Option<(StuckReason, String)>,
    /// Whether the node has applied the resize that is under way: the pod has to become available, or soaks.
    pub applied: bool,
    /// When the state may change without a change of the pod.
    pub due: Option<Timestamp>,
}

/// The settings of a policy for each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodPolicy {
    /// For how long a resize may be deferred or under way.
    pub deadline: SignedDuration,
    /// For how long a pod soaks after the node has applied its resize.
    pub soak: SignedDuration,
    /// For how long a pod has to be ready to be available (`minReadySeconds` of the workload).
    pub min_ready: SignedDuration,
    /// Whether a pod that was done and has other resources now is resized again.
    pub enforce_drift: bool,
    /// When the quotas of the namespace changed last: a resize that a quota refused before is sent again at once.
    pub quotas_changed_at: Option<Timestamp>,
}

impl Default for PodPolicy {
    fn default() -> Self {
        Self {
            deadline: SignedDuration::from_secs(300),
            soak: SignedDuration::ZERO,
            min_ready: SignedDuration::ZERO,
            enforce_drift: false,
            quotas_changed_at: None,
        }
    }
}

/// Computes the state of a pod (`Refresh` of OpenKruise's in-place module). The pod must neither be terminating nor have ended.
pub fn evaluate(pod: &Pod, hooks: &impl Hooks, policy: &PodPolicy, now: Timestamp) -> Evaluation {
    evaluate_recorded(pod, PodRecord::read(pod).as_ref(), hooks, policy, now)
}

/// [`evaluate`] with the record of the pod, which callers parse once for each change of a pod.
pub(super) fn evaluate_recorded(
    pod: &Pod,
    record: Option<&PodRecord>,
    hooks: &impl Hooks,
    policy: &PodPolicy,
    now: Timestamp,
) -> Evaluation {
    match record.filter(|record| record.revision == hooks.revision()) {
        None => unrecorded(pod, hooks),
        Some(record) if record.direction == Direction::Back => rolling_back(pod, hooks, record, policy, now),
        Some(record) => following(pod, hooks, record, policy, now),
    }
}

impl Evaluation {
    fn new(state: PodState, next: NextWrite) -> Self {
        Self { state, next, obstacle: None, applied: false, due: None }
    }

    fn hindered_by(mut self, obstacle: Option<(StuckReason, String)>) -> Self {
        self.obstacle = obstacle;
        self
    }

    fn until(mut self, due: Option<Timestamp>) -> Self {
        self.due = due;
        self
    }

    fn applied(mut self) -> Self {
        self.applied = true;
        self
    }
}

/// A pod without an intent for this revision.
fn unrecorded(pod: &Pod, hooks: &impl Hooks) -> Evaluation {
    match hooks.change(pod, hooks.desired()) {
        Change::Vertical(change) => Evaluation::new(PodState::Pending, NextWrite::Begin(Some(change))),
        Change::Other(reasons) => Evaluation::new(not_resizable(&reasons), NextWrite::Nothing),
        // It was created with these resources, or another client has resized it.
        Change::None => match status::read(pod) {
            Ok(reading) if reading.stage == Stage::Applied && hooks.follows(pod) => {
                Evaluation::new(PodState::Done, NextWrite::Nothing)
            }
            _ => Evaluation::new(PodState::Pending, NextWrite::Begin(None)),
        },
    }
}

fn not_resizable(reasons: &[super::reason::Reason]) -> PodState {
    let message = reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    PodState::Stuck { reason: StuckReason::NotResizable, message }
}

fn following(
    pod: &Pod,
    hooks: &impl Hooks,
    record: &PodRecord,
    policy: &PodPolicy,
    now: Timestamp,
) -> Evaluation {
    let change = hooks.change(pod, hooks.desired());
    if record.finished_at.is_some() {
        return match change {
            Change::Vertical(change) if policy.enforce_drift => {
                Evaluation::new(PodState::Pending, NextWrite::Begin(Some(change)))
            }
            // Another client, such as an autoscaler, has resized it since.
            _ => Evaluation::new(PodState::Done, NextWrite::Nothing),
        };
    }
    match resize(pod, record, change, policy, now) {
        Resize::Unsent(next, due) => {
            let waits_for = "the resize to be sent".to_owned();
            Evaluation::new(PodState::Resizing { waits_for }, next).until(due)
        }
        Resize::UnderWay { waits_for, obstacle, deadline } => {
            let evaluation = Evaluation::new(PodState::Resizing { waits_for }, NextWrite::Nothing);
            evaluation.hindered_by(obstacle).until(Some(deadline))
        }
        Resize::Failed(reason, message, next, due) => {
            Evaluation::new(PodState::Stuck { reason, message }, next).until(due)
        }
        Resize::Overdue(reason, message) => {
            let obstacle = Some((reason, message.clone()));
            Evaluation::new(PodState::Stuck { reason, message }, NextWrite::Nothing).hindered_by(obstacle)
        }
        Resize::Applied => applied(pod, hooks, record, policy, now),
    }
}

fn rolling_back(
    pod: &Pod,
    hooks: &impl Hooks,
    record: &PodRecord,
    policy: &PodPolicy,
    now: Timestamp,
) -> Evaluation {
    if record.finished_at.is_some() {
        return Evaluation::new(PodState::RolledBack { failure: record.failure.clone() }, NextWrite::Nothing);
    }
    let change = hooks.change(pod, &record.previous);
    match resize(pod, record, change, policy, now) {
        Resize::Unsent(next, due) => Evaluation::new(PodState::RollingBack, next).until(due),
        Resize::UnderWay { obstacle, deadline, .. } => {
            let evaluation = Evaluation::new(PodState::RollingBack, NextWrite::Nothing);
            evaluation.hindered_by(obstacle).until(Some(deadline))
        }
        // The way back is attempted once.
        Resize::Failed(reason, message, _, _) => {
            Evaluation::new(PodState::RollbackFailed { reason, message }, NextWrite::Nothing)
        }
        Resize::Overdue(reason, message) => {
            let obstacle = Some((reason, message.clone()));
            let state = PodState::RollbackFailed { reason, message };
            Evaluation::new(state, NextWrite::Nothing).hindered_by(obstacle)
        }
        Resize::Applied if !record.added.is_empty() => {
            let message = format!("a resize cannot remove {}", record.added.join(", "));
            let reason = StuckReason::NotResizable;
            Evaluation::new(PodState::RollbackFailed { reason, message }, NextWrite::Nothing)
        }
        Resize::Applied => Evaluation::new(PodState::RollingBack, NextWrite::Confirm),
    }
}

/// The progress of the resize of a pod whose intent is recorded.
enum Resize {
    /// The pod does not have the resources: it is to be sent, or sent again later.
    Unsent(NextWrite, Option<Timestamp>),
    UnderWay {
        waits_for: String,
        obstacle: Option<(StuckReason, String)>,
        deadline: Timestamp,
    },
    Failed(StuckReason, String, NextWrite, Option<Timestamp>),
    /// The deadline has passed. The pod has the resources in its spec, so the node may apply them at any time.
    Overdue(StuckReason, String),
    Applied,
}

fn resize(pod: &Pod, record: &PodRecord, change: Change, policy: &PodPolicy, now: Timestamp) -> Resize {
    // On the way back, a failure from before its start is the reason for the rollback and no refusal of it.
    let refused = record.failure.as_ref().filter(|failure| {
        record.direction == Direction::Forward
            || failure.at >= record.started_at && failure.retry_at.is_some()
    });
    // Counted from the intent: the transition time of a condition starts anew with each message.
    let deadline = record.started_at.checked_add(policy.deadline).unwrap_or(Timestamp::MAX);
    let overdue = now >= deadline;
    match (change, refused) {
        (Change::Other(reasons), _) => {
            let message = reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Resize::Failed(StuckReason::NotResizable, message, NextWrite::Nothing, None);
        }
        (Change::Vertical(change), Some(failure)) => {
            let is_quota_changed = failure.reason == StuckReason::Quota
                && policy.quotas_changed_at.is_some_and(|changed_at| changed_at > failure.at);
            let due = failure.retry_at.is_some_and(|at| at <= now || is_quota_changed);
            let next = if due { NextWrite::Send(change) } else { NextWrite::Nothing };
            let due = failure.retry_at.filter(|_| !due);
            // It was accepted, and the pod does not have it: another client may have been faster once.
            let is_undone = failure.reason == StuckReason::DeadlineExceeded;
            if is_undone && !overdue && record.direction == Direction::Forward {
                return Resize::Unsent(next, due.into_iter().chain([deadline]).min());
            }
            return Resize::Failed(failure.reason, failure.message.clone(), next, due);
        }
        // The controller crashed before it was sent, or something has undone it. That is known once it was sent again.
        (Change::Vertical(change), None) => return Resize::Unsent(NextWrite::Send(change), None),
        (Change::None, _) => {}
    }
    if record.applied_at.is_some() {
        return Resize::Applied;
    }
    let stage = match status::read(pod) {
        Ok(reading) => reading.stage,
        Err(bad) => Stage::Failing { message: bad.to_string() },
    };
    let (reason, message) = match &stage {
        Stage::Applied => return Resize::Applied,
        Stage::Infeasible { message } => {
            return Resize::Failed(StuckReason::Infeasible, message.clone(), NextWrite::Nothing, None);
        }
        Stage::Deferred { message } => (StuckReason::Deferred, message.clone()),
        Stage::Failing { message } => (StuckReason::Error, message.clone()),
        Stage::Proposed | Stage::InProgress => (StuckReason::DeadlineExceeded, stage.to_string()),
    };
    if overdue {
        Resize::Overdue(reason, message)
    } else {
        let is_hindered = matches!(stage, Stage::Deferred { .. } | Stage::Failing { .. });
        let obstacle = is_hindered.then_some((reason, message));
        Resize::UnderWay { waits_for: stage.to_string(), obstacle, deadline }
    }
}

/// The state of a pod whose resize the node has applied: it is done once it is available, and has soaked.
fn applied(
    pod: &Pod,
    hooks: &impl Hooks,
    record: &PodRecord,
    policy: &PodPolicy,
    now: Timestamp,
) -> Evaluation {
    if record.applied_at.is_some()
        && policy.soak > SignedDuration::ZERO
        && let Some((reason, message)) = soak_failure(pod, record)
    {
        return Evaluation::new(PodState::Stuck { reason, message }, NextWrite::Nothing);
    }
    let ready_since = hooks.ready_since(pod);
    let done = match ready_since {
        Some(_) => hooks.containers_done(pod, record),
        None => Err(super::hooks::NotDone("the pod to become ready".to_owned())),
    };
    if let Err(not_done) = done {
        return not_ready(pod, hooks, record, policy, &not_done, now);
    }
    if policy.soak.is_zero() && policy.min_ready.is_zero() {
        return finished(pod, hooks);
    }
    // Both count from the resize: that a pod was ready before says nothing about its new resources.
    let applied_at = record.applied_at.unwrap_or(now);
    let ready_since = ready_since.unwrap_or(now).max(applied_at);
    let available_at = ready_since.checked_add(policy.min_ready).unwrap_or(Timestamp::MAX);
    let soaked_at = applied_at.checked_add(policy.soak).unwrap_or(Timestamp::MAX);
    let until = available_at.max(soaked_at);
    if record.applied_at.is_none() {
        return Evaluation::new(PodState::Soaking { until }, NextWrite::MarkApplied).applied();
    }
    if now < until {
        return Evaluation::new(PodState::Soaking { until }, NextWrite::Nothing).until(Some(until)).applied();
    }
    finished(pod, hooks)
}

/// The state of a pod that is not ready, or whose containers are not done, though the node has applied its resize.
fn not_ready(
    pod: &Pod,
    hooks: &impl Hooks,
    record: &PodRecord,
    policy: &PodPolicy,
    not_done: &super::hooks::NotDone,
    now: Timestamp,
) -> Evaluation {
    let deadline = record.started_at.checked_add(policy.deadline).unwrap_or(Timestamp::MAX);
    if now < deadline {
        let waits_for = not_done.to_string();
        let obstacle = (StuckReason::NotReady, format!("waits for {not_done}"));
        let evaluation = Evaluation::new(PodState::Resizing { waits_for }, NextWrite::Nothing).applied();
        return evaluation.hindered_by(Some(obstacle)).until(Some(deadline));
    }
    // The resize is not the reason. A pod that crashes, or does not fit any node, must not keep the rollout from its end.
    if record.unready && hooks.containers_done(pod, record).is_ok() {
        return finished(pod, hooks);
    }
    let message = format!("not within {} seconds: {not_done}", policy.deadline.as_secs());
    Evaluation::new(PodState::Stuck { reason: StuckReason::NotReady, message }, NextWrite::Nothing)
}

fn finished(pod: &Pod, hooks: &impl Hooks) -> Evaluation {
    match hooks.pod_done(pod) {
        Ok(()) => Evaluation::new(PodState::Done, NextWrite::Confirm),
        Err(not_done) => {
            Evaluation::new(PodState::Resizing { waits_for: not_done.to_string() }, NextWrite::Nothing)
        }
    }
}

/// The failure of a pod while it was soaking.
fn soak_failure(pod: &Pod, record: &PodRecord) -> Option<(StuckReason, String)> {
    for status in statuses(pod.status.as_ref()) {
        let allowed = record.restarts.get(&status.name).copied().unwrap_or(0);
        if status.restart_count <= allowed {
            continue;
        }
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let current = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        let killed =
            [last, current].into_iter().flatten().any(|ended| ended.reason.as_deref() == Some("OOMKilled"));
        let name = &status.name;
        return Some(if killed {
            (StuckReason::SoakOomKilled, format!("container {name} was OOM-killed after the resize"))
        } else {
            (StuckReason::SoakRestarted, format!("container {name} was restarted after the resize"))
        });
    }
    let oom = statuses(pod.status.as_ref()).find(|status| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.reason.as_deref() == Some("OOMKilled"))
    });
    if let Some(status) = oom {
        let message = format!("container {} was OOM-killed after the resize", status.name);
        return Some((StuckReason::SoakOomKilled, message));
    }
    (!is_ready(pod))
        .then(|| (StuckReason::SoakNotReady, "the pod became unready after the resize".to_owned()))
}

/// Since when a pod is ready; none if it is not.
pub(super) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = status::condition(pod.status.as_ref()?, "Ready").filter(|ready| ready.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}
