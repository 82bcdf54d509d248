//! The decision about a set. Pure.
//!
//! ```text
//!   revision of the template ──▶ scale: create, delete ──▶ update: recreate, restart, resize ──▶ refresh each pod ──▶ status
//! ```
//!
//! A pod is written once in a pass at most. While pods are created or deleted no update begins, because what may be
//! unavailable is known only afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use plumb_controller_runtime::pods;
use plumb_resize::rules::Rules;
use serde_json::json;

use super::action::{Action, Decision};
use super::counts::Counts;
use super::dry_run::Verdict;
use super::in_place::Update;
use super::instances;
use super::revisions::{Missing, Revisions, hash, of_pod};
use super::scale::Scale;
use super::scope::{Kind, Scope};
use super::update::Updated;
use super::view::PodView;
use super::{record, status};
use crate::api::cloneset::{CloneSet, validate};
use crate::engine::{self, Desired, Heading};
use crate::vpas::Owners;

/// A set and all that matters for it.
#[derive(Clone, Debug)]
pub struct State {
    /// The set.
    pub set: Arc<CloneSet>,
    /// The pods that it controls.
    pub pods: Vec<Arc<Pod>>,
    /// The revisions that it controls.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The names of all revisions in its namespace. They matter only where a revision is to be created.
    pub taken: BTreeSet<String>,
    /// The claims that it controls.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// The settings of resizes.
    pub policy: engine::Settings,
    /// The autoscalers that own resources of its pods.
    pub owners: Owners,
    /// The quotas of its namespace, with the usage of the pods that are there. They matter only where a further pod exceeds one.
    pub quotas: Vec<ResourceQuota>,
}

/// The input of a decision besides the state.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// The seed for the names of new pods: another one for each decision.
    pub seed: u64,
    /// The rules of the API server.
    pub rules: &'a Rules,
    /// Whether the feature gate `InPlaceWorkloadVerticalScaling` is on.
    pub vertical: bool,
    /// The writes that failed.
    pub failures: &'a Failures,
    /// Whether the API server would admit a pod of the template; none if that is not known yet.
    pub verdict: Option<&'a Verdict>,
}

/// The writes for a set that failed and were not repeated with success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Why pods or claims could not be created or deleted.
    pub scale: Option<String>,
    /// Why pods could not be updated, by uid.
    pub pods: BTreeMap<String, PodFailure>,
    /// Why the API server did not answer whether it would create a pod of the template.
    pub dry_run: Option<String>,
    /// Why nodes have not updated pods, by uid, as events were emitted about it.
    pub stuck: BTreeMap<String, String>,
}

/// Why a pod could not be updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    /// The pod, and what went wrong.
    pub message: String,
    /// How often in a row.
    pub count: u32,
    /// When it is tried again.
    pub retry_at: Timestamp,
}

/// Decides the actions for a set.
pub fn decide(state: &State, context: &Context<'_>) -> Decision {
    let set = &state.set;
    let mut decision = Decision::default();
    let template = match validate(set) {
        Ok(template) => template,
        Err(invalid) => {
            let status = status::invalid(set, invalid.to_string(), context.now);
            decision.status = Some(status).filter(|status| set.status.as_ref() != Some(status));
            return decision;
        }
    };
    let is_terminating = set.metadata.deletion_timestamp.is_some();
    let revisions = match Revisions::find(set, &template, &state.revisions, &state.taken) {
        Ok(revisions) => revisions,
        // The garbage collector deletes the revisions before the set: to write them anew would have no end.
        Err(_) if is_terminating => return decision,
        Err(Missing::Create(revision)) => {
            decision.actions.push(Action::CreateRevision(revision));
            return decision;
        }
        Err(Missing::Update(revision)) => {
            decision.actions.push(Action::UpdateRevision(revision));
            return decision;
        }
    };
    let mut scope = scope(state, context, template, revisions);
    scope.abandon_stuck_updates();
    let is_behind = |view: &PodView| !view.is_updated && !scope.is_rolled_back(view);
    let kind = |view: &PodView| is_behind(view).then(|| scope.kind(view));
    let kinds: Vec<Option<Kind>> = scope.views.iter().map(kind).collect();
    let disruptive = scope
        .views
        .iter()
        .zip(&kinds)
        .any(|(view, kind)| kind.as_ref().is_some_and(|kind| scope.is_disruptive(view, kind)));
    let counts = Counts::of(&scope.views, &scope.settings, disruptive);
    let mut updated = Updated::default();
    if !is_terminating {
        Scale { scope: &scope, counts: &counts }.decide(&mut decision);
        // Pods that cannot be created must not stop the update of the others.
        let creates_only = decision.actions.iter().all(|action| matches!(action, Action::CreatePod { .. }));
        if context.failures.scale.is_some() && creates_only || !decision.actions.iter().any(Action::scales) {
            updated = scope.update(kinds, &counts, &mut decision);
        }
        refresh(&scope, &mut updated, &mut decision);
        clean_up(&scope, &mut decision);
    }
    let (status, due) = scope.status(&updated);
    decision.say(status::phase_changed(set.status.as_ref(), &status));
    decision.say(status::waits_for_the_api_server(set.status.as_ref(), &status));
    decision.status = Some(status).filter(|status| set.status.as_ref() != Some(status));
    decision.wake_at(due);
    let active = scope.views.iter().map(|view| &view.pod);
    decision.wake_at(pods::next_available(active, scope.settings.min_ready_seconds, context.now));
    decision
}

fn scope<'a>(
    state: &'a State,
    context: &'a Context<'a>,
    template: k8s_openapi::api::core::v1::PodTemplateSpec,
    revisions: Revisions,
) -> Scope<'a> {
    let settings = state.set.settings();
    let active = state.pods.iter().filter(|pod| pods::is_active(pod));
    let views: Vec<PodView> =
        active.map(|pod| PodView::of(pod, &settings, revisions.update_name(), context.now)).collect();
    let mut updates = BTreeMap::new();
    for view in views.iter().filter(|view| !view.is_updated) {
        let Some(revision) = of_pod(&view.pod).map(hash) else { continue };
        if !updates.contains_key(revision)
            && let Some(old) = revisions.template_of(&view.pod)
        {
            let update = Update::between(&old, &template, context.rules, context.vertical);
            updates.insert(revision.to_owned(), update);
        }
    }
    let recreates_all = record::read(&state.set).is_some_and(|record| {
        record.heading == Heading::Recreate && record.revision == revisions.update_name()
    });
    Scope {
        state,
        context,
        // It was read when the set was validated.
        claim_templates: state.set.claim_templates().unwrap_or_default(),
        desired: state.owners.without(Desired::of(&template, context.rules).unwrap_or_default()),
        settings,
        template,
        revisions,
        views,
        updates,
        recreates_all,
    }
}

/// Continues the updates of all pods without a decision.
fn refresh(scope: &Scope<'_>, updated: &mut Updated, decision: &mut Decision) {
    let touched: BTreeSet<Option<String>> =
        decision.actions.iter().filter_map(Action::pod).map(|pod| pod.metadata.uid.clone()).collect();
    for view in &scope.views {
        let uid = &view.pod.metadata.uid;
        let preparing = uid.as_ref().is_some_and(|uid| updated.preparing.contains(uid));
        let refreshed = scope.refresh(view, preparing);
        // A refusal of the API server is an event when the write fails.
        let is_refused = view.record.as_ref().is_some_and(|record| record.failure.is_some());
        if let (Some(uid), Some(stuck), false) = (uid, &refreshed.stuck, is_refused) {
            decision.stuck.insert(uid.clone(), stuck.clone());
        }
        updated.stuck.extend(refreshed.stuck);
        decision.wake_at(refreshed.due);
        if !touched.contains(uid) {
            decision.actions.extend(refreshed.action);
        }
    }
}

/// Deletes unused claims and revisions, and removes the names of pods that are gone.
fn clean_up(scope: &Scope<'_>, decision: &mut Decision) {
    let State { set, pods, claims, .. } = scope.state;
    let unused = instances::unused_claims(pods, claims, scope.settings.reuse_claims);
    decision.actions.extend(unused.into_iter().map(Action::DeleteClaim));
    let expired = scope.revisions.expired(pods, scope.settings.history_limit);
    decision.actions.extend(expired.into_iter().map(Action::DeleteRevision));
    let listed = &scope.settings.pods_to_delete;
    let left: BTreeSet<&str> =
        scope.views.iter().map(PodView::name).filter(|name| listed.contains(*name)).collect();
    let patches_set = decision.actions.iter().any(|action| matches!(action, Action::PatchSet(_)));
    if left.len() < listed.len() && !patches_set {
        decision.actions.push(Action::PatchSet(json!({
            "metadata": { "resourceVersion": set.metadata.resource_version },
            "spec": { "scaleStrategy": { "podsToDelete": left } },
        })));
    }
}
