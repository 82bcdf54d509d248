//! The pods of one workload, indexed by the next action for each.
//!
//! Each change of a pod updates the index, and a decision reads only the first entries of its queues: it does not iterate over
//! all pods because one of them changed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plumb_resize::status::{self, Stage};

use super::change::{Change, Vertical};
use super::failure::StuckReason;
use super::hooks::Hooks;
use super::pod_state::{Evaluation, NextWrite, PodPolicy, PodState, evaluate_recorded, ready_since};
use super::record::PodRecord;

/// The state of one pod.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct PodView {
    /// The node that it runs on; empty if none.
    pub node: String,
    /// Its position among the pods that wait for a resize: lower first, and by name among equals.
    pub order: u64,
    /// Its state, and the next write.
    pub evaluation: Evaluation,
    /// Whether it is available.
    pub available: bool,
    /// When it became ready, or unready, as far as its status has it: since then it is expected to become available.
    pub readiness_changed_at: Option<Timestamp>,
    /// Whether its containers have not started: it waits for a node, for an image, for a volume.
    pub starting: bool,
    /// Whether the scheduler has found no node for it.
    pub unschedulable: bool,
    /// Whether the resize that is next, or under way, makes the pod request more of its node.
    pub grows: bool,
    /// Whether that resize restarts a container, or makes the pod unavailable in another way.
    pub restarts: bool,
    /// Whether an intent for this revision is recorded on it.
    pub intended: bool,
    /// Whether that intent changes its resources: the pod was neither created with them nor resized by another client.
    pub moved: bool,
    /// Whether the pod was not ready when the intent was recorded.
    pub unready_before: bool,
    /// Whether a resize that this one superseded may be why the pod was not ready then.
    pub unready_by_resize: bool,
    /// Whether a resize to another revision was sent that the node does not apply, and a new template has superseded it.
    pub overtaken: bool,
    /// Whether the node may be about to apply a resize to another revision, which a new template has superseded. After the
    /// deadline of that resize it is not expected to any more, unless it restarts a container.
    pub superseding: bool,
    /// Whether the way back restarts a container, if there is a way back.
    pub back_restarts: Option<bool>,
}

impl PodView {
    /// The view of a pod that is neither terminating nor has ended.
    pub fn of(pod: &Pod, hooks: &impl Hooks, policy: &PodPolicy, order: u64, now: Timestamp) -> Self {
        let recorded = PodRecord::read(pod);
        let mut evaluation = evaluate_recorded(pod, recorded.as_ref(), hooks, policy, now);
        let (record, other) = match recorded {
            Some(record) if record.revision == hooks.revision() => (Some(record), None),
            other => (None, other),
        };
        let (available, available_at) = availability(pod, policy.min_ready, now);
        evaluation.due = evaluation.due.into_iter().chain(available_at).min();
        let next = match &evaluation.next {
            NextWrite::Begin(Some(change)) | NextWrite::Send(change) => Some(&**change),
            _ => None,
        };
        let of = |of_change: fn(&Vertical) -> bool, of_record: fn(&PodRecord) -> bool| {
            next.map(of_change).or(record.as_ref().map(of_record)).unwrap_or(false)
        };
        let back_restarts = match (&evaluation.state, &record) {
            (PodState::Stuck { .. }, Some(record)) => match hooks.change(pod, &record.previous) {
                Change::Vertical(change) => Some(change.restarts),
                Change::None | Change::Other(_) => Some(false),
            },
            _ => None,
        };
        let other = other.filter(|record| record.finished_at.is_none() && record.applied_at.is_none());
        let pending = other.as_ref().filter(|record| may_be_applied(pod, record));
        let expires_at =
            pending.map(|record| record.started_at.checked_add(policy.deadline).unwrap_or(Timestamp::MAX));
        let expires_at = expires_at.filter(|at| *at > now);
        evaluation.due = evaluation.due.into_iter().chain(expires_at).min();
        let may_restart = other.as_ref().is_some_and(|record| record.restarting) && is_unapplied(pod);
        Self {
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            order,
            available,
            readiness_changed_at: readiness_changed_at(pod),
            starting: pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending"),
            unschedulable: !available && is_unschedulable(pod),
            grows: of(|change| change.grows, |record| record.growing),
            restarts: of(|change| change.restarts, |record| record.restarting),
            intended: record.is_some(),
            moved: record.as_ref().is_some_and(PodRecord::changes_resources),
            unready_before: record.as_ref().is_some_and(|record| record.unready),
            unready_by_resize: record.as_ref().is_some_and(|record| record.unready_by_resize),
            overtaken: other.is_some() && pending.is_none(),
            superseding: expires_at.is_some() || may_restart,
            back_restarts,
            evaluation,
        }
    }

    /// Whether its resize has begun, or it follows the revision.
    pub(super) fn has_begun(&self) -> bool {
        self.intended || matches!(self.evaluation.state, PodState::Done)
    }

    /// Whether its resize has changed its resources, and it is done.
    pub(super) fn has_moved(&self) -> bool {
        self.moved && matches!(self.evaluation.state, PodState::Done)
    }

    /// Whether the node defers its resize, which restarts no container. One that restarts a container does so at a time that
    /// the controller does not choose, and counts as unavailable until then.
    pub(super) fn is_deferred(&self) -> bool {
        let obstacle = self.evaluation.obstacle.as_ref();
        !self.restarts
            && obstacle.is_some_and(|(reason, _)| *reason == StuckReason::Deferred)
            && matches!(self.evaluation.state, PodState::Resizing { .. })
    }

    /// Whether the deadline of its resize has passed, and the node may still apply it.
    fn is_overdue(&self) -> bool {
        is_stuck(&self.evaluation.state) && self.evaluation.obstacle.is_some()
    }

    /// Whether its resize, which restarts no container, waits beside the others for its node: it is deferred, or overdue.
    pub(super) fn waits_beside(&self) -> bool {
        self.is_deferred() || self.is_overdue() && !self.restarts
    }

    /// Whether the pod is unavailable, or its resize may make it so: it counts against `maxUnavailable`. So does one whose node
    /// may still restart a container after the deadline: a job on the node ends, and all such pods restart at once.
    pub fn is_exposed(&self) -> bool {
        !self.available
            || self.evaluation.state.is_in_flight() && !self.is_deferred()
            || self.is_overdue() && self.restarts
            || self.superseding
    }

    /// Whether the pod is done, or was resized back, and is unavailable as it was before the rollout. It may never become available,
    /// and resizes of other pods that restart no container do not wait for it.
    pub fn is_unavailable_as_before(&self) -> bool {
        let is_settled = matches!(self.evaluation.state, PodState::Done | PodState::RolledBack { .. });
        !self.available && !self.unschedulable && is_settled && self.unready_before && !self.unready_by_resize
    }

    /// Whether the pod has the resources to which a rollback returns it, and is unavailable with these, too: the resizes of other
    /// pods back to theirs, if they restart no container, do not wait for it.
    pub fn is_unavailable_after_rollback(&self) -> bool {
        !self.available
            && !self.unschedulable
            && match self.evaluation.state {
                PodState::RolledBack { .. } => true,
                PodState::Done => self.unready_before,
                _ => false,
            }
    }

    /// Whether a resize of it counts against `maxConcurrent`. A pod that waits for its node, or was not ready before, does not:
    /// it would take the place of pods that can be resized.
    fn is_counted(&self) -> bool {
        let waits = self.is_deferred() || self.starting || self.unready_before && !self.available;
        self.evaluation.state.is_in_flight() && !self.restarts && !waits
    }

    /// Whether its resize is not applied yet.
    fn is_unapplied(&self) -> bool {
        matches!(self.evaluation.state, PodState::Resizing { .. } | PodState::RollingBack)
            && !self.evaluation.applied
    }

    fn class(&self) -> Class {
        match (&self.evaluation.next, &self.evaluation.state) {
            // The node has accepted these resources already.
            (NextWrite::MarkApplied | NextWrite::Confirm | NextWrite::Begin(None), _)
            | (NextWrite::Send(_), PodState::Resizing { .. } | PodState::RollingBack) => Class::Write,
            (NextWrite::Begin(Some(_)), _) if self.is_revert() => Class::Revert,
            (NextWrite::Begin(Some(_)) | NextWrite::Send(_), _) => {
                let cost = match (self.is_exposed(), self.restarts) {
                    (true, _) => Cost::None,
                    (false, false) => Cost::Concurrent,
                    (false, true) => Cost::Unavailable,
                };
                Class::Candidate { cost, again: self.intended }
            }
            (NextWrite::Nothing, _) => Class::None,
        }
    }

    /// Whether the next resize takes back one that the node has not applied: nothing changes for the containers.
    fn is_revert(&self) -> bool {
        self.overtaken && !self.grows && !self.restarts
    }
}

/// Whether the node may be about to apply the resize of a record: the API server has accepted it, and the node has not answered
/// that it does not fit.
fn may_be_applied(pod: &Pod, record: &PodRecord) -> bool {
    record.failure.as_ref().is_none_or(|failure| failure.reason == StuckReason::DeadlineExceeded)
        && !matches!(
            status::read(pod).map(|reading| reading.stage),
            Ok(Stage::Deferred { .. } | Stage::Infeasible { .. })
        )
}

/// Whether the node has neither applied the resources in the spec of a pod nor answered that it cannot ever do so.
fn is_unapplied(pod: &Pod) -> bool {
    let stage = status::read(pod).map(|reading| reading.stage);
    !matches!(stage, Ok(Stage::Applied | Stage::Infeasible { .. }))
}

/// Whether a pod has been ready for `min_ready`, and if not yet, when it will have been.
fn availability(pod: &Pod, min_ready: SignedDuration, now: Timestamp) -> (bool, Option<Timestamp>) {
    let Some(since) = ready_since(pod) else { return (false, None) };
    let at = since.checked_add(min_ready).ok();
    match at.filter(|at| min_ready > SignedDuration::ZERO && *at > now) {
        Some(at) => (false, Some(at)),
        None => (true, None),
    }
}

/// When a pod became ready, or unready: when it was created, if its node has reported nothing yet.
pub(crate) fn readiness_changed_at(pod: &Pod) -> Option<Timestamp> {
    let ready = pod.status.as_ref().and_then(|status| status::condition(status, "Ready"));
    let changed_at = ready.and_then(|ready| ready.last_transition_time.as_ref());
    changed_at.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Whether the scheduler has found no node for a pod.
pub(crate) fn is_unschedulable(pod: &Pod) -> bool {
    let scheduled = pod.status.as_ref().and_then(|status| status::condition(status, "PodScheduled"));
    scheduled.is_some_and(|scheduled| scheduled.status == "False")
}

/// The kind of the next action for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    None,
    /// A write that is not paced.
    Write,
    /// A resize that is not paced: back from, or out of, a resize to another revision.
    Revert,
    /// A resize when the pace allows it.
    Candidate {
        cost: Cost,
        /// Whether it was begun before: the API server refused it, or another client has resized the pod since.
        again: bool,
    },
}

/// What a resize counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// The pod is unavailable, or another resize of it is under way: it cannot become worse.
    None,
    /// It restarts no container: `maxConcurrent`, and `maxUnavailable` in case that it makes the pod unready all the same.
    Concurrent,
    /// It restarts a container: `maxUnavailable`.
    Unavailable,
}

impl Cost {
    /// All of them, in the order in which resizes begin.
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Concurrent, Self::Unavailable];
}

type Name = String;
type Position = (u64, Name);

/// Pods that wait for a resize.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Those that do not grow.
    shrinks: BTreeSet<Position>,
    /// Those that grow, by node.
    growths: BTreeMap<String, BTreeSet<Position>>,
    /// The first growing pod of each node.
    heads: BTreeMap<Position, String>,
}

impl Queue {
    fn insert(&mut self, view: &PodView, at: Position) {
        if !view.grows {
            self.shrinks.insert(at);
            return;
        }
        // Pods without a node do not compete for one.
        let node = if view.node.is_empty() { format!("\u{0}{}", at.1) } else { view.node.clone() };
        let waiting = self.growths.entry(node.clone()).or_default();
        if let Some(head) = waiting.first() {
            self.heads.remove(head);
        }
        waiting.insert(at);
        if let Some(head) = waiting.first() {
            self.heads.insert(head.clone(), node);
        }
    }

    fn remove(&mut self, view: &PodView, at: &Position) {
        if !view.grows {
            self.shrinks.remove(at);
            return;
        }
        let node = if view.node.is_empty() { format!("\u{0}{}", at.1) } else { view.node.clone() };
        let Some(waiting) = self.growths.get_mut(&node) else { return };
        if let Some(head) = waiting.first() {
            self.heads.remove(head);
        }
        waiting.remove(at);
        match waiting.first() {
            Some(head) => _ = self.heads.insert(head.clone(), node),
            None => _ = self.growths.remove(&node),
        }
    }
}

/// How many pods are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All.
    pub total: usize,
    /// Those that have other resources and wait.
    pub pending: usize,
    /// Those whose resize is under way, also if the node defers it.
    pub resizing: usize,
    /// Those of `resizing` whose resize the node defers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deferred: usize,
    /// Those that are watched after their resize.
    pub soaking: usize,
    /// Those that have the resources of the revision.
    pub done: usize,
    /// Those whose resize has failed.
    pub stuck: usize,
    /// Those that are resized back.
    pub rolling_back: usize,
    /// Those that were resized back.
    pub rolled_back: usize,
    /// Those that could not be resized back.
    pub rollback_failed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Counts {
    fn of(&mut self, state: &PodState) -> &mut usize {
        match state {
            PodState::Pending => &mut self.pending,
            PodState::Resizing { .. } => &mut self.resizing,
            PodState::Soaking { .. } => &mut self.soaking,
            PodState::Done => &mut self.done,
            PodState::Stuck { .. } => &mut self.stuck,
            PodState::RollingBack => &mut self.rolling_back,
            PodState::RolledBack { .. } => &mut self.rolled_back,
            PodState::RollbackFailed { .. } => &mut self.rollback_failed,
        }
    }

    /// Those whose resize is under way, or that are soaking.
    pub const fn in_flight(&self) -> usize {
        self.resizing + self.soaking + self.rolling_back
    }
}

/// The pods of one workload.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    views: BTreeMap<Name, PodView>,
    counts: Counts,
    /// Those with a write that is not paced.
    writes: BTreeSet<Name>,
    reverts: BTreeSet<Position>,
    /// Those that wait for a resize, by its cost and whether it was begun before.
    queues: [[Queue; 2]; 3],
    stuck: BTreeSet<Name>,
    /// Those whose resize the node defers or fails to actuate, before the deadline.
    waiting: BTreeSet<Name>,
    /// How many resizes count against `maxConcurrent`.
    concurrent: usize,
    /// How many resizes without a restart wait for their nodes, deferred or overdue.
    beside: usize,
    /// How many pods are unschedulable.
    unschedulable: usize,
    /// How many pods are unavailable, or may become so by a resize that is under way.
    exposed: usize,
    /// How many pods are settled and unavailable as they were before the rollout.
    unavailable_as_before: usize,
    /// How many pods are settled and unavailable, if this is a rollback.
    unavailable_after_rollback: usize,
    /// Those that are not available.
    unavailable: BTreeSet<Name>,
    /// How many have an intent for this revision, or follow it.
    begun: usize,
    /// How many have an intent that changes their resources.
    moved: usize,
    /// How many of them are done.
    moved_done: usize,
    /// How many pods grow on each node.
    growing: BTreeMap<String, usize>,
    /// How many pods shrink on each node.
    shrinking: BTreeMap<String, usize>,
    timers: BTreeSet<(Timestamp, Name)>,
}

impl Pods {
    /// The view of a pod.
    pub fn get(&self, name: &str) -> Option<&PodView> {
        self.views.get(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PodView)> {
        self.views.iter().map(|(name, view)| (name.as_str(), view))
    }

    /// How many are in each state.
    pub fn counts(&self) -> Counts {
        Counts { total: self.views.len(), ..self.counts }
    }

    /// Those whose resize has failed, by name, and why.
    pub fn stuck(&self) -> impl Iterator<Item = (&str, StuckReason, &str)> {
        self.stuck.iter().filter_map(|name| match &self.views.get(name)?.evaluation.state {
            PodState::Stuck { reason, message } | PodState::RollbackFailed { reason, message } => {
                Some((name.as_str(), *reason, message.as_str()))
            }
            _ => None,
        })
    }

    /// Those whose resize the node defers or fails to actuate, before the deadline that makes them stuck, by name, and why.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, StuckReason, &str)> {
        self.waiting.iter().filter_map(|name| {
            let (reason, message) = self.views.get(name)?.evaluation.obstacle.as_ref()?;
            Some((name.as_str(), *reason, message.as_str()))
        })
    }

    /// Adds a pod, or replaces its state.
    pub fn set(&mut self, name: &str, view: PodView) {
        self.remove(name);
        self.count(name, &view, true);
        self.views.insert(name.to_owned(), view);
    }

    /// Removes a pod: it is terminating or gone.
    pub fn remove(&mut self, name: &str) {
        if let Some(view) = self.views.remove(name) {
            self.count(name, &view, false);
        }
    }

    /// The next time at which the state of a pod may change by itself.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The pods that are due to be evaluated again.
    pub fn due(&self, now: Timestamp) -> Vec<Name> {
        self.timers.iter().take_while(|(due, _)| *due <= now).map(|(_, name)| name.clone()).collect()
    }

    fn count(&mut self, name: &str, view: &PodView, added: bool) {
        let adjust = |count: &mut usize| *count = if added { *count + 1 } else { count.saturating_sub(1) };
        let state = &view.evaluation.state;
        adjust(self.counts.of(state));
        if view.has_begun() {
            adjust(&mut self.begun);
        }
        let counts = [
            (view.moved, &mut self.moved),
            (view.has_moved(), &mut self.moved_done),
            (view.is_counted(), &mut self.concurrent),
            (view.waits_beside(), &mut self.beside),
            (view.unschedulable, &mut self.unschedulable),
            (view.is_exposed(), &mut self.exposed),
            (view.is_unavailable_as_before(), &mut self.unavailable_as_before),
            (view.is_unavailable_after_rollback(), &mut self.unavailable_after_rollback),
        ];
        for (is, count) in counts {
            if is {
                adjust(count);
            }
        }
        toggle(&mut self.unavailable, name.to_owned(), added && !view.available);
        if view.is_unapplied() && !view.node.is_empty() {
            let by_node = if view.grows { &mut self.growing } else { &mut self.shrinking };
            let count = by_node.entry(view.node.clone()).or_default();
            adjust(count);
            if *count == 0 {
                by_node.remove(&view.node);
            }
        }
        let position = || (view.order, name.to_owned());
        toggle(&mut self.stuck, name.to_owned(), added && is_stuck(state));
        let obstacle = view.evaluation.obstacle.as_ref();
        toggle(&mut self.waiting, name.to_owned(), added && obstacle.is_some() && !is_stuck(state));
        let is_deferred = obstacle.is_some_and(|(reason, _)| *reason == StuckReason::Deferred);
        if is_deferred && matches!(state, PodState::Resizing { .. }) {
            adjust(&mut self.counts.deferred);
        }
        match view.class() {
            Class::None => {}
            Class::Write => toggle(&mut self.writes, name.to_owned(), added),
            Class::Revert => toggle(&mut self.reverts, position(), added),
            Class::Candidate { cost, again } => {
                let queue = &mut self.queues[cost as usize][usize::from(again)];
                if added {
                    queue.insert(view, position());
                } else {
                    queue.remove(view, &position());
                }
            }
        }
        if let Some(due) = view.evaluation.due {
            toggle(&mut self.timers, (due, name.to_owned()), added);
        }
    }
}

fn is_stuck(state: &PodState) -> bool {
    matches!(state, PodState::Stuck { .. } | PodState::RollbackFailed { .. })
}

fn toggle<T: Ord>(set: &mut BTreeSet<T>, item: T, present: bool) {
    if present {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

/// The input of decisions.
impl Pods {
    pub(super) fn writes(&self) -> impl Iterator<Item = &Name> {
        self.writes.iter()
    }

    pub(super) fn reverts(&self) -> impl Iterator<Item = &Name> {
        self.reverts.iter().map(|(_, name)| name)
    }

    pub(super) fn concurrent(&self) -> usize {
        self.concurrent
    }

    pub(super) fn waiting_beside(&self) -> usize {
        self.beside
    }

    pub(super) fn unschedulable(&self) -> usize {
        self.unschedulable
    }

    pub(super) fn begun(&self) -> usize {
        self.begun
    }

    pub(super) fn moved(&self) -> usize {
        self.moved
    }

    pub(super) fn moved_done(&self) -> usize {
        self.moved_done
    }

    pub(super) fn exposed(&self) -> usize {
        self.exposed
    }

    /// How many of the exposed pods resizes without a restart do not wait for.
    pub(super) fn not_awaited(&self, is_rollback: bool) -> usize {
        if is_rollback { self.unavailable_after_rollback } else { self.unavailable_as_before }
    }

    /// The pods that are not available, by name.
    pub(super) fn unavailable(&self) -> impl ExactSizeIterator<Item = &Name> {
        self.unavailable.iter()
    }

    /// The pods that can be resized next, at this cost, for the first time or again: those that shrink, then on each node that
    /// no other pod of the workload is being resized on the first one that grows.
    pub(super) fn candidates(&self, cost: Cost, again: bool) -> impl Iterator<Item = &Name> {
        let queue = &self.queues[cost as usize][usize::from(again)];
        let free = |node: &String| !self.growing.contains_key(node) && !self.shrinking.contains_key(node);
        let growths = queue.heads.iter().filter(move |(_, node)| free(node)).map(|((_, name), _)| name);
        queue.shrinks.iter().map(|(_, name)| name).chain(growths)
    }
}
