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
//! for a pod that was unavailable before its own resize, which is done, or that is unschedulable: it may never become available.
//!
//! A canary records the pods that it chooses before their resizes begin, so that it chooses no other one if a pod is deleted.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::failure::{Failure, StuckReason};
use super::pod_state::PodState;
use super::pods::{Cost, PodView, Pods};
use super::rollout::{
    Canaries, Heading, PODS_NAMED, Phase, PodFailure, RolloutOutcome, RolloutRecord, RolloutStatus,
};
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
    /// Since when pods are missing, or others are unavailable, as it was observed; since the rollout began if `None`.
    pub missing_since: Option<Timestamp>,
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
    /// Record the pods of the canary. Those that are new resize with a later decision.
    Choose(Canaries),
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
    if let Some((number, _)) = limits.step
        && limits.is_step_done(state)
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
    if limits.has_failed() {
        let why = if counts.stuck > 0 { "" } else { "pods of the canary were resized back" };
        return (Phase::Held, why.to_owned());
    }
    if limits.begun >= limits.partition {
        return (Phase::Held, String::new());
    }
    if limits.has_begun_step() {
        // The replacement of a pod of the canary has to become available.
        return waits_for_pods(state, due);
    }
    waits_for_availability(state, due)
}

/// The phase of a rollout whose next pod has to wait because too many are unavailable, or may become so.
fn waits_for_availability(state: &State<'_>, due: &mut Option<Timestamp>) -> (Phase, String) {
    let count = state.pods.exposed() + missing(state);
    if max_unavailable(state) == 0 && !is_full(state) && count.saturating_sub(not_awaited(state)) == 0 {
        return (Phase::Held, NO_RESTARTS.to_owned());
    }
    waits_for_pods(state, due)
}

/// The phase of a rollout that waits for pods to become available, or for nodes to apply resizes. It is `Held` once none of the
/// pods has been unavailable for less than the deadline: before that they may be starting, or restarting.
fn waits_for_pods(state: &State<'_>, due: &mut Option<Timestamp>) -> (Phase, String) {
    let unavailable = state.pods.unavailable();
    let max = max_unavailable(state);
    let missing = missing(state);
    let count = unavailable.len() + missing;
    let unapplied = unapplied(state);
    let is_full = is_full(state);
    let mut reasons = Vec::new();
    if count > 0 || unapplied.is_empty() && !is_full {
        let names: Vec<&str> = state.pods.unavailable().take(PODS_NAMED).map(String::as_str).collect();
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        reasons.push(format!(
            "waiting for pods to become available: {count} of {} unavailable, maxUnavailable is {max}{names}",
            state.replicas.max(state.pods.len())
        ));
    }
    if !unapplied.is_empty() {
        let names: Vec<&str> = unapplied.iter().take(PODS_NAMED).map(|(name, _)| *name).collect();
        reasons.push(format!(
            "nodes may still apply {} resizes, maxUnavailable is {max} ({})",
            unapplied.len(),
            names.join(", ")
        ));
    }
    if is_full {
        reasons.push(format!(
            "{} resizes wait for their nodes, and no more are begun",
            state.pods.waiting_beside()
        ));
    }
    let pod = &state.settings.pod;
    let after = |since: Timestamp| since.checked_add(pod.deadline.max(pod.min_ready)).ok();
    let of_missing =
        (missing > 0).then(|| after(state.missing_since.unwrap_or(state.record.started_at))).flatten();
    let of_unapplied = unapplied.iter().filter_map(|(_, view)| view.evaluation.due);
    // Iterates over all that are unavailable, which are few: the rollout makes no more than maxUnavailable so.
    let deadlines = unavailable.filter_map(|name| after(state.pods.get(name)?.readiness_changed_at?));
    let deadlines = deadlines.chain(of_unapplied).chain(of_missing).filter(|deadline| *deadline > state.now);
    let message = reasons.join("; ");
    match deadlines.max() {
        Some(deadline) => {
            *due = Some(due.map_or(deadline, |due| due.min(deadline)));
            (Phase::Progressing, message)
        }
        None => (Phase::Held, message),
    }
}

/// The available pods that a node may make unavailable by a resize that is overdue, or that a new template has superseded.
fn unapplied<'a>(state: &State<'a>) -> Vec<(&'a str, &'a PodView)> {
    if state.pods.exposed() == state.pods.unavailable().len() {
        return Vec::new();
    }
    state.pods.iter().filter(|(_, view)| view.available && view.is_exposed()).collect()
}

const NO_RESTARTS: &str = "pods have to be restarted, and maxUnavailable is 0";

/// Which pods were resized back, and why.
fn rolled_back(pods: &Pods) -> String {
    let count = pods.counts().rolled_back;
    if count == 0 {
        return String::new();
    }
    let all = pods.iter().filter_map(|(name, view)| match &view.evaluation.state {
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
        match (on_failure, &view.evaluation.state) {
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
                let cost = match (view.is_exposed(), restarts) {
                    (false, true) => Cost::Unavailable,
                    (false, false) if reason.is_applied() => Cost::Concurrent,
                    _ => Cost::None,
                };
                if budget.take(cost) {
                    let failure = Failure::last(reason, message.to_owned(), state.now);
                    actions.push(Action::RollBack(pod.to_owned(), failure));
                }
            }
            (OnFailure::RecreatePod, _) => {
                let cost = if view.is_exposed() { Cost::None } else { Cost::Unavailable };
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
    /// How many of these a resize without a restart does not wait for: they were unavailable before the rollout, or are
    /// unschedulable, and may be so for ever.
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
    let settled = state.pods.not_awaited(state.record.heading == Heading::Back || state.record.revert);
    settled.saturating_add(state.pods.unschedulable().min(most_beside(state)))
}

/// How many resizes without a restart may be under way.
fn most_concurrent(state: &State<'_>) -> usize {
    state.settings.max_concurrent.rounded_up(state.pods.len()).max(1)
}

/// How many pods may wait for their nodes, deferred, overdue or unschedulable, beside `maxConcurrent` resizes that are under way.
/// More would say nothing new about a cluster that is full, and all of them might be applied at once.
fn most_beside(state: &State<'_>) -> usize {
    most_concurrent(state).max(MOST_BESIDE)
}

const MOST_BESIDE: usize = 10;

/// Whether no more pods that grow may be resized, because so many resizes wait for their nodes.
fn is_full(state: &State<'_>) -> bool {
    state.pods.waiting_beside() >= most_beside(state)
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
    /// How many pods the canary has chosen, those that are gone since among them.
    chosen: usize,
    /// Those of them whose resize has not begun.
    next: BTreeSet<&'a str>,
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
            chosen: 0,
            next: BTreeSet::new(),
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
            return all.with_canaries(state);
        }
        let mut by_order: Vec<_> = state.pods.iter().map(|(name, view)| (view.order, name, view)).collect();
        by_order.sort_unstable_by_key(|(order, name, _)| (*order, *name));
        by_order.truncate(partition);
        let number = |is: fn(&PodView) -> bool| by_order.iter().filter(|(_, _, view)| is(view)).count();
        let ordered = Self {
            begun: number(PodView::has_begun),
            moved: number(|view| view.moved),
            moved_done: number(PodView::has_moved),
            only: Some(by_order.iter().map(|(_, name, _)| *name).collect()),
            ..all
        };
        ordered.with_canaries(state)
    }

    /// Adds the pods that the canary has chosen.
    fn with_canaries(self, state: &State<'a>) -> Self {
        if self.step.is_none() {
            return self;
        }
        let canaries = &state.record.canaries;
        let has_not_begun = |name: &&str| {
            let view = state.pods.get(name);
            self.contains(name)
                && view.is_some_and(|view| !view.moved && view.evaluation.state == PodState::Pending)
        };
        let next = canaries.next.iter().map(String::as_str).filter(has_not_begun);
        // Nothing begins once the step is done.
        let next = if state.record.step_done_at.is_none() { next.collect() } else { BTreeSet::new() };
        // Pods that had begun another resize, which this one superseded, were not chosen.
        Self { chosen: canaries.chosen.max(self.moved), next, ..self }
    }

    fn contains(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// How many more pods may begin a resize, or be chosen by the canary for one.
    fn left(&self, state: &State<'_>) -> usize {
        let of_step = match self.step {
            Some(_) if state.record.step_done_at.is_some() => 0,
            Some((_, pods)) => pods.saturating_sub(self.chosen),
            None => usize::MAX,
        };
        self.partition.saturating_sub(self.begun + self.next.len()).min(of_step)
    }

    /// Whether the canary has chosen as many pods as it may, and all have begun.
    fn has_begun_step(&self) -> bool {
        self.step.is_some_and(|(_, pods)| self.chosen >= pods) && self.next.is_empty()
    }

    /// Whether all pods of the canary step are done. Those that were deleted are, once their replacements are available, which
    /// have the new resources.
    fn is_step_done(&self, state: &State<'_>) -> bool {
        let is_recorded = state.record.step_done_at.is_some();
        let are_replaced = || {
            let is_replacement = |view: &PodView| !view.moved && view.evaluation.state == PodState::Done;
            let mut unavailable = state.pods.unavailable().filter_map(|name| state.pods.get(name));
            self.chosen == self.moved || missing(state) == 0 && !unavailable.any(is_replacement)
        };
        self.moved_done == self.moved && (is_recorded || self.has_begun_step() && are_replaced())
    }

    /// Whether a pod of the canary step cannot be done: it is stuck, or was resized back.
    fn has_failed(&self) -> bool {
        self.has_begun_step() && self.moved_done < self.moved
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

/// Begins as many resizes as the pace allows. Whether there are pods whose resize would begin if they did not back off.
fn begin(state: &State<'_>, limits: &Limits<'_>, budget: &mut Budget, actions: &mut Vec<Action>) -> bool {
    let mut concurrent = most_concurrent(state).saturating_sub(state.pods.concurrent());
    let mut left = limits.left(state);
    let mut of_partition = limits.partition.saturating_sub(limits.begun);
    let is_full = is_full(state);
    // The nodes that a pod of this decision is resized on.
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    // The pods that the canary chooses.
    let mut chosen: BTreeSet<&str> = BTreeSet::new();
    // A pod without a node shows nothing about its new resources: a canary chooses it if there is no other one.
    let skips_unschedulable = limits.step.is_some() && left > 0 && has_schedulable(state, limits);
    // With `Hold`, a refused resize, which counts as begun, is sent again.
    let retries = state.record.heading != Heading::Back && on_failure(state) == OnFailure::Hold;
    let mut backs_off = false;
    for cost in Cost::ALL {
        for again in [false, true] {
            for name in state.pods.candidates(cost, again) {
                let is_slow = cost != Cost::Unavailable && concurrent == 0;
                if is_slow || !budget.allows(cost) || !again && left == 0 && limits.next.is_empty() {
                    break;
                }
                let is_next = limits.next.contains(name.as_str());
                let is_limited = !again && if is_next { of_partition == 0 } else { left == 0 };
                let Some(view) = state.pods.get(name).filter(|_| !is_limited && limits.contains(name)) else {
                    continue;
                };
                let is_refused = matches!(view.evaluation.state, PodState::Stuck { .. });
                let waits = view.grows && (is_full || taken.contains(view.node.as_str()));
                let is_passed_over = skips_unschedulable && !again && !is_next && view.unschedulable;
                if is_refused && !retries || waits || is_passed_over {
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
                if is_next {
                    of_partition -= 1;
                } else if !again {
                    left -= 1;
                }
                if again || is_next || limits.step.is_none() {
                    actions.push(Action::Update(name.clone()));
                } else {
                    chosen.insert(name);
                }
            }
        }
    }
    if !chosen.is_empty() {
        actions.push(Action::Choose(Canaries {
            chosen: limits.chosen + chosen.len(),
            next: limits.next.union(&chosen).map(ToString::to_string).collect(),
        }));
    }
    backs_off
}

/// Whether a pod that is not unschedulable has yet to begin its resize, also if it has to wait for another one on its node.
fn has_schedulable(state: &State<'_>, limits: &Limits<'_>) -> bool {
    let is_pending = |view: &PodView| view.evaluation.state == PodState::Pending && !view.intended;
    let mut pods = state.pods.iter();
    pods.any(|(name, view)| is_pending(view) && !view.unschedulable && limits.contains(name))
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
