//! `StatefulSets`: pods with an identity, each with an ordinal, a name and claims of its own.
//!
//! ```text
//!   revision of the template ──▶ ordinals from the lowest: created, updated, replaced when they have finished
//!                                  ▸ surplus pods, from the highest: deleted
//!                                  ▸ pods of another revision, from the highest down to the partition: deleted
//! ```
//!
//! With the pod management policy `OrderedReady` (the default) each step waits for the previous ones, and one pod at a
//! time is created or deleted; with `Parallel` all ordinals are created and deleted at once. Updates are one by one in
//! either case. [`decide`] decides about one set; `identity.rs` has the identity of pods, `storage.rs` their claims.

mod identity;
mod storage;
mod workload;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::revision::{self, Subject};
use crate::workload::{Action, Note, Ref, pods};
use identity::{labels, name, new_pod, ordinal, range, says_its_name, start};
use plumb_controller_runtime::controller_reference;
pub use storage::Claims;
use storage::{Obstacle, obstacle, to_hand_over};
pub use workload::StatefulSets;

/// The name of the controller's user.
pub const NAME: &str = "statefulset-controller";
/// The label with the revision of a pod.
const REVISION: &str = "controller-revision-hash";
/// The label with the hash of a revision.
const HASH: &str = "controller.kubernetes.io/hash";

/// A `StatefulSet` with the objects that a decision reads.
#[derive(Clone)]
pub struct State {
    /// The set.
    pub set: Arc<StatefulSet>,
    /// The pods that it controls.
    pub pods: Vec<Arc<Pod>>,
    /// The revisions that it controls.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The names of all revisions in its namespace.
    pub taken: BTreeSet<String>,
    /// The claims that may belong to its pods.
    pub claims: Claims,
}

/// The spec of a set.
pub(crate) fn spec(set: &StatefulSet) -> &StatefulSetSpec {
    static NONE: LazyLock<StatefulSetSpec> = LazyLock::new(StatefulSetSpec::default);
    set.spec.as_ref().unwrap_or(&NONE)
}

/// Decides the actions for a set.
pub fn decide(state: &State, now: Timestamp) -> Vec<Action> {
    let set = &*state.set;
    let is_terminating = set.metadata.deletion_timestamp.is_some();
    let mut revisions = state.revisions.clone();
    revision::sort(&mut revisions);
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let subject = Subject {
        metadata: &set.metadata,
        owner: controller_reference(set),
        template: &spec(set).template,
        label: HASH,
        collisions,
    };
    let settled = revision::settle(&subject, &revisions, &state.taken);
    // The garbage collector deletes the revisions of a terminating set, so they are not created again.
    let settled = if is_terminating { Ok(settled.revision()) } else { revision::there(settled) };
    let update = match settled {
        Ok(update) => update,
        Err(write) => return vec![*write],
    };
    let was = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
    let current = revisions.iter().find(|one| Some(revision::name(one)) == was).unwrap_or(&update).clone();
    let mut reconciliation = Reconciliation::new(state, &current, &update, now);
    if !is_terminating {
        reconciliation.take();
    }
    let status = reconciliation.status(&current, &update);
    let mut actions = Vec::new();
    if set.status.as_ref() != Some(&status) {
        actions.push(Action::Status(StatefulSet { status: Some(status), ..set.clone() }.into()));
    }
    actions.extend(reconciliation.actions);
    let again = pods::next_available(&state.pods, min_ready_seconds(set), now);
    actions.extend(again.map(Action::RequeueAt));
    if is_terminating {
        return actions;
    }
    let used: BTreeSet<&str> = state.pods.iter().filter_map(|pod| revision_of(pod)).collect();
    let live = [revision::name(&current), revision::name(&update)];
    let is_past = |one: &ControllerRevision| {
        !live.contains(&revision::name(one)) && !used.contains(revision::name(one))
    };
    let limit = spec(set).revision_history_limit.unwrap_or(10);
    actions.extend(revision::forgotten(&revisions, is_past, |_: &ControllerRevision| false, limit));
    actions
}

fn min_ready_seconds(set: &StatefulSet) -> i32 {
    spec(set).min_ready_seconds.unwrap_or(0)
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(REVISION).map(String::as_str)
}

/// The pod of an ordinal, or a missing pod.
#[derive(Clone, Copy)]
enum Slot<'a> {
    There(&'a Arc<Pod>, i32),
    Missing(i32),
}

/// Whether to continue with the next ordinal, or to wait for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    Wait,
}

/// One reconcile of a set.
struct Reconciliation<'a> {
    state: &'a State,
    now: Timestamp,
    /// The desired ordinals.
    slots: Vec<Slot<'a>>,
    /// The pods of other ordinals, the highest first.
    condemned: Vec<(&'a Arc<Pod>, i32)>,
    current: (PodTemplateSpec, String),
    update: (PodTemplateSpec, String),
    /// Whether one pod at a time is created or deleted (`OrderedReady`).
    in_order: bool,
    actions: Vec<Action>,
    deleted: Vec<&'a Arc<Pod>>,
    /// Whether a pod of the current revision is deleted for the update.
    is_updated: bool,
}

impl<'a> Reconciliation<'a> {
    fn new(
        state: &'a State,
        current: &ControllerRevision,
        update: &ControllerRevision,
        now: Timestamp,
    ) -> Self {
        let set = &*state.set;
        let range = range(set);
        let numbered = state.pods.iter().filter_map(|pod| Some((pod, ordinal(set, pod)?)));
        let (wanted, mut condemned): (Vec<_>, Vec<_>) =
            numbered.partition(|(_, ordinal)| range.contains(ordinal));
        let mut slots: Vec<Slot<'a>> = range.clone().map(Slot::Missing).collect();
        for (pod, ordinal) in wanted {
            if let Some(slot) = usize::try_from(ordinal - range.start).ok().and_then(|at| slots.get_mut(at)) {
                *slot = Slot::There(pod, ordinal);
            }
        }
        condemned.sort_by_key(|(_, ordinal)| std::cmp::Reverse(*ordinal));
        let template = |of: &ControllerRevision| {
            let template = revision::template(of).unwrap_or_else(|| spec(set).template.clone());
            (template, revision::name(of).to_owned())
        };
        let in_order = spec(set).pod_management_policy.as_deref() != Some("Parallel");
        Self {
            state,
            now,
            slots,
            condemned,
            current: template(current),
            update: template(update),
            in_order,
            actions: Vec::new(),
            deleted: Vec::new(),
            is_updated: false,
        }
    }

    fn take(&mut self) {
        for slot in self.slots.clone() {
            let then = match slot {
                Slot::There(pod, ordinal) => self.keep(pod, ordinal),
                Slot::Missing(ordinal) => self.make(ordinal),
            };
            if self.in_order && then == Then::Wait {
                return;
            }
        }
        for (pod, ordinal) in self.condemned.clone() {
            self.hand_over(pod, ordinal);
        }
        let unhealthy = self.first_unavailable();
        for (pod, _) in self.condemned.clone() {
            if self.in_order {
                let is_first = unhealthy.is_some_and(|first| Arc::ptr_eq(first, pod));
                if !pods::is_terminating(pod) && (self.is_available(pod) || is_first) {
                    self.delete(pod);
                }
                return;
            }
            if !pods::is_terminating(pod) {
                self.delete(pod);
            }
        }
        if self.strategy() != "OnDelete" {
            self.update();
        }
    }

    fn strategy(&self) -> &str {
        let strategy = spec(&self.state.set).update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate")
    }

    fn delete(&mut self, pod: &'a Arc<Pod>) {
        if !self.deleted.iter().any(|deleted| Arc::ptr_eq(deleted, pod)) {
            self.deleted.push(pod);
            self.actions.push(Action::Delete(Ref::to(&**pod), None));
        }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let seconds = min_ready_seconds(&self.state.set);
        pods::phase(pod) == "Running" && pods::is_available(pod, seconds, self.now)
    }

    /// Reconciles an existing pod of a desired ordinal.
    fn keep(&mut self, pod: &'a Arc<Pod>, ordinal: i32) -> Then {
        let set = &*self.state.set;
        if pods::has_ended(pod) {
            if !pods::is_terminating(pod) {
                self.delete(pod);
            }
            return Then::Wait;
        }
        let is_pending = pods::phase(pod) == "Pending";
        if is_pending {
            if let Some(Obstacle::Missing(claims)) = obstacle(set, ordinal, &self.state.claims) {
                self.actions.extend(claims.into_iter().map(|claim| Action::Create(claim.into())));
            }
            self.hand_over(pod, ordinal);
        }
        if self.in_order && (pods::is_terminating(pod) || !self.is_available(pod)) {
            return Then::Wait;
        }
        let before = self.actions.len();
        if !says_its_name(pod) {
            let labels: serde_json::Map<_, _> =
                labels(name(&**pod), ordinal).into_iter().map(|(key, value)| (key, json!(value))).collect();
            self.actions.push(Action::Patch(Ref::to(&**pod), json!({ "metadata": { "labels": labels } })));
        }
        if !is_pending {
            self.hand_over(pod, ordinal);
        }
        if self.actions.len() > before {
            let message = format!("Update Pod {} in StatefulSet {} successful", name(&**pod), name(set));
            self.actions.push(Action::Event(Note::normal("SuccessfulUpdate", message)));
        }
        Then::GoOn
    }

    /// Updates the owner references of a pod's claims by the retention policy.
    fn hand_over(&mut self, pod: &Pod, ordinal: i32) {
        let claims = to_hand_over(&self.state.set, pod, ordinal, &self.state.claims);
        self.actions.extend(claims.into_iter().map(|claim| Action::Replace(claim.into())));
    }

    /// Creates the missing pod of a desired ordinal.
    fn make(&mut self, ordinal: i32) -> Then {
        let set = &*self.state.set;
        match obstacle(set, ordinal, &self.state.claims) {
            None => {
                let (template, revision) = self.template_for(ordinal);
                let pod = new_pod(set, ordinal, template, revision);
                self.actions.push(Action::Create(pod.into()));
            }
            // The pod is created once its claims exist.
            Some(Obstacle::Missing(claims)) => {
                self.actions.extend(claims.into_iter().map(|claim| Action::Create(claim.into())));
                self.actions.push(Action::RequeueAt(self.now));
            }
            Some(Obstacle::Going(claim)) => {
                let set = name(set);
                let message = format!(
                    "Create Pod {set}-{ordinal} in StatefulSet {set} failed error: pvc {claim} is being deleted"
                );
                self.actions.push(Action::Event(Note::warning("FailedCreate", message)));
            }
        }
        Then::Wait
    }

    /// The template and revision of a new pod: the current revision below the partition, else the update revision.
    fn template_for(&self, ordinal: i32) -> (&PodTemplateSpec, &str) {
        let set = &*self.state.set;
        let rolling =
            spec(set).update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let kept = match rolling {
            Some(rolling) => rolling.partition.unwrap_or(0),
            None if self.strategy() == "RollingUpdate" => {
                set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0)
            }
            None => 0,
        };
        let (template, revision) =
            if ordinal < start(set).saturating_add(kept) { &self.current } else { &self.update };
        (template, revision)
    }

    /// The unavailable pod with the lowest ordinal.
    fn first_unavailable(&self) -> Option<&'a Arc<Pod>> {
        for slot in &self.slots {
            match slot {
                Slot::Missing(_) => return None,
                Slot::There(pod, _) if pods::is_terminating(pod) || !self.is_available(pod) => {
                    return Some(pod);
                }
                Slot::There(..) => {}
            }
        }
        let mut condemned = self.condemned.iter().rev().map(|(pod, _)| *pod);
        condemned.find(|pod| pods::is_terminating(pod) || !self.is_available(pod))
    }

    /// Deletes one pod of another revision, once those with higher ordinals are available.
    fn update(&mut self) {
        let rolling = spec(&self.state.set).update_strategy.as_ref();
        let partition = rolling.and_then(|strategy| strategy.rolling_update.as_ref()?.partition).unwrap_or(0);
        let kept = usize::try_from(partition).unwrap_or(0);
        for slot in self.slots.clone().into_iter().skip(kept).rev() {
            let Slot::There(pod, _) = slot else { return };
            let is_terminating =
                pods::is_terminating(pod) || self.deleted.iter().any(|deleted| Arc::ptr_eq(deleted, pod));
            if revision_of(pod) != Some(&self.update.1) && !is_terminating {
                self.is_updated = revision_of(pod) == Some(&self.current.1);
                self.delete(pod);
                return;
            }
            if is_terminating || !self.is_available(pod) {
                return;
            }
        }
    }

    fn status(&self, current: &ControllerRevision, update: &ControllerRevision) -> StatefulSetStatus {
        let set = &*self.state.set;
        let there = self.slots.iter().filter_map(|slot| match slot {
            Slot::There(pod, _) => Some(*pod),
            Slot::Missing(_) => None,
        });
        let all: Vec<&Arc<Pod>> = there.chain(self.condemned.iter().map(|(pod, _)| *pod)).collect();
        let count = |is: &dyn Fn(&Pod) -> bool| -> i32 {
            i32::try_from(all.iter().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
        };
        let is_ready = |pod: &Pod| pods::phase(pod) == "Running" && pods::is_ready(pod);
        let is_of = |pod: &Pod, revision: &ControllerRevision| {
            !pods::is_terminating(pod) && revision_of(pod) == Some(revision::name(revision))
        };
        let replicas = count(&|_| true);
        let ready = count(&is_ready);
        let updated = count(&|pod| is_of(pod, update));
        let mut on_current = count(&|pod| is_of(pod, current)) - i32::from(self.is_updated);
        let mut current = revision::name(current);
        let wanted = spec(set).replicas.unwrap_or(1);
        let is_rolled_out = updated == wanted && ready == wanted && replicas == wanted;
        if self.strategy() == "RollingUpdate" && is_rolled_out {
            (current, on_current) = (revision::name(update), updated);
        }
        let before = set.status.clone().unwrap_or_default();
        let nonzero = |count: i32| Some(count).filter(|count| *count != 0);
        StatefulSetStatus {
            observed_generation: set.metadata.generation.max(before.observed_generation),
            replicas,
            ready_replicas: nonzero(ready),
            available_replicas: Some(count(&|pod| self.is_available(pod))),
            current_replicas: nonzero(on_current),
            updated_replicas: nonzero(updated),
            current_revision: Some(current.to_owned()),
            update_revision: Some(revision::name(update).to_owned()),
            collision_count: Some(before.collision_count.unwrap_or(0)),
            conditions: before.conditions,
        }
    }
}

#[cfg(test)]
mod tests;
