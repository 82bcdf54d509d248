//! All that the decisions about one set share.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use plumb_controller_runtime::revision;
use plumb_resize::status::{self, Stage};
use serde_json::Value;

use super::decide::{Context, State};
use super::dry_run::{INSTANCE, Verdict};
use super::hooks::PodHooks;
use super::in_place::{InPlace, Update, UpdateState};
use super::instances::instance;
use super::lifecycle::{self, seconds};
use super::over_quota::Quotas;
use super::revisions::{self, Revisions};
use super::view::PodView;
use crate::api::cloneset::{PodUpdatePolicy, Settings};
use crate::engine::{Change, Desired, Direction, PodState, Vertical, compare_desired, evaluate};

/// All that the decisions about one set share.
pub(super) struct Scope<'a> {
    pub(super) state: &'a State,
    pub(super) context: &'a Context<'a>,
    pub(super) settings: Settings,
    pub(super) template: PodTemplateSpec,
    pub(super) claim_templates: Vec<PersistentVolumeClaim>,
    pub(super) revisions: Revisions,
    /// The pods that neither have ended nor are terminating.
    pub(super) views: Vec<PodView>,
    /// How pods of each old revision follow, by its hash.
    pub(super) updates: BTreeMap<String, Update>,
    /// The resources of the template; none if they cannot be read.
    pub(super) desired: Desired,
    /// Whether all pods with an update are recreated, by the policy after a failure.
    pub(super) recreates_all: bool,
}

/// How a pod that has an old revision is updated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// It is recreated, for these reasons.
    Recreate(Vec<String>),
    /// In place, and containers are restarted for new images. Resources may change with them.
    Restart(InPlace, Option<Box<Vertical>>),
    /// In place, by a resize: at the pace of the engine.
    Resize(InPlace, Box<Vertical>),
    /// In place, and only metadata changes.
    Metadata(InPlace),
    /// It would have to be recreated, for these reasons, but must not be.
    Impossible(Vec<String>),
}

impl Kind {
    /// Whether the pod is unavailable for a while.
    pub(super) fn is_disruptive(&self) -> bool {
        match self {
            Self::Recreate(_) | Self::Restart(..) => true,
            Self::Resize(_, change) => change.restarts,
            Self::Metadata(_) | Self::Impossible(_) => false,
        }
    }
}

impl Scope<'_> {
    /// Whether an update makes a pod unavailable for a while: it is recreated, a container is restarted, or a hook holds the pod
    /// before its update.
    pub(super) fn is_disruptive(&self, view: &PodView, kind: &Kind) -> bool {
        kind.is_disruptive() || matches!(kind, Kind::Resize(..) | Kind::Metadata(_)) && self.is_drained(view)
    }

    /// Whether a hook holds a pod before its update, or does so until it has the labels and finalizers of the hook again.
    pub(super) fn is_drained(&self, view: &PodView) -> bool {
        use super::lifecycle::State;
        self.settings.lifecycle.in_place_update.as_ref().is_some_and(|hook| {
            hook.holds(&view.pod) || matches!(view.state, State::PreparingUpdate | State::Updated)
        })
    }

    /// How a pod that has an old revision is updated.
    pub(super) fn kind(&self, view: &PodView) -> Kind {
        if self.settings.policy == PodUpdatePolicy::ReCreate || self.recreates_all {
            return Kind::Recreate(Vec::new());
        }
        let update = revisions::of_pod(&view.pod).and_then(|name| self.updates.get(revisions::hash(name)));
        let reasons = match update {
            Some(Update::InPlace(in_place)) => match self.in_place(view, in_place) {
                Ok(kind) => return kind,
                Err(reasons) => reasons,
            },
            Some(Update::Recreate(reasons)) => reasons.clone(),
            None => vec!["the history does not have its revision".to_owned()],
        };
        if self.settings.policy == PodUpdatePolicy::InPlaceOnly {
            Kind::Impossible(reasons)
        } else {
            Kind::Recreate(reasons)
        }
    }

    fn in_place(&self, view: &PodView, in_place: &InPlace) -> Result<Kind, Vec<String>> {
        let mut in_place = in_place.clone();
        // Containers that an update has not come to yet follow the template as it is now.
        let left = UpdateState::read(&view.pod).unwrap_or_default().next_container_images;
        let images = self.template.spec.iter().flat_map(|spec| &spec.containers);
        let images = images.filter(|container| left.contains_key(&container.name));
        in_place.images.extend(
            images.map(|container| (container.name.clone(), container.image.clone().unwrap_or_default())),
        );
        // A resize that was begun and not finished is part of what comes next.
        in_place.resizes |= self.context.vertical && has_unfinished_resize(view);
        let change = if in_place.resizes {
            match compare_desired(&self.desired, &view.pod, self.context.rules) {
                Change::None => None,
                Change::Vertical(change) => Some(change),
                Change::Other(reasons) => return Err(reasons.iter().map(ToString::to_string).collect()),
            }
        } else {
            None
        };
        Ok(match change {
            change if !in_place.images.is_empty() => Kind::Restart(in_place, change),
            Some(change) => Kind::Resize(in_place, change),
            None => Kind::Metadata(in_place),
        })
    }

    /// The hooks of a pod whose update to the update revision begins.
    pub(super) fn hooks_to_begin(&self, begin: Option<Value>, resizes: bool) -> PodHooks<'_> {
        PodHooks {
            revision: self.revisions.update_name().to_owned(),
            base: self.revisions.current_name().to_owned(),
            desired: if resizes { self.desired.clone() } else { Desired::default() },
            rules: self.context.rules,
            lifecycle: &self.settings.lifecycle,
            begin,
            later: BTreeSet::new(),
            back: None,
            now: self.context.now,
        }
    }

    /// The hooks of a pod whose update is under way: to the revision that it has, which may not be the latest.
    pub(super) fn hooks_under_way(&self, view: &PodView) -> PodHooks<'_> {
        let pod = &view.pod;
        let name = revisions::of_pod(pod).unwrap_or_default();
        let recorded = view.record.as_ref().map(|record| record.revision.clone());
        let revision = recorded.filter(|recorded| revisions::is_same(recorded, name));
        let state = UpdateState::read(pod);
        let resizes = self.context.vertical && state.as_ref().is_some_and(|state| state.update_resources);
        let desired = if resizes {
            let later = state.unwrap_or_default().next_container_resources.into_keys().collect();
            self.desired_of(view, &later)
        } else {
            Desired::default()
        };
        PodHooks {
            revision: revision.unwrap_or_else(|| name.to_owned()),
            base: self.revisions.current_name().to_owned(),
            desired,
            rules: self.context.rules,
            lifecycle: &self.settings.lifecycle,
            begin: None,
            later: BTreeSet::new(),
            back: self.patch_back(view),
            now: self.context.now,
        }
    }

    /// The resources of the revision that a pod has, without those of containers that are updated later.
    pub(super) fn desired_of(&self, view: &PodView, later: &BTreeSet<String>) -> Desired {
        let pod = &view.pod;
        let desired = if revisions::has(pod, self.revisions.update_name()) {
            self.desired.clone()
        } else {
            let template = self.revisions.template_of(pod).unwrap_or_default();
            self.state.owners.without(Desired::of(&template, self.context.rules).unwrap_or_default())
        };
        desired.without(|container, _, _| later.contains(container))
    }

    /// Makes pods whose update is stuck pods of an old revision, where the policy has all pods recreated that do not follow.
    pub(super) fn abandon_stuck_updates(&mut self) {
        if !self.recreates_all {
            return;
        }
        let is_stuck = |view: &PodView| {
            let hooks = self.hooks_under_way(view);
            let state = evaluate(&view.pod, &hooks, &self.state.policy.pod, self.context.now).state;
            matches!(state, PodState::Stuck { .. } | PodState::RollbackFailed { .. })
        };
        let stuck: Vec<bool> =
            self.views.iter().map(|view| view.is_updated && is_under_way(view) && is_stuck(view)).collect();
        for (view, _) in self.views.iter_mut().zip(stuck).filter(|(_, is_stuck)| *is_stuck) {
            view.is_updated = false;
        }
    }

    /// Why a quota would refuse a pod of a template, in the place of a pod or as a further one; none if it would be admitted.
    pub(super) fn quota_refusal(&self, template: &PodTemplateSpec, old: Option<&Pod>) -> Option<String> {
        let Some(Verdict::OverQuota(replied)) = self.context.verdict else { return None };
        let Context { now, rules, .. } = *self.context;
        let (mut pod, _) =
            instance(&self.state.set, template, &self.claim_templates, INSTANCE, INSTANCE, now);
        // A quantity that cannot be read is refused for that.
        let _ = plumb_resize::defaulting::default_pod(&mut pod, rules);
        // The reply is about a pod of the latest template.
        let replied = (*template == self.template).then_some(replied.as_str());
        Quotas { all: &self.state.quotas, rules, now }.refusal(&pod, old, replied)
    }

    /// Whether a pod was resized back from the update revision, because it failed: it is not updated again.
    pub(super) fn is_rolled_back(&self, view: &PodView) -> bool {
        rolled_back_from(view)
            .is_some_and(|revision| revisions::is_same(revision, self.revisions.update_name()))
    }

    /// Whether a pod was resized back from a revision that is not the update revision any more.
    pub(super) fn was_rolled_back(&self, view: &PodView) -> bool {
        rolled_back_from(view)
            .is_some_and(|revision| !revisions::is_same(revision, self.revisions.update_name()))
    }

    /// The strategic merge patch by which a pod that was resized back has its former revision again, with the labels and annotations
    /// of it. None if its update has changed an image: then it is of neither revision.
    fn patch_back(&self, view: &PodView) -> Option<Value> {
        let record = view.record.as_ref().filter(|record| record.direction == Direction::Back)?;
        let all = &self.revisions.all;
        let base = all.iter().find(|one| revisions::is_same(revision::name(one), &record.base))?;
        let (from, to) = (self.revisions.template_of(&view.pod)?, revision::template(base)?);
        let Update::InPlace(back) = Update::between(&from, &to, self.context.rules, true) else {
            return None;
        };
        if !back.images.is_empty() {
            return None;
        }
        let (name, now) = (revision::name(base).to_owned(), self.context.now);
        let state = UpdateState { revision: name, update_timestamp: seconds(now), ..UpdateState::default() };
        let stage = lifecycle::after_update(&self.settings.lifecycle, &view.pod);
        Some(back.patch(&state, stage.patch(now)))
    }

    /// The template of the current revision.
    pub(super) fn current_template(&self) -> Option<PodTemplateSpec> {
        revision::template(&self.revisions.current)
    }

    /// Until when no write is tried for a pod, because one failed.
    pub(super) fn backoff(&self, view: &PodView) -> Option<Timestamp> {
        let uid = view.pod.metadata.uid.as_deref().unwrap_or_default();
        let failure = self.context.failures.pods.get(uid)?;
        (failure.retry_at > self.context.now).then_some(failure.retry_at)
    }
}

/// Whether an in-place update of a pod has begun and is not finished.
pub(super) fn is_under_way(view: &PodView) -> bool {
    view.state == super::lifecycle::State::Updating
        || view
            .record
            .as_ref()
            .is_some_and(|record| record.finished_at.is_none() && revisions::has(&view.pod, &record.revision))
}

/// The revision that a pod was resized back from.
fn rolled_back_from(view: &PodView) -> Option<&str> {
    let record = view.record.as_ref()?;
    (record.direction == Direction::Back && record.finished_at.is_some()).then_some(record.revision.as_str())
}

fn has_unfinished_resize(view: &PodView) -> bool {
    view.record.as_ref().is_some_and(|record| record.finished_at.is_none())
        && UpdateState::read(&view.pod).is_some_and(|state| state.update_resources)
}

/// Whether the resources in the spec of a pod are applied.
pub(super) fn is_applied(pod: &Pod) -> bool {
    status::read(pod).is_ok_and(|reading| reading.stage == Stage::Applied)
}
