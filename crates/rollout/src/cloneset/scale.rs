//! Which pods are created and deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::action::{Action, Decision, Note};
use super::counts::Counts;
use super::dry_run::Verdict;
use super::instances::{self, Ids};
use super::lifecycle::{self, State as Stage};
use super::order;
use super::scope::Scope;
use super::view::PodView;

/// The inputs of a scale decision.
pub(super) struct Scale<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) counts: &'a Counts,
}

impl Scale<'_> {
    /// Decides which pods are created and deleted.
    pub(super) fn decide(&self, decision: &mut Decision) {
        let released = self.released();
        if !released.is_empty() {
            decision.actions.extend(released);
            return;
        }
        if self.counts.create > 0 && self.create(decision) {
            return;
        }
        let preparing = self.scope.views.iter().filter(|view| view.state == Stage::PreparingDelete);
        let mut deleted: Vec<&PodView> = preparing.filter(|view| !self.is_held(view)).collect();
        let mut limit = self.counts.delete_available_limit;
        let mut may_delete = |view: &PodView| {
            if !view.is_available {
                return true;
            }
            limit -= 1;
            limit >= 0
        };
        let specified: Vec<&PodView> = self
            .scope
            .views
            .iter()
            .filter(|view| view.is_specified_delete && view.state != Stage::PreparingDelete)
            .collect();
        deleted.extend(specified.iter().filter(|view| may_delete(view)));
        // Pods that are to be deleted anyway come first: which are too many is known once they are gone.
        if self.counts.delete > 0 && self.planned() == 0 {
            deleted.extend(self.surplus().into_iter().filter(|view| may_delete(view)));
        }
        if deleted.is_empty() {
            return;
        }
        let claims = instances::claims_by_id(&self.scope.state.claims);
        decision.actions.extend(deleted.into_iter().filter_map(|view| self.delete(view, &claims)));
    }

    /// How many pods are to be deleted, or held before that.
    fn planned(&self) -> i32 {
        let planned = self
            .scope
            .views
            .iter()
            .filter(|view| view.is_specified_delete || view.state == Stage::PreparingDelete)
            .count();
        i32::try_from(planned).unwrap_or(i32::MAX)
    }

    fn is_held(&self, view: &PodView) -> bool {
        lifecycle::is_held(self.scope.settings.lifecycle.pre_delete.as_ref(), &view.pod)
    }

    /// The pods that are held before their deletion and are needed again, because there are to be more replicas. Once a
    /// hook has made pods unready there is no way back.
    fn released(&self) -> Vec<Action> {
        if instances::marks_unready(&self.scope.settings.lifecycle) {
            return Vec::new();
        }
        let count = i32::try_from(self.scope.views.len()).unwrap_or(i32::MAX);
        let needed = self.scope.settings.replicas - count + self.planned();
        let held = self.scope.views.iter().filter(|view| view.state == Stage::PreparingDelete);
        let held = held.filter(|view| !view.is_specified_delete);
        let released = held.take(usize::try_from(needed).unwrap_or(0));
        released.map(|view| self.scope.enter(view, Stage::PreparingNormal)).collect()
    }

    /// Creates pods, or waits until it may. False if only further pods are to be created, and the API server would refuse them:
    /// what is to be deleted does not wait for those.
    fn create(&self, decision: &mut Decision) -> bool {
        let Counts { create, create_limit, create_current, .. } = *self.counts;
        if create > create_limit {
            decision.notes.push(Note {
                warning: true,
                reason: "ScaleUpLimited",
                message: format!(
                    "scaleStrategy.maxUnavailable limits the creation of {create} pods to {create_limit}"
                ),
            });
        }
        let set = &self.scope.state.set;
        let reuse = self.scope.settings.reuse_claims;
        let mut ids =
            Ids::new(&self.scope.state.pods, &self.scope.state.claims, reuse, self.scope.context.seed);
        let update = &self.scope.template;
        let current = plumb_controller_runtime::revision::template(&self.scope.revisions.current);
        let names = self.scope.state.claims.iter().filter_map(|claim| claim.metadata.name.as_deref());
        let existing: BTreeSet<&str> = names.collect();
        if create_limit > 0 && self.scope.revisions.current_name() != self.scope.revisions.update_name() {
            decision.unchecked |= self.scope.context.verdict.is_none();
        }
        // A pod of the template would not be created: one that is missing has the template of before, and there is no further one.
        let is_refused = match self.scope.context.verdict {
            Some(Verdict::Refused(_)) => true,
            Some(Verdict::OverQuota(_)) => current.as_ref().is_some_and(|current| {
                self.scope.quota_refusal(update, None).is_some()
                    && self.scope.quota_refusal(current, None).is_none()
            }),
            _ => false,
        };
        let count = i32::try_from(self.scope.views.len()).unwrap_or(i32::MAX);
        let missing = self.scope.settings.replicas.saturating_sub(count);
        if is_refused && missing <= 0 {
            return false;
        }
        for number in 0..create_limit {
            if is_refused && number >= missing {
                break;
            }
            let (template, revision) = match &current {
                Some(current) if number < create_current || is_refused => {
                    (current, self.scope.revisions.current_name())
                }
                _ => (update, self.scope.revisions.update_name()),
            };
            let id = ids.take();
            let (pod, claims) = instances::instance(
                set,
                template,
                &self.scope.claim_templates,
                revision,
                &id,
                self.scope.context.now,
            );
            let exists = |claim: &PersistentVolumeClaim| {
                claim.metadata.name.as_deref().is_some_and(|name| existing.contains(name))
            };
            let claims = claims.into_iter().filter(|claim| !exists(claim)).collect();
            decision.actions.push(Action::CreatePod { pod: Box::new(pod), claims });
        }
        true
    }

    /// The pods that are too many: of an old revision as far as there are too many of those, then of the update revision.
    fn surplus(&self) -> Vec<&PodView> {
        let Counts { delete, delete_old, .. } = *self.counts;
        let old = delete_old.min(delete);
        let (updated, others): (Vec<&PodView>, Vec<&PodView>) =
            self.scope.views.iter().partition(|view| view.is_updated);
        let mut surplus = self.first(others, old);
        surplus.extend(self.first(updated, delete - old));
        surplus
    }

    fn first<'b>(&self, views: Vec<&'b PodView>, count: i32) -> Vec<&'b PodView> {
        let mut pods: Vec<Arc<Pod>> = views.iter().map(|view| view.pod.clone()).collect();
        let is_available = |pod: &Pod| {
            super::view::is_available(pod, self.scope.settings.min_ready_seconds, self.scope.context.now)
        };
        let related: Vec<Arc<Pod>> = self.scope.views.iter().map(|view| view.pod.clone()).collect();
        order::for_deletion(&mut pods, &related, is_available, self.scope.context.now);
        let by_name: BTreeMap<&str, &PodView> = views.iter().map(|view| (view.name(), *view)).collect();
        let find = |pod: &Arc<Pod>| by_name.get(pod.metadata.name.as_deref()?).copied();
        pods.iter().take(usize::try_from(count).unwrap_or(0)).filter_map(find).collect()
    }

    /// Deletes a pod, unless the hook holds it.
    fn delete(
        &self,
        view: &PodView,
        claims: &BTreeMap<&str, Vec<Arc<PersistentVolumeClaim>>>,
    ) -> Option<Action> {
        if self.is_held(view) {
            return (view.state != Stage::PreparingDelete)
                .then(|| self.scope.enter(view, Stage::PreparingDelete));
        }
        let claims = instances::id(&view.pod.metadata).and_then(|id| claims.get(id));
        Some(Action::DeletePod { pod: view.pod.clone(), claims: claims.cloned().unwrap_or_default() })
    }
}
