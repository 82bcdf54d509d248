//! Deployments: one replica set per pod template.
//!
//! ```text
//!   paused, or spec.replicas changed ──▶ scale the existing sets in proportion
//!   otherwise, by strategy:
//!     RollingUpdate ──▶ create the new set ▸ scale it up as far as the surge allows ▸ scale down the old ones as far as
//!                       availability allows ▸ … until only the new one has pods
//!     Recreate ──▶ scale down the old sets ▸ wait until their pods are deleted ▸ create the new set
//!   complete ──▶ delete the sets beyond revisionHistoryLimit
//! ```
//!
//! A decision takes one of these steps; the watch events of its writes cause the next one. [`sets`] finds the new and
//! the old replica sets, [`pace`] computes their sizes, and [`status`] the status of the deployment.

pub mod pace;
pub mod sets;
pub mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use crate::workload::claim::claims;
use crate::workload::{
    Action, Context, Informers, Kind, Note, Ref, Verb, Watches, Workload, WriteOutcome, pods,
};
use pace::Pace;
use plumb_controller_runtime::{ObjectRef, controller_of, controller_of_kind, controller_reference};
use sets::{HASH, REVISION};

/// The controller of deployments.
pub struct Deployments;

/// A deployment with the objects that a decision reads.
#[derive(Clone, Debug)]
pub struct State {
    /// The deployment.
    pub deployment: Arc<Deployment>,
    /// Its sets.
    pub sets: Vec<Arc<ReplicaSet>>,
    /// The UIDs of sets with pods that have not finished. Only set for the strategy `Recreate`.
    pub with_pods: Vec<String>,
    /// An existing set with the name of the new one.
    pub in_the_way: Option<Arc<ReplicaSet>>,
}

impl Workload for Deployments {
    const NAME: &'static str = "deployment-controller";
    type Kind = Deployment;
    type State = State;

    fn watch(&self, watches: &Watches<Deployment>) {
        watches.owned::<ReplicaSet>(selector);
        // A deployment that recreates waits for the deletion of each old pod.
        let queue = watches.queue.clone();
        let informers = watches.informers.clone();
        watches.informers.pods.add_handler(move |change| {
            if change.after.is_some_and(|pod| !pods::has_ended(pod)) {
                return;
            }
            let of_set = change.latest().and_then(|pod| controller_of_kind::<ReplicaSet>(&**pod));
            let set = of_set.and_then(|at| informers.replica_sets.get(&at));
            let Some(at) = set.and_then(|set| controller_of_kind::<Deployment>(&*set)) else { return };
            if informers.deployments.get(&at).is_some_and(|deployment| recreates(&deployment)) {
                queue.add(at);
            }
        });
    }

    fn claims(&self, deployment: &Deployment, informers: &Informers) -> Vec<Action> {
        match selector(deployment) {
            // A selector that matches everything adopts nothing.
            Some(selector) if selector == LabelSelector::default() => Vec::new(),
            selector => claims(deployment, selector.as_ref(), &informers.replica_sets),
        }
    }

    fn gather(&self, deployment: &Arc<Deployment>, informers: &Informers) -> State {
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let sets = informers.replica_sets.controlled_by(uid);
        let runs = |set: &&Arc<ReplicaSet>| {
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            informers.pods.controlled_by(uid).iter().any(|pod| !pods::has_ended(pod))
        };
        let with_pods = if recreates(deployment) {
            sets.iter().filter(runs).filter_map(|set| set.metadata.uid.clone()).collect()
        } else {
            Vec::new()
        };
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        let at = ObjectRef::namespaced(namespace, sets::new_name(deployment));
        State { deployment: deployment.clone(), sets, with_pods, in_the_way: informers.replica_sets.get(&at) }
    }

    fn decide(&self, state: &State, context: &Context) -> Vec<Action> {
        decide(state, context)
    }

    fn event_for(&self, _: &Deployment, outcome: &WriteOutcome<'_>) -> Option<Note> {
        match (outcome.object.kind, outcome.verb, outcome.error) {
            (Kind::ReplicaSet, Verb::Create, Some(error)) => {
                let message = status::not_created(&outcome.object.name, error);
                Some(Note::warning(status::CREATE_ERROR, message))
            }
            _ => None,
        }
    }
}

fn selector(deployment: &Deployment) -> Option<LabelSelector> {
    deployment.spec.as_ref().map(|spec| spec.selector.clone())
}

fn recreates(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// Decides the actions for a deployment.
pub fn decide(state: &State, context: &Context) -> Vec<Action> {
    let spec = state.deployment.spec.clone().unwrap_or_default();
    if spec.selector == LabelSelector::default() {
        return selects_everything(&state.deployment);
    }
    let mut sync = Sync::new(state, spec, context);
    if state.deployment.metadata.deletion_timestamp.is_some() {
        return sync.report(false);
    }
    sync.note_pause();
    if let Some(brought_up_to_date) = sync.catch_up() {
        return vec![brought_up_to_date];
    }
    if sync.is_paused() || sync.is_scaled() {
        return sync.scale();
    }
    if recreates(&state.deployment) { sync.recreate() } else { sync.roll() }
}

fn selects_everything(deployment: &Deployment) -> Vec<Action> {
    let message = "This deployment is selecting all pods. A non-empty selector is required.";
    let mut actions = vec![Action::Event(Note::warning("SelectingAll", message))];
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    if observed < deployment.metadata.generation {
        let mut deployment = deployment.clone();
        deployment.status.get_or_insert_default().observed_generation = deployment.metadata.generation;
        actions.push(Action::Status(deployment.into()));
    }
    actions
}

/// One reconcile of a deployment.
struct Sync<'a> {
    state: &'a State,
    spec: DeploymentSpec,
    pace: Pace,
    context: &'a Context,
    /// The deployment to write, with its revision and conditions.
    working: Deployment,
    new: Option<Arc<ReplicaSet>>,
    /// Sorted by age, the oldest first.
    old: Vec<Arc<ReplicaSet>>,
}

impl<'a> Sync<'a> {
    fn new(state: &'a State, spec: DeploymentSpec, context: &'a Context) -> Self {
        let (new, old) = sets::new_and_old(&spec, &state.sets);
        let pace = Pace::from_spec(&spec);
        Self { state, spec, pace, context, working: (*state.deployment).clone(), new, old }
    }

    fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Whether `spec.replicas` differs from the desired-replicas annotation of the sets (a scaling event).
    fn is_scaled(&self) -> bool {
        let active = self.all().filter(|set| sets::replicas(set) > 0);
        active.filter_map(|set| sets::desired(set)).any(|desired| desired != self.pace.replicas)
    }

    /// Sets the condition `Progressing` of a paused or resumed deployment, so that the deadline does not apply.
    fn note_pause(&mut self) {
        let paused = self.is_paused();
        status::note_pause(&self.spec, &mut self.working, paused, self.context);
    }

    /// Updates the annotations and revision of the new set, which comes before all other actions, and then the revision
    /// of the deployment.
    fn catch_up(&mut self) -> Option<Action> {
        let new = self.new.clone()?;
        if let Some(set) = sets::up_to_date(&new, &self.state.deployment, sets::next_revision(&self.old)) {
            return Some(Action::Replace(set.into()));
        }
        if let Some(revision) = sets::annotation(&new, REVISION) {
            self.annotate(revision.to_owned());
        }
        status::note_found(&self.spec, &mut self.working, sets::name(&new), self.context);
        None
    }

    fn annotate(&mut self, revision: String) {
        self.working.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision);
    }

    /// Scales the sets to `spec.replicas` without continuing the rollout.
    fn scale(&self) -> Vec<Action> {
        let active: Vec<&Arc<ReplicaSet>> = self.all().filter(|set| sets::replicas(set) > 0).collect();
        let only = match active[..] {
            [] => self.new.as_ref().or(self.old.last()),
            [only] => Some(only),
            _ => None,
        };
        let mut actions = Vec::new();
        let grows = match only {
            Some(set) => sets::replicas(set) < self.pace.replicas,
            None => self.all().map(|set| sets::replicas(set)).sum::<i32>() < self.pace.most(),
        };
        if grows && !self.is_settled() {
            return self.report(false);
        }
        if let Some(set) = only {
            actions.extend(self.resize(set, self.pace.replicas, false));
        } else if self.is_saturated() {
            actions.extend(self.old.iter().flat_map(|set| self.resize(set, 0, false)));
        } else if self.pace.rolls && !active.is_empty() {
            let status = self.state.deployment.status.as_ref();
            let replicas_before = status.and_then(|status| status.replicas).unwrap_or(0);
            for (set, size) in self.pace.shares(&active, replicas_before) {
                actions.extend(self.resize(set, size, true));
            }
        }
        if !actions.is_empty() {
            return actions;
        }
        if self.is_paused() {
            actions.extend(self.forget());
        }
        actions.extend(self.report(false));
        actions
    }

    /// Whether no set has pods that are being scaled down, as far as is observed. Until then the free surge is unknown.
    fn is_settled(&self) -> bool {
        self.all().all(|set| sets::held(set) == Some(sets::replicas(set)))
    }

    /// The next size of the new set: all pods, including those that are being scaled down, never exceed the surge.
    /// Upstream counts only `spec.replicas` of the sets, and exceeds it for a moment.
    fn new_size(&self, new: i32) -> i32 {
        match self.old.iter().map(|set| sets::held(set)).sum::<Option<i32>>() {
            Some(old) => self.pace.new_size(new, old.saturating_add(new)),
            None => new.min(self.pace.replicas),
        }
    }

    /// Whether the new set has all desired replicas, and they are available.
    fn is_saturated(&self) -> bool {
        self.new.as_ref().is_some_and(|new| {
            let replicas = self.pace.replicas;
            sets::replicas(new) == replicas
                && sets::desired(new) == Some(replicas)
                && sets::available(new) == replicas
        })
    }

    fn roll(&mut self) -> Vec<Action> {
        let Some(new) = self.new.clone() else { return self.make() };
        let grown = self.resize(&new, self.new_size(sets::replicas(&new)), false);
        if !grown.is_empty() {
            return grown;
        }
        let sizes = self.pace.old_sizes(&new, &self.old);
        let shrunk: Vec<Action> =
            sizes.into_iter().flat_map(|(set, size)| self.resize(set, size, false)).collect();
        if !shrunk.is_empty() {
            return shrunk;
        }
        self.conclude()
    }

    fn recreate(&mut self) -> Vec<Action> {
        let shrunk: Vec<Action> = self.old.iter().flat_map(|set| self.resize(set, 0, false)).collect();
        if !shrunk.is_empty() {
            return shrunk;
        }
        let new = self.new.as_ref().and_then(|new| new.metadata.uid.as_ref());
        let runs = |uid: &String| Some(uid) != new && self.state.with_pods.contains(uid);
        let old_run = self.state.sets.iter().filter_map(|set| set.metadata.uid.as_ref()).any(runs)
            || self.old.iter().any(|set| sets::held(set) != Some(0));
        if old_run {
            return self.report(true);
        }
        let Some(new) = self.new.clone() else { return self.make() };
        let grown = self.resize(&new, self.pace.replicas, false);
        if grown.is_empty() { self.conclude() } else { grown }
    }

    /// Creates the new set.
    fn make(&mut self) -> Vec<Action> {
        if let Some(other) = &self.state.in_the_way {
            let ours = controller_of(&other.metadata).map(|owner| &owner.uid);
            if ours == self.state.deployment.metadata.uid.as_ref() && self.new.is_none() {
                tracing::debug!(
                    set = sets::name(other),
                    "the name of the new replica set is taken by one of another template"
                );
            }
            // A hash collision: the next reconcile tries another name. A set of another owner is not changed.
            let status = self.working.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
            return vec![Action::Status(self.working.clone().into())];
        }
        let mut actions = Vec::new();
        let size = if self.pace.rolls { self.new_size(0) } else { self.pace.replicas };
        let revision = sets::next_revision(&self.old);
        let set = self.new_set(size, revision);
        let name = sets::name(&set).to_owned();
        if let Some(failure) = self.context.failure.as_ref().filter(|failure| failure.verb == Verb::Create) {
            status::note_not_created(&self.spec, &mut self.working, &name, &failure.message, self.context);
            if self.working != *self.state.deployment {
                actions.push(Action::Status(self.working.clone().into()));
            }
        }
        let has_status = !actions.is_empty();
        actions.push(Action::Create(set.into()));
        if size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            actions.push(Action::Event(Note::normal("ScalingReplicaSet", message)));
        }
        // One batch of actions can write the status only once.
        if !has_status {
            self.annotate(revision.to_string());
            status::note_created(&self.spec, &mut self.working, &name, self.context);
            // No existing pod has the new template, so the rollout starts now.
            actions.push(Action::Status(self.with_status(false).0.into()));
        }
        actions
    }

    fn new_set(&self, size: i32, revision: i64) -> ReplicaSet {
        let deployment = &self.state.deployment;
        let hash = sets::hash(deployment);
        let mut template = self.spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = self.spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash);
        let set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(sets::new_name(deployment)),
                namespace: deployment.metadata.namespace.clone(),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(&**deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(size),
                min_ready_seconds: self.spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        let set = sets::up_to_date(&set, deployment, revision).unwrap_or(set);
        sets::with_desired(set, self.pace.replicas, self.pace.most())
    }

    /// Scales a set. If it has that size already, only its annotations are updated, if `notes` is set.
    fn resize(&self, set: &Arc<ReplicaSet>, size: i32, notes: bool) -> Vec<Action> {
        let before = sets::replicas(set);
        if before == size && !notes {
            return Vec::new();
        }
        let mut after = sets::with_desired((**set).clone(), self.pace.replicas, self.pace.most());
        after.spec.get_or_insert_default().replicas = Some(size);
        if after == **set {
            return Vec::new();
        }
        let mut actions = vec![Action::Replace(after.into())];
        if before != size {
            let way = if before < size { "up" } else { "down" };
            let name = sets::name(set);
            let message = format!("Scaled {way} replica set {name} from {before} to {size}");
            actions.push(Action::Event(Note::normal("ScalingReplicaSet", message)));
        }
        actions
    }

    /// The rollout is complete: cleans up old sets and writes the status.
    fn conclude(&self) -> Vec<Action> {
        let deployment = &self.state.deployment;
        let is_complete = deployment.status.as_ref().is_some_and(|said| {
            status::is_complete(self.pace.replicas, deployment.metadata.generation, said)
        });
        let mut actions = if is_complete { self.forget() } else { Vec::new() };
        actions.extend(self.report(true));
        actions
    }

    /// Deletes the oldest sets beyond `revisionHistoryLimit`.
    fn forget(&self) -> Vec<Action> {
        let limit = match self.spec.revision_history_limit {
            Some(limit) if limit != i32::MAX => usize::try_from(limit).unwrap_or(0),
            _ => return Vec::new(),
        };
        let stays = |set: &&Arc<ReplicaSet>| set.metadata.deletion_timestamp.is_none();
        let mut old: Vec<&Arc<ReplicaSet>> = self.old.iter().filter(stays).collect();
        old.sort_by_key(|set| sets::revision(set));
        let surplus = old.len().saturating_sub(limit);
        let unused = old[..surplus].iter().filter(|set| {
            let status = set.status.clone().unwrap_or_default();
            let is_seen = status.observed_generation >= set.metadata.generation;
            status.replicas == 0 && sets::replicas(set) == 0 && is_seen
        });
        unused.map(|set| Action::Delete(Ref::to(&***set), None)).collect()
    }

    /// Writes the status.
    fn report(&self, rolling: bool) -> Vec<Action> {
        let (after, again_at) = self.with_status(rolling);
        if after != *self.state.deployment {
            return vec![Action::Status(after.into())];
        }
        again_at.map(Action::RequeueAt).into_iter().collect()
    }

    /// The deployment with its status, and when to check its progress deadline.
    fn with_status(&self, rolling: bool) -> (Deployment, Option<Timestamp>) {
        let all: Vec<Arc<ReplicaSet>> = self.all().cloned().collect();
        let observed = status::Observed {
            before: &self.state.deployment,
            working: &self.working,
            spec: &self.spec,
            pace: &self.pace,
            all: &all,
            new: self.new.as_ref(),
        };
        let (status, again_at) = status::report(&observed, rolling, self.context);
        let mut after = self.working.clone();
        after.status = Some(status);
        (after, again_at)
    }
}

#[cfg(test)]
mod tests;
