//! Which pods are updated.
//!
//! ```text
//!   pods of old revisions ──▶ how each follows ┬─ recreate, new images ──▶ maxUnavailable ┐
//!                                              ├─ metadata alone       ──▶ at once        ├─▶ within the partition
//!                                              └─ a resize             ──▶ the engine     ┘
//! ```
//!
//! A pod whose write failed is left out until its backoff is over, so that it does not block others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use serde_json::{Value, json};

use super::action::{Action, Decision, Note, Purpose};
use super::batches::FirstBatch;
use super::counts::Counts;
use super::dry_run::Verdict;
use super::hooks::PodHooks;
use super::in_place::{InPlace, NewCondition, condition_patch, has_gate, unready_since};
use super::lifecycle::{self, State as Stage};
use super::record;
use super::scope::{Kind, Scope, is_under_way};
use super::view::{PodView, is_postponed};
use super::{keys, order};
use crate::api::{OnFailure, Share};
use crate::engine::{
    self, Evaluation, Heading, NextWrite, PodState, Pods, RolloutOutcome, RolloutRecord, Vertical, plan,
};

/// The event about pods that are recreated because they cannot be updated in place, for these reasons. None if they would be
/// recreated anyway.
fn not_in_place(reasons: &[String]) -> Option<Note> {
    let message = || format!("pods are recreated and not updated in place: {}", reasons.join("; "));
    (!reasons.is_empty()).then(|| Note {
        warning: false,
        reason: "InPlaceUpdateNotPossible",
        message: message(),
    })
}

/// The decision about updates.
#[derive(Default)]
pub(super) struct Updated {
    /// The pods that are unready before their update, by uid.
    pub(super) preparing: BTreeSet<String>,
    /// Why the API server would refuse a pod of the template.
    pub(super) refused: Option<String>,
    /// Why a quota would refuse the pod that takes the place of another.
    pub(super) over_quota: Option<String>,
    /// Why the API server did not answer whether it would create a pod of the template.
    pub(super) unanswered: Option<String>,
    /// Why pods do not follow.
    pub(super) stuck: Vec<String>,
    /// Whether the state of the resizes is that of a rollout that is recorded.
    pub(super) reports: bool,
    /// The reported state of the resizes.
    pub(super) resizes: Option<engine::RolloutStatus>,
}

/// A pod that is to be updated.
struct Candidate<'a> {
    view: &'a PodView,
    kind: Kind,
}

/// The pods with updates other than a resize.
struct Waiting {
    count: usize,
    /// How many available pods of these this decision makes unavailable.
    disturbed: usize,
}

/// The pods that the engine's actions name.
struct ByName<'a> {
    candidates: BTreeMap<&'a str, &'a Candidate<'a>>,
    views: BTreeMap<&'a str, &'a PodView>,
}

impl Scope<'_> {
    /// Decides which pods are updated, each of which that has an old revision in its own way.
    pub(super) fn update(
        &self,
        kinds: Vec<Option<Kind>>,
        counts: &Counts,
        decision: &mut Decision,
    ) -> Updated {
        let mut updated = Updated::default();
        let is_behind =
            self.views.iter().zip(&kinds).any(|(view, kind)| is_candidate(view) && kind.is_some());
        let mut kinds = kinds;
        match self.context.verdict {
            _ if !is_behind => {}
            Some(Verdict::Admitted | Verdict::OverQuota(_)) => {}
            // No pod is updated to a template that the API server refuses. Updates that are under way go on.
            Some(Verdict::Refused(message)) => {
                updated.refused = Some(message.clone());
                kinds.fill(None);
            }
            None => {
                decision.unchecked = true;
                updated.unanswered.clone_from(&self.context.failures.dry_run);
                kinds.fill(None);
            }
        }
        let mut candidates = Vec::new();
        for (view, kind) in self.views.iter().zip(kinds).filter(|(view, _)| is_candidate(view)) {
            let Some(kind) = kind else { continue };
            let retry = self.backoff(view);
            match kind {
                Kind::Impossible(reasons) => {
                    updated.stuck.push(format!(
                        "{}: InPlaceOnly, but it cannot be updated in place: {}",
                        view.name(),
                        reasons.join("; ")
                    ));
                }
                _ if retry.is_some() => decision.wake_at(retry),
                kind => candidates.push(Candidate { view, kind }),
            }
        }
        let candidates = self.in_order(candidates);
        let (resizes, others): (Vec<Candidate<'_>>, Vec<Candidate<'_>>) =
            candidates.into_iter().partition(|candidate| matches!(candidate.kind, Kind::Resize(..)));
        let begins = !self.settings.on_delete && !self.settings.paused;
        let disturbed = if begins { self.others(&others, counts, decision, &mut updated) } else { 0 };
        let waiting = Waiting { count: others.len(), disturbed };
        self.resizes(&resizes, &waiting, begins, decision, &mut updated);
        updated
    }

    fn in_order<'a>(&self, candidates: Vec<Candidate<'a>>) -> Vec<Candidate<'a>> {
        let mut sorted: Vec<Arc<Pod>> =
            candidates.iter().map(|candidate| candidate.view.pod.clone()).collect();
        let all: Vec<Arc<Pod>> = self.views.iter().map(|view| view.pod.clone()).collect();
        order::for_update(&mut sorted, &all, &self.settings.priority, &self.settings.scatter);
        let position = |pod: &Arc<Pod>| Arc::as_ptr(pod) as usize;
        let positions: BTreeMap<usize, usize> =
            sorted.iter().enumerate().map(|(i, pod)| (position(pod), i)).collect();
        let mut candidates = candidates;
        candidates.sort_by_key(|candidate| positions.get(&position(&candidate.view.pod)).copied());
        candidates
    }

    /// Updates pods that are recreated or restarted as far as pods may be unavailable, and those whose metadata changes. Returns
    /// how many pods become unavailable by that.
    fn others(
        &self,
        candidates: &[Candidate<'_>],
        counts: &Counts,
        decision: &mut Decision,
        updated: &mut Updated,
    ) -> usize {
        let (mut left, mut disturbed) = (counts.update, 0);
        let mut recreated = 0;
        let budget = counts.update_max_unavailable;
        let count = |is: &dyn Fn(&PodView) -> bool| {
            i32::try_from(self.views.iter().filter(|view| is(view)).count()).unwrap_or(i32::MAX)
        };
        // A pod that is being resized may become unready.
        let is_exposed = |view: &PodView| !view.is_available || view.is_updated && is_being_resized(view);
        let mut unavailable = count(&is_exposed);
        let mut unavailable_new = count(&|view| view.is_updated && is_exposed(view));
        for Candidate { view, kind } in candidates {
            if left <= 0 {
                break;
            }
            if matches!(kind, Kind::Recreate(_)) && !self.may_recreate(view, recreated, updated) {
                continue;
            }
            if self.is_disruptive(view, kind) {
                // A lack of pods must not stop the update of a pod that does not serve anyway (OpenKruise's issue 2385).
                let limit = if view.is_available { budget } else { budget.max(1) };
                if unavailable_new >= limit || view.is_available && unavailable >= budget {
                    continue;
                }
                unavailable += i32::from(view.is_available);
                unavailable_new += 1;
                disturbed += usize::from(view.is_available);
            }
            left -= 1;
            let action = match kind {
                Kind::Recreate(reasons) => {
                    recreated += 1;
                    decision.say(not_in_place(reasons));
                    Some(recreate(view))
                }
                Kind::Restart(in_place, change) => {
                    self.begin(view, in_place, change.clone(), true, decision, updated)
                }
                Kind::Metadata(in_place) => self.begin(view, in_place, None, false, decision, updated),
                Kind::Resize(..) | Kind::Impossible(_) => None,
            };
            decision.actions.extend(action);
        }
        disturbed
    }

    /// Whether a pod may be deleted for an update, and not only because others are. While pods cannot be created, its replacement
    /// could not be either. Where a further pod exceeds a quota, pods are recreated one after the other, each only if the quota admits
    /// its replacement.
    fn may_recreate(&self, view: &PodView, recreated: usize, updated: &mut Updated) -> bool {
        if self.context.failures.scale.is_some() {
            return false;
        }
        if !matches!(self.context.verdict, Some(Verdict::OverQuota(_))) {
            return true;
        }
        let is_missing = i32::try_from(self.views.len()).is_ok_and(|there| there < self.settings.replicas);
        let is_leaving = |view: &PodView| view.is_specified_delete || view.state == Stage::PreparingDelete;
        if is_missing || recreated > 0 || self.views.iter().any(is_leaving) {
            return false;
        }
        let refusal = self.quota_refusal(&self.template, Some(&view.pod));
        let may = refusal.is_none();
        updated.over_quota = updated.over_quota.take().or(refusal);
        may
    }

    /// Recreates a pod that is stuck, by the policy. Its replacement has to be admitted as with any other update.
    fn evict(&self, view: &PodView, decision: &mut Decision, updated: &mut Updated) {
        let recreated = decision.actions.iter().filter(|action| is_recreation(action)).count();
        match self.context.verdict {
            None => {
                decision.unchecked = true;
                updated.unanswered.clone_from(&self.context.failures.dry_run);
            }
            Some(Verdict::Refused(message)) => updated.refused = Some(message.clone()),
            Some(Verdict::Admitted | Verdict::OverQuota(_)) => {
                if self.may_recreate(view, recreated, updated) {
                    decision.actions.push(recreate(view));
                }
            }
        }
    }

    /// Begins an in-place update, as soon as no hook holds the pod and its grace period is over.
    fn begin(
        &self,
        view: &PodView,
        in_place: &InPlace,
        change: Option<Box<Vertical>>,
        restarts: bool,
        decision: &mut Decision,
        updated: &mut Updated,
    ) -> Option<Action> {
        let (pod, now) = (&view.pod, self.context.now);
        let hook = self.settings.lifecycle.in_place_update.as_ref();
        match (view.state, hook) {
            (Stage::Normal | Stage::PreparingNormal, Some(hook)) if hook.holds(pod) => {
                return Some(self.enter(view, Stage::PreparingUpdate));
            }
            (Stage::Updated, Some(hook)) => {
                let patch = json!({ "metadata": lifecycle::hold_again(hook, pod, now) });
                return Some(Action::PatchPod { pod: pod.clone(), patch, purpose: Purpose::Lifecycle });
            }
            (Stage::PreparingUpdate, Some(hook)) if hook.holds(pod) => return None,
            _ => {}
        }
        let mut unready = None;
        if restarts && has_gate(pod, keys::UPDATE_READY) {
            updated.preparing.insert(pod.metadata.uid.clone().unwrap_or_default());
            let grace = SignedDuration::from_secs(self.settings.grace_period_seconds.into());
            let since = unready_since(pod);
            let until = since.unwrap_or(now).checked_add(grace).unwrap_or(Timestamp::MAX);
            if since.is_none() {
                let condition = NewCondition::new(keys::UPDATE_READY, false, keys::START_UPDATE);
                let patch = condition_patch(pod, &[condition], now);
                if !grace.is_zero() {
                    decision.wake_at(Some(until));
                    return Some(Action::PatchPodStatus { pod: pod.clone(), patch });
                }
                unready = Some(patch);
            } else if until > now {
                decision.wake_at(Some(until));
                return None;
            }
        }
        let hooks = self.begin_hooks(view, in_place, change.as_deref());
        let plan = plan(pod, &NextWrite::Begin(change), &hooks, now)?;
        Some(Action::UpdatePod { pod: pod.clone(), unready, plan: Box::new(plan) })
    }

    fn begin_hooks(&self, view: &PodView, in_place: &InPlace, change: Option<&Vertical>) -> PodHooks<'_> {
        let lifecycle = Stage::Updating.patch(self.context.now);
        let FirstBatch { patch, later } = self.first_batch(view, in_place, change, lifecycle);
        PodHooks { later, ..self.hooks_to_begin(Some(patch), in_place.resizes) }
    }

    /// Resizes pods at the pace of the engine, and responds to failures by the policy.
    fn resizes(
        &self,
        candidates: &[Candidate<'_>],
        others: &Waiting,
        begins: bool,
        decision: &mut Decision,
        updated: &mut Updated,
    ) {
        let under_way = |view: &&PodView| view.is_updated && is_under_way(view);
        let stored = record::read(&self.state.set);
        if candidates.is_empty() && stored.is_none() && !self.views.iter().any(|view| under_way(&view)) {
            return;
        }
        let mut record = self.rollout_record(stored.as_ref());
        // Commands of users are about the record, so it is written with the first resize.
        let is_stored = stored.as_ref() == Some(&record);
        if !candidates.is_empty() && !is_stored {
            decision.actions.push(Action::PatchSet(record::patch(&self.state.set, &record)));
        }
        if record.heading == Heading::Recreate {
            self.recreating(&record, is_stored, decision, updated);
            return;
        }
        record.paused |= self.settings.paused;
        let policy = &self.state.policy;
        let mut pods = Pods::default();
        // The fields that are written with an intent do not matter before a pod is chosen.
        let hooks = self.hooks_to_begin(None, true);
        for (position, Candidate { view, .. }) in candidates.iter().enumerate() {
            // Those that are updated come before.
            let order = u64::try_from(position).map_or(u64::MAX, |position| position.saturating_add(1));
            let mut of_engine = engine::PodView::of(&view.pod, &hooks, &policy.pod, order, self.context.now);
            of_engine.available = view.is_available;
            of_engine.restarts |= self.is_drained(view);
            pods.set(view.name(), of_engine);
        }
        let follows = |view: &&PodView| view.is_updated || self.is_rolled_back(view);
        for view in self.views.iter().filter(|view| follows(view) && !view.is_specified_delete) {
            let of_engine = if is_under_way(view) {
                let hooks = self.hooks_under_way(view);
                engine::PodView::of(&view.pod, &hooks, &policy.pod, 0, self.context.now)
            } else {
                settled(view, self.is_rolled_back(view))
            };
            // A hook holds it once it is done.
            let is_held = is_under_way(view)
                && lifecycle::after_update(&self.settings.lifecycle, &view.pod) == Stage::Updated;
            let available = view.is_available && !is_held;
            pods.set(view.name(), engine::PodView { available, ..of_engine });
        }
        let outside = self.views.iter().filter(|view| !view.is_available && pods.get(view.name()).is_none());
        // A surge allows for as many more, as with other updates.
        let surge =
            i32::try_from(self.views.len()).unwrap_or(i32::MAX).saturating_sub(self.settings.replicas).max(0);
        let max_unavailable = self.settings.max_unavailable.saturating_add(surge);
        let waiting = i32::try_from(others.count).unwrap_or(i32::MAX);
        let stay = u32::try_from(self.settings.partition.saturating_sub(waiting)).unwrap_or(0);
        let mut settings = policy.clone();
        // The larger of both partitions.
        let of_policy = settings.partition.rounded_up(pods.len());
        settings.partition = Share::Count(stay.max(u32::try_from(of_policy).unwrap_or(u32::MAX)));
        settings.paused |= !begins;
        if settings.on_failure == OnFailure::RollbackAll && self.restored_template().is_none() {
            settings.on_failure = OnFailure::Hold;
        }
        let decided = engine::decide(&engine::State {
            pods: &pods,
            settings: &settings,
            record: &record,
            // They are no candidates.
            backing_off: &BTreeSet::new(),
            is_ordered: true,
            replicas: usize::try_from(self.settings.replicas).unwrap_or(0),
            max_unavailable: usize::try_from(max_unavailable).unwrap_or(0),
            others: self.views.len().saturating_sub(pods.len()),
            others_unavailable: outside.count().saturating_add(others.disturbed),
            missing_since: None,
            now: self.context.now,
        });
        decision.wake_at(decided.due);
        let by_name = ByName {
            candidates: candidates.iter().map(|candidate| (candidate.view.name(), candidate)).collect(),
            views: self.views.iter().map(|view| (view.name(), view)).collect(),
        };
        for action in decided.actions {
            let is_about_record = !matches!(
                action,
                engine::Action::Update(_) | engine::Action::RollBack(..) | engine::Action::Evict(_)
            );
            // The next decision has it again.
            if !is_about_record || is_stored || candidates.is_empty() {
                self.perform(action, &by_name, &record, stored.is_some(), decision, updated);
            }
        }
        updated.reports = is_stored;
        updated.resizes = Some(decided.status);
    }

    /// Reports how far the pods are recreated, and records the outcome once all are.
    fn recreating(
        &self,
        record: &RolloutRecord,
        is_stored: bool,
        decision: &mut Decision,
        updated: &mut Updated,
    ) {
        let total = self.views.len();
        let is_done = |view: &&PodView| view.is_updated && view.is_available && !is_under_way(view);
        let done = self.views.iter().filter(is_done).count();
        let is_complete =
            done == total && i32::try_from(total).is_ok_and(|total| total >= self.settings.replicas);
        let pending = self.views.iter().filter(|view| !view.is_updated).count();
        let is_recorded = record.outcome.is_some();
        if is_complete && !is_recorded {
            let record = RolloutRecord { outcome: Some(RolloutOutcome::Complete), ..record.clone() };
            decision.actions.push(Action::PatchSet(record::patch(&self.state.set, &record)));
        }
        let why = record.failure.as_ref();
        let why = why.map(|one| {
            format!("pods are recreated because {} was stuck: {}: {}", one.pod, one.reason, one.message)
        });
        let has_ended = is_complete || is_recorded;
        updated.reports = is_stored;
        updated.resizes = Some(engine::RolloutStatus {
            revision: record.revision.clone(),
            heading: Heading::Recreate,
            phase: if has_ended { engine::Phase::Complete } else { engine::Phase::Recreating },
            message: why.filter(|_| !has_ended).unwrap_or_default(),
            pods: engine::Counts {
                total,
                pending,
                done,
                resizing: total.saturating_sub(pending + done),
                ..engine::Counts::default()
            },
            stuck: Vec::new(),
            waiting: Vec::new(),
            autoscaled: Vec::new(),
        });
    }

    /// The record of the rollout, or a new one.
    fn rollout_record(&self, stored: Option<&RolloutRecord>) -> RolloutRecord {
        let update = self.revisions.update_name();
        let is_of = |record: &&RolloutRecord| match record.heading {
            Heading::Forward | Heading::Recreate => record.revision == update,
            // The template has its previous resources.
            Heading::Back => record.base == update,
        };
        stored.filter(is_of).cloned().unwrap_or_else(|| {
            let base = self.revisions.current_name().to_owned();
            // The template is again the one that all pods had last.
            let revert = base == update;
            let new =
                RolloutRecord::new(update.to_owned(), base, engine::Desired::default(), self.context.now);
            RolloutRecord { revert, ..new }
        })
    }

    /// The template with the resources of the current revision, which is where all pods go back to. None if it has them: then
    /// pods are stuck for another reason, such as an image, and there are no resources to restore.
    fn restored_template(&self) -> Option<PodTemplateSpec> {
        let template = engine::with_resources_of(&self.template, &self.current_template()?);
        (template != self.template).then_some(template)
    }

    fn perform(
        &self,
        action: engine::Action,
        by_name: &ByName<'_>,
        record: &RolloutRecord,
        is_stored: bool,
        decision: &mut Decision,
        updated: &mut Updated,
    ) {
        let now = self.context.now;
        let record = &RolloutRecord { paused: record.paused && !self.settings.paused, ..record.clone() };
        let write = match action {
            // Steps of updates that are under way are taken with all the others.
            engine::Action::Update(name) => {
                if let Some(Candidate { view, kind: Kind::Resize(in_place, change) }) =
                    by_name.candidates.get(name.as_str())
                {
                    let (change, restarts) = (Some(change.clone()), change.restarts);
                    let action = self.begin(view, in_place, change, restarts, decision, updated);
                    decision.actions.extend(action);
                }
                return;
            }
            engine::Action::RollBack(name, failure) => {
                let Some(view) = by_name.views.get(name.as_str()) else { return };
                let hooks = self.hooks_under_way(view);
                let plan = engine::plan_back(&view.pod, Some(failure), &hooks, now);
                let update = plan.map(|plan| Action::UpdatePod {
                    pod: view.pod.clone(),
                    unready: None,
                    plan: Box::new(plan),
                });
                decision.actions.extend(update);
                return;
            }
            engine::Action::Evict(name) => {
                if let Some(view) = by_name.views.get(name.as_str()) {
                    self.evict(view, decision, updated);
                }
                return;
            }
            engine::Action::RollBackAll(failure) => {
                let Some(template) = self.restored_template() else { return };
                let record =
                    RolloutRecord { heading: Heading::Back, failure: Some(failure), ..record.clone() };
                let record = RolloutRecord { base: self.revisions.current_name().to_owned(), ..record };
                let mut patch = record::patch(&self.state.set, &record);
                patch["spec"]["template"] = plumb_client::encode_template(&template);
                decision.actions.push(Action::PatchSet(patch));
                return;
            }
            engine::Action::RecreateAll(failure) => {
                Some(RolloutRecord { heading: Heading::Recreate, failure: Some(failure), ..record.clone() })
            }
            engine::Action::Choose(canaries) => Some(RolloutRecord { canaries, ..record.clone() }),
            engine::Action::StepDone => Some(RolloutRecord { step_done_at: Some(now), ..record.clone() }),
            engine::Action::NextStep => {
                Some(RolloutRecord { step: record.step + 1, step_done_at: None, ..record.clone() })
            }
            engine::Action::Finish(outcome) => {
                // Without a record there is nothing to finish.
                (is_stored && record.outcome != Some(outcome) || outcome == RolloutOutcome::RollbackFailed)
                    .then(|| RolloutRecord { outcome: Some(outcome), ..record.clone() })
            }
        };
        decision
            .actions
            .extend(write.map(|record| Action::PatchSet(record::patch(&self.state.set, &record))));
    }
}

/// Whether a pod is to be updated, as far as it is concerned.
fn is_candidate(view: &PodView) -> bool {
    !view.is_updated && !view.is_specified_delete && view.state != Stage::PreparingDelete
}

/// Whether the node may be about to apply an update of a pod.
fn is_being_resized(view: &PodView) -> bool {
    let is_refused = view.record.as_ref().is_some_and(|record| record.failure.is_some());
    is_under_way(view) && !is_refused && !is_postponed(&view.pod)
}

fn is_recreation(action: &Action) -> bool {
    matches!(action, Action::PatchPod { purpose: Purpose::Recreate, .. })
}

/// Has a pod deleted, so that another is created.
fn recreate(view: &PodView) -> Action {
    let patch: Value = json!({ "metadata": { "labels": { keys::SPECIFIED_DELETE: "true" } } });
    Action::PatchPod { pod: view.pod.clone(), patch, purpose: Purpose::Recreate }
}

/// The engine's view of a pod that follows, or was resized back from the update revision.
fn settled(view: &PodView, is_rolled_back: bool) -> engine::PodView {
    let record = view.record.as_ref().filter(|_| is_rolled_back);
    let state = match record {
        Some(record) => PodState::RolledBack { failure: record.failure.clone() },
        None => PodState::Done,
    };
    engine::PodView {
        node: String::new(),
        order: 0,
        evaluation: Evaluation { state, next: NextWrite::Nothing, obstacle: None, applied: true, due: None },
        available: view.is_available,
        readiness_changed_at: engine::readiness_changed_at(&view.pod),
        starting: false,
        unschedulable: !view.is_available && engine::is_unschedulable(&view.pod),
        grows: false,
        restarts: false,
        intended: true,
        moved: view.record.as_ref().is_some_and(engine::PodRecord::changes_resources),
        unready_before: false,
        unready_by_resize: false,
        overtaken: false,
        superseding: false,
        back_restarts: None,
    }
}
