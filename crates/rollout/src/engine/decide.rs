//! The next actions for a workload: the pace of resizes, and the response to failures.
//!
//! ```text
//!   writes that cost no budget (confirm, resend)      ──▶ always
//!   a pod is stuck ──▶ Hold: status only │ RollbackPod │ RollbackAll │ RecreatePod │ RecreateAll
//!   no pod is pending, in flight or stuck ──▶ Complete
//!   paused ──▶ no further action
//!   reverts of what the node has not applied          ──▶ always
//!   resizes of unavailable pods ──▶ maxConcurrent                  ┐
//!   resizes without a restart   ──▶ maxConcurrent, maxUnavailable  ├─▶ within partition and canary step, shrinks first,
//!   resizes with a restart      ──▶ maxUnavailable                 ┘   one growing pod per node
//! ```
//!
//! Every pod that is unavailable counts against `maxUnavailable`, whatever made it so, and so does every pod whose resize is
//! under way, because it may become unready. So no more pods than that are unavailable by a rollout. If `maxUnavailable` is 0, one
//! pod at a time is resized that no container is restarted for (OpenKruise's issue 2049). A resize without a restart does not wait
//! for a pod that was unavailable before its own resize, which is done: it may never become available.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::failure::{Failure, StuckReason};
use super::pod_state::PodState;
use super::pods::{Cost, PodView, Pods};
use super::rollout::{Heading, PODS_NAMED, Phase, PodFailure, RolloutOutcome, RolloutRecord, RolloutStatus};
use super::settings::Settings;
use crate::api::OnFailure;

/// Everything that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The pods that are neither terminating nor have ended.
    pub pods: &'a Pods,
    /// The settings of the policy, or the defaults.
    pub settings: &'a Settings,
    /// The record of the rollout on the workload.
    pub record: &'a RolloutRecord,
    /// The pods whose last write failed, and that nothing is sent for yet. Others take their place.
    pub backing_off: &'a BTreeSet<String>,
    /// Whether a partition is about the last pods by [`PodView::order`](super::PodView::order): that of a `StatefulSet` is about
    /// those with the lowest numbers, that of a `CloneSet` about those of the lowest priority. Else it is about any.
    pub is_ordered: bool,
    /// How many pods the workload should have.
    pub replicas: usize,
    /// How many of them may be unavailable by its own strategy.
    pub max_unavailable: usize,
    /// How many of its pods are not among `pods`.
    pub others: usize,
    /// How many of these are unavailable.
    pub others_unavailable: usize,
    /// The current time.
    pub now: Timestamp,
}

/// An action. Every action is idempotent; if one fails, the next decision contains it again.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send the next write of a pod, see [`NextWrite`](super::NextWrite).
    Update(String),
    /// Resize a pod back to its resources before the rollout.
    RollBack(String, Failure),
    /// Evict a pod, if its disruption budgets allow it.
    Evict(String),
    /// Record that all pods go back, and restore the resources of the template.
    RollBackAll(PodFailure),
    /// Leave all pods to the workload's own controller.
    RecreateAll(PodFailure),
    /// Record that the pods of the canary step are done.
    StepDone,
    /// Record that the next canary step begins.
    NextStep,
    /// Record the outcome, and release the workload.
    Finish(RolloutOutcome),
}

/// The actions, the status, and when to decide again even without a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// The status to report.
    pub status: RolloutStatus,
    /// When to decide again.
    pub due: Option<Timestamp>,
}

/// Decides the next actions.
pub fn decide(state: &State<'_>) -> Decision {
    let mut due = state.pods.next_due();
    let mut actions: Vec<Action> = state.pods.writes().cloned().map(Action::Update).collect();
    let (phase, message) = match state.record.heading {
        Heading::Recreate => (Phase::Recreating, String::new()),
        Heading::Forward => forward(state, &mut actions, &mut due),
        Heading::Back => back(state, &mut actions, &mut due),
    };
    let named = |(pod, reason, message): (&str, StuckReason, &str)| PodFailure {
        pod: pod.to_owned(),
        reason,
        message: message.to_owned(),
    };
    let status = RolloutStatus {
        revision: state.record.revision.clone(),
        heading: state.record.heading,
        phase,
        message,
        pods: state.pods.counts(),
        stuck: state.pods.stuck().take(PODS_NAMED).map(named).collect(),
        waiting: state.pods.waiting().take(PODS_NAMED).map(named).collect(),
        autoscaled: Vec::new(),
    };
    Decision { actions, status, due }
}

fn forward(state: &State<'_>, actions: &mut Vec<Action>, due: &mut Option<Timestamp>) -> (Phase, String) {
    let counts = state.pods.counts();
    let mut budget = Budget::new(state);
    if let Some(phase) = answer_failures(state, &mut budget, actions) {
        return phase;
    }
    // Also of a paused rollout: it has no pod left to wait for.
    if counts.pending == 0 && counts.in_flight() == 0 && counts.stuck == 0 {
        let (outcome, phase) = match (counts.rollback_failed, counts.rolled_back, counts.done) {
            (0, 1.., 0) => (RolloutOutcome::RolledBack, Phase::RolledBack),
            (0, _, _) => (RolloutOutcome::Complete, Phase::Complete),
            _ => (RolloutOutcome::RollbackFailed, Phase::RollbackFailed),
        };
        if actions.is_empty() && state.record.outcome.is_none() {
            actions.push(Action::Finish(outcome));
        }
        return (phase, rolled_back(state.pods));
    }
    if let Some(by) = paused(state) {
        return (Phase::Paused, by);
    }
    let moved = actions.len();
    actions.extend(state.pods.reverts().cloned().map(Action::Update));
    let limits = Limits::new(state);
    let backs_off = begin(state, &limits, &mut budget, actions);
    if let Some((number, pods)) = limits.step
        && limits.moved_done >= pods
    {
        return step_is_done(state, number, actions, due);
    }
    if actions.len() > moved || counts.in_flight() > 0 || backs_off {
        return (Phase::Progressing, String::new());
    }
    if counts.stuck > 0 && counts.pending == 0 {
        return (Phase::Held, String::new());
    }
    if limits.begun >= limits.partition && counts.stuck == 0 {
        return (Phase::Partitioned, String::new());
    }
    if limits.step.is_some_and(|(_, pods)| limits.moved >= pods) {
        let why = if counts.stuck > 0 { "" } else { "pods of the canary were resized back" };
        return (Phase::Held, why.to_owned());
    }
    if limits.begun >= limits.partition {
        return (Phase::Held, String::new());
    }
    waits_for_availability(state, due)
}

/// The phase of a rollout whose next pod has to wait because too many are unavailable. It is `Held` once none of them has been so
/// for less than the deadline: before that they may be starting, or restarting.
fn waits_for_availability(state: &State<'_>, due: &mut Option<Timestamp>) -> (Phase, String) {
    let unavailable = state.pods.unavailable();
    let max = max_unavailable(state);
    let count = unavailable.len() + missing(state);
    if count.saturating_sub(not_awaited(state)) == 0 && max == 0 {
        return (Phase::Held, NO_RESTARTS.to_owned());
    }
    let names: Vec<&str> = state.pods.unavailable().take(PODS_NAMED).map(String::as_str).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let message = format!(
        "waiting for pods to become available: {count} of {} unavailable, maxUnavailable is {max}{names}",
        state.replicas.max(state.pods.len())
    );
    let deadlines = unavailable.filter_map(|name| {
        let since = state.pods.get(name)?.unready_since?;
        since.checked_add(state.settings.pod.deadline).ok().filter(|deadline| *deadline > state.now)
    });
    // Iterates over all that are unavailable, which are few: the rollout makes no more than maxUnavailable so.
    match deadlines.max() {
        Some(deadline) => {
            *due = Some(due.map_or(deadline, |due| due.min(deadline)));
            (Phase::Progressing, message)
        }
        None => (Phase::Held, message),
    }
}

const NO_RESTARTS: &str = "pods have to be restarted, and maxUnavailable is 0";

/// Which pods were resized back, and why.
fn rolled_back(pods: &Pods) -> String {
    let count = pods.counts().rolled_back;
    if count == 0 {
        return String::new();
    }
    let all = pods.iter().filter_map(|(name, view)| match &view.judgement.state {
        PodState::RolledBack { failure } => Some((name, failure.as_ref())),
        _ => None,
    });
    let why = |(name, failure): (&str, Option<&Failure>)| match failure {
        Some(Failure { reason, message, .. }) => format!("{name}: {reason}: {message}"),
        None => name.to_owned(),
    };
    let named: Vec<String> = all.take(PODS_NAMED).map(why).collect();
    let pods = if count == 1 { "1 pod was".to_owned() } else { format!("{count} pods were") };
    format!("{pods} resized back: {}", named.join("; "))
}

/// How the engine responds to pods that are stuck. After the end of a rollout, a pod that drifts and cannot be resized again
/// affects no other pod.
fn on_failure(state: &State<'_>) -> OnFailure {
    match state.settings.on_failure {
        OnFailure::RollbackAll | OnFailure::RecreateAll if state.record.outcome.is_some() => OnFailure::Hold,
        on_failure => on_failure,
    }
}

/// Responds to stuck pods by the policy.
fn answer_failures(
    state: &State<'_>,
    budget: &mut Budget,
    actions: &mut Vec<Action>,
) -> Option<(Phase, String)> {
    let on_failure = on_failure(state);
    if on_failure == OnFailure::Hold {
        return None;
    }
    for (pod, reason, message) in state.pods.stuck() {
        let Some(view) = state.pods.get(pod) else { continue };
        let failure = || PodFailure { pod: pod.to_owned(), reason, message: message.to_owned() };
        match (on_failure, &view.judgement.state) {
            (OnFailure::RollbackAll, PodState::Stuck { .. }) => {
                actions.push(Action::RollBackAll(failure()));
                return Some((Phase::RollingBack, format!("{pod} is stuck: {message}")));
            }
            (OnFailure::RecreateAll, PodState::Stuck { .. }) => {
                actions.push(Action::RecreateAll(failure()));
                return Some((Phase::Recreating, format!("{pod} is stuck: {message}")));
            }
            (OnFailure::RollbackPod, PodState::Stuck { .. }) => {
                let Some(restarts) = view.back_restarts else { continue };
                let cost = match (view.available, restarts) {
                    (true, true) => Cost::Unavailable,
                    (true, false) if reason.is_applied() => Cost::Concurrent,
                    _ => Cost::None,
                };
                if budget.take(cost) {
                    let failure = Failure::last(reason, message.to_owned(), state.now);
                    actions.push(Action::RollBack(pod.to_owned(), failure));
                }
            }
            (OnFailure::RecreatePod, _) => {
                let cost = if view.available { Cost::Unavailable } else { Cost::None };
                if budget.take(cost) {
                    actions.push(Action::Evict(pod.to_owned()));
                }
            }
            _ => {}
        }
    }
    None
}

/// How many pods may become unavailable.
struct Budget {
    max: usize,
    /// How many are, or may become so by what is under way.
    used: usize,
    /// How many of these a resize without a restart does not wait for: they were unavailable before the rollout, and may be so
    /// for ever.
    not_awaited: usize,
}

impl Budget {
    fn new(state: &State<'_>) -> Self {
        Self {
            max: max_unavailable(state),
            used: state.pods.exposed().saturating_add(missing(state)),
            not_awaited: not_awaited(state),
        }
    }

    /// Whether a pod may be resized at this cost. A resize that should make no pod unavailable is possible even if none may be.
    fn allows(&self, cost: Cost) -> bool {
        match cost {
            Cost::None => true,
            Cost::Concurrent => self.used.saturating_sub(self.not_awaited) < self.max.max(1),
            Cost::Unavailable => self.used < self.max,
        }
    }

    /// Takes the cost of one pod. Returns false if the budget is spent.
    fn take(&mut self, cost: Cost) -> bool {
        let allowed = self.allows(cost);
        self.used += usize::from(allowed && cost != Cost::None);
        allowed
    }
}

/// How many pods of the workload are unavailable, or missing, besides those that are tracked.
fn missing(state: &State<'_>) -> usize {
    let there = state.pods.len().saturating_add(state.others);
    state.replicas.saturating_sub(there).saturating_add(state.others_unavailable)
}

/// How many unavailable pods the resizes without a restart do not wait for.
fn not_awaited(state: &State<'_>) -> usize {
    state.pods.not_awaited(state.record.heading == Heading::Back || state.record.revert)
}

fn paused(state: &State<'_>) -> Option<String> {
    if state.record.paused {
        Some("paused by a user".to_owned())
    } else if state.settings.paused {
        Some("paused by the policy".to_owned())
    } else {
        None
    }
}

/// How many pods the partition leaves to be resized.
fn partitioned(state: &State<'_>) -> usize {
    let total = state.pods.len();
    total.saturating_sub(state.settings.partition.rounded_up(total))
}

/// How far partition and canary let a rollout go, and how far it is.
struct Limits<'a> {
    /// The names of the pods that a partition leaves to be resized; none if they may be any.
    only: Option<BTreeSet<&'a str>>,
    /// How many pods may have begun their resize, or follow the revision.
    partition: usize,
    /// The number of the canary step that limits the rollout, and how many pods are resized in it and those before.
    step: Option<(usize, usize)>,
    /// How many pods have begun their resize, or follow the revision.
    begun: usize,
    /// How many pods have begun a resize. A pod that was created with the new resources, or has had them before, tells nothing
    /// about a resize, and is no part of a canary.
    moved: usize,
    /// How many of these are done.
    moved_done: usize,
}

impl<'a> Limits<'a> {
    /// No limits: neither partition nor canary count.
    fn none(state: &State<'a>) -> Self {
        Self {
            only: None,
            partition: usize::MAX,
            step: None,
            begun: state.pods.begun(),
            moved: state.pods.moved(),
            moved_done: state.pods.moved_done(),
        }
    }

    fn new(state: &State<'a>) -> Self {
        let none = Self::none(state);
        if state.record.revert {
            return none;
        }
        let (total, partition) = (state.pods.len(), partitioned(state));
        let step = state
            .settings
            .steps
            .get(state.record.step)
            .map(|step| (state.record.step, step.pods.rounded_up(total).clamp(1, partition.max(1))));
        let all = Self { partition, step, ..none };
        if !state.is_ordered || partition == total {
            return all;
        }
        let mut by_order: Vec<_> = state.pods.iter().map(|(name, view)| (view.order, name, view)).collect();
        by_order.sort_unstable_by_key(|(order, name, _)| (*order, *name));
        by_order.truncate(partition);
        let number = |is: fn(&PodView) -> bool| by_order.iter().filter(|(_, _, view)| is(view)).count();
        Self {
            begun: number(PodView::has_begun),
            moved: number(|view| view.moved),
            moved_done: number(PodView::has_moved),
            only: Some(by_order.iter().map(|(_, name, _)| *name).collect()),
            ..all
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// How many more pods may begin a resize.
    fn left(&self) -> usize {
        let of_step = self.step.map_or(usize::MAX, |(_, pods)| pods.saturating_sub(self.moved));
        self.partition.saturating_sub(self.begun).min(of_step)
    }
}

fn step_is_done(
    state: &State<'_>,
    number: usize,
    actions: &mut Vec<Action>,
    due: &mut Option<Timestamp>,
) -> (Phase, String) {
    let shown = number + 1;
    let Some(done_at) = state.record.step_done_at else {
        actions.push(Action::StepDone);
        return (Phase::Progressing, format!("step {shown} of the canary is done"));
    };
    let pause = state.settings.steps.get(number).and_then(|step| step.pause);
    let Some(pause) = pause else {
        return (Phase::Paused, format!("step {shown} of the canary is done; waits to be resumed"));
    };
    let until = done_at.checked_add(pause).unwrap_or(Timestamp::MAX);
    if state.now < until {
        *due = Some(due.map_or(until, |due| due.min(until)));
        return (Phase::Paused, format!("step {shown} of the canary is done; goes on at {until:.0}"));
    }
    actions.push(Action::NextStep);
    (Phase::Progressing, String::new())
}

/// How many pods may wait for nodes that defer their resizes, beside `maxConcurrent` resizes that are under way. More would say
/// nothing new about a cluster that is full, and all of them might be applied at once.
const MOST_DEFERRED: usize = 10;

/// Begins as many resizes as the pace allows. Whether there are pods whose resize would begin if they did not back off.
fn begin(state: &State<'_>, limits: &Limits<'_>, budget: &mut Budget, actions: &mut Vec<Action>) -> bool {
    let most = state.settings.max_concurrent.rounded_up(state.pods.len()).max(1);
    let mut concurrent = most.saturating_sub(state.pods.concurrent());
    let mut left = limits.left();
    let is_full = state.pods.deferred() >= most.max(MOST_DEFERRED);
    // The nodes that a pod of this decision is resized on.
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    // With `Hold`, a refused resize, which counts as begun, is sent again.
    let retries = state.record.heading != Heading::Back && on_failure(state) == OnFailure::Hold;
    let mut backs_off = false;
    for cost in Cost::ALL {
        for again in [false, true] {
            for name in state.pods.candidates(cost, again) {
                let is_slow = cost != Cost::Unavailable && concurrent == 0;
                if is_slow || !budget.allows(cost) || !again && left == 0 {
                    break;
                }
                let Some(view) = state.pods.get(name).filter(|_| limits.contains(name)) else { continue };
                let is_refused = matches!(view.judgement.state, PodState::Stuck { .. });
                let waits = view.grows && (is_full || taken.contains(view.node.as_str()));
                if is_refused && !retries || waits {
                    continue;
                }
                if state.backing_off.contains(name) {
                    backs_off = true;
                    continue;
                }
                if !view.node.is_empty() {
                    taken.insert(&view.node);
                }
                budget.take(cost);
                concurrent -= usize::from(cost != Cost::Unavailable);
                left -= usize::from(!again);
                actions.push(Action::Update(name.clone()));
            }
        }
    }
    backs_off
}

/// How many pods may be unavailable at a time: by the policy, or else by the workload. If that is 0, no pod is
/// restarted.
fn max_unavailable(state: &State<'_>) -> usize {
    let of_policy = state.settings.max_unavailable.map(|share| share.rounded_down_to_one(state.replicas));
    of_policy.unwrap_or(state.max_unavailable)
}

/// Resizes all pods back. A failure here is not retried.
fn back(state: &State<'_>, actions: &mut Vec<Action>, due: &mut Option<Timestamp>) -> (Phase, String) {
    let counts = state.pods.counts();
    let failed = counts.stuck + counts.rollback_failed;
    let why = match &state.record.failure {
        Some(failure) => format!("{} was stuck: {}", failure.pod, failure.message),
        None => "undone by a user".to_owned(),
    };
    if counts.pending == 0 && counts.in_flight() == 0 {
        let outcome = if failed == 0 { RolloutOutcome::RolledBack } else { RolloutOutcome::RollbackFailed };
        if actions.is_empty() && state.record.outcome.is_none() {
            actions.push(Action::Finish(outcome));
        }
        let phase = if failed == 0 { Phase::RolledBack } else { Phase::RollbackFailed };
        return (phase, why);
    }
    if let Some(by) = paused(state) {
        return (Phase::Paused, by);
    }
    let moved = actions.len();
    actions.extend(state.pods.reverts().cloned().map(Action::Update));
    let backs_off = begin(state, &Limits::none(state), &mut Budget::new(state), actions);
    if actions.len() == moved && counts.in_flight() == 0 && !backs_off {
        return match waits_for_availability(state, due) {
            (Phase::Progressing, message) => (Phase::RollingBack, message),
            held => held,
        };
    }
    (Phase::RollingBack, why)
}
