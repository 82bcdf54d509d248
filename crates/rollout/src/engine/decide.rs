//! The next actions for a workload: the pace of resizes, and the response to failures.
//!
//! ```text
//!   writes that cost no budget (confirm, resend)      ──▶ always
//!   a pod is stuck ──▶ Hold: status only │ RollbackPod │ RollbackAll │ RecreatePod │ RecreateAll
//!   no pod is pending, in flight or stuck ──▶ Complete
//!   paused ──▶ no further action
//!   reverts that neither grow nor restart             ──▶ always
//!   resizes without a restart   ──▶ maxConcurrent ┐
//!   resizes with a restart      ──▶ maxUnavailable┴─▶ within partition and canary step, shrinks first,
//!                                                     one growing pod per node
//! ```

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::failure::{Failure, StuckReason};
use super::pod_state::PodState;
use super::pods::{PodView, Pods};
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
    /// How many of its pods that are not among `pods` are unavailable.
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
        Heading::Back => back(state, &mut actions),
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
    if let Some(phase) = answer_failures(state, actions) {
        return phase;
    }
    // Also of a paused rollout: it has no pod left to wait for.
    if counts.pending == 0 && counts.in_flight() == 0 && counts.stuck == 0 {
        let (outcome, phase) = match counts.rollback_failed {
            0 => (RolloutOutcome::Complete, Phase::Complete),
            _ => (RolloutOutcome::RollbackFailed, Phase::RollbackFailed),
        };
        if actions.is_empty() && state.record.outcome.is_none() {
            actions.push(Action::Finish(outcome));
        }
        return (phase, rolled_back(counts.rolled_back));
    }
    if let Some(by) = paused(state) {
        return (Phase::Paused, by);
    }
    let moved = actions.len();
    actions.extend(state.pods.reverts().cloned().map(Action::Update));
    let (allowed, step) = allowed(state);
    let reach = Reach::of(state);
    let backs_off = begin(state, allowed, &reach, actions);
    if let Some((number, pods)) = step
        && reach.done >= pods
    {
        return step_is_done(state, number, actions, due);
    }
    if actions.len() > moved || counts.in_flight() > 0 || backs_off {
        return (Phase::Progressing, String::new());
    }
    if counts.stuck > 0 {
        return (Phase::Held, String::new());
    }
    if reach.begun >= partitioned(state) {
        return (Phase::Partitioned, String::new());
    }
    if reach.begun >= allowed {
        return (Phase::Held, "pods of the canary were resized back".to_owned());
    }
    if max_unavailable(state) == 0 {
        return (Phase::Held, NO_RESTARTS.to_owned());
    }
    (Phase::Held, "as many pods are unavailable as may be".to_owned())
}

const NO_RESTARTS: &str = "pods have to be restarted, and maxUnavailable is 0";

fn rolled_back(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "1 pod was resized back".to_owned(),
        _ => format!("{count} pods were resized back"),
    }
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
fn answer_failures(state: &State<'_>, actions: &mut Vec<Action>) -> Option<(Phase, String)> {
    let on_failure = on_failure(state);
    if on_failure == OnFailure::Hold {
        return None;
    }
    let mut budget = unavailable_budget(state);
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
                if take(&mut budget, restarts && view.available) {
                    let failure = Failure::last(reason, message.to_owned(), state.now);
                    actions.push(Action::RollBack(pod.to_owned(), failure));
                }
            }
            (OnFailure::RecreatePod, _) if take(&mut budget, view.available) => {
                actions.push(Action::Evict(pod.to_owned()));
            }
            _ => {}
        }
    }
    None
}

/// Takes one from a budget if it is needed. Returns false if the budget is spent.
fn take(budget: &mut usize, needed: bool) -> bool {
    if !needed {
        return true;
    }
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or(0);
    left.is_some()
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

/// The pods that a partition leaves to be resized.
struct Reach<'a> {
    /// Their names; none if they may be any.
    only: Option<BTreeSet<&'a str>>,
    /// How many of them have begun their resize, or follow the revision.
    begun: usize,
    /// How many of them follow the revision.
    done: usize,
}

impl<'a> Reach<'a> {
    /// All pods: no partition counts.
    fn all(state: &State<'a>) -> Self {
        Self { only: None, begun: state.pods.begun(), done: state.pods.counts().done }
    }

    fn of(state: &State<'a>) -> Self {
        let count = partitioned(state);
        if !state.is_ordered || count == state.pods.len() {
            return Self::all(state);
        }
        let mut by_order: Vec<_> = state.pods.iter().map(|(name, view)| (view.order, name, view)).collect();
        by_order.sort_unstable_by_key(|(order, name, _)| (*order, *name));
        by_order.truncate(count);
        let number = |is: fn(&PodView) -> bool| by_order.iter().filter(|(_, _, view)| is(view)).count();
        Self {
            begun: number(PodView::has_begun),
            done: number(|view| matches!(view.judgement.state, PodState::Done)),
            only: Some(by_order.iter().map(|(_, name, _)| *name).collect()),
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }
}

/// How many pods may have begun their resize in all, and the number and size of the canary step that limits it.
fn allowed(state: &State<'_>) -> (usize, Option<(usize, usize)>) {
    let (total, partitioned) = (state.pods.len(), partitioned(state));
    match state.settings.steps.get(state.record.step) {
        Some(step) => {
            let pods = step.pods.rounded_up(total).clamp(1, partitioned.max(1));
            (pods.min(partitioned), Some((state.record.step, pods)))
        }
        None => (partitioned, None),
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
fn begin(state: &State<'_>, allowed: usize, reach: &Reach<'_>, actions: &mut Vec<Action>) -> bool {
    let total = state.pods.len();
    let concurrent = state.settings.max_concurrent.rounded_up(total).max(1);
    let mut plain = concurrent.saturating_sub(state.pods.plain_in_flight());
    let mut restarting = unavailable_budget(state);
    let mut left = allowed.saturating_sub(reach.begun);
    // The nodes that a pod of this decision is resized on.
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    // With `Hold`, a refused resize, which counts as begun, is sent again.
    let retries = state.record.heading != Heading::Back && on_failure(state) == OnFailure::Hold;
    let mut backs_off = false;
    for (restarts, budget) in [(false, &mut plain), (true, &mut restarting)] {
        for again in [false, true] {
            for name in state.pods.candidates(restarts, again) {
                if *budget == 0 || !again && left == 0 {
                    break;
                }
                let Some(view) = state.pods.get(name).filter(|_| reach.contains(name)) else { continue };
                let is_refused = matches!(view.judgement.state, PodState::Stuck { .. });
                if is_refused && !retries || view.grows && taken.contains(view.node.as_str()) {
                    continue;
                }
                if state.backing_off.contains(name) {
                    backs_off = true;
                    continue;
                }
                if !view.node.is_empty() {
                    taken.insert(&view.node);
                }
                *budget -= 1;
                left -= usize::from(!again);
                actions.push(Action::Update(name.clone()));
            }
        }
    }
    backs_off
}

/// How many pods may become unavailable now.
fn unavailable_budget(state: &State<'_>) -> usize {
    let missing = state.replicas.saturating_sub(state.pods.len()).max(state.others_unavailable);
    max_unavailable(state).saturating_sub(state.pods.disturbed().saturating_add(missing))
}

/// How many pods may be unavailable at a time: by the policy, or else by the workload. If that is 0, no pod is
/// restarted.
fn max_unavailable(state: &State<'_>) -> usize {
    let of_policy = state.settings.max_unavailable.map(|share| share.rounded_down_to_one(state.replicas));
    of_policy.unwrap_or(state.max_unavailable)
}

/// Resizes all pods back. A failure here is not retried.
fn back(state: &State<'_>, actions: &mut Vec<Action>) -> (Phase, String) {
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
    let backs_off = begin(state, usize::MAX, &Reach::all(state), actions);
    if actions.len() == moved && counts.in_flight() == 0 && !backs_off {
        let nothing =
            if max_unavailable(state) == 0 { NO_RESTARTS } else { "as many pods are unavailable as may be" };
        return (Phase::Held, nothing.to_owned());
    }
    (Phase::RollingBack, why)
}
