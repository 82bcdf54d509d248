//! Replica sets and replication controllers.
//!
//! Finished and terminating pods do not count, and are replaced. A scale-down deletes pods in the order of
//! [`pods::rank_for_deletion`].

mod controller;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use k8s_openapi::jiff::Timestamp;

use crate::workload::claim::claims;
use crate::workload::{Action, Context, Informers, Ref, Verb, Watches, Workload, pods};
use plumb_controller_runtime::{controller_of, controller_reference};

pub use controller::ReplicationControllers;

/// The maximum number of pods that one reconcile creates or deletes (upstream's burst replicas).
const AT_A_TIME: usize = 500;
/// The condition of a set whose pods cannot be created or deleted.
const FAILURE: &str = "ReplicaFailure";

/// The controller of replica sets.
pub struct ReplicaSets;

/// A replica set with the objects that a decision reads.
#[derive(Clone, Debug)]
pub struct State {
    /// The set.
    pub set: Arc<ReplicaSet>,
    /// Its pods.
    pub pods: Vec<Arc<Pod>>,
    /// The pods of all sets of the same owner, including this one.
    pub related: Vec<Arc<Pod>>,
}

impl Workload for ReplicaSets {
    const NAME: &'static str = "replicaset-controller";
    type Kind = ReplicaSet;
    type State = State;

    fn watch(&self, watches: &Watches<ReplicaSet>) {
        watches.owned::<Pod>(selector);
    }

    fn claims(&self, set: &ReplicaSet, informers: &Informers) -> Vec<Action> {
        let claims = claims(set, selector(set).as_ref(), &informers.pods);
        // As upstream's `FilterActivePods`: a finished pod does not count as a replica.
        let ended = |of: &Ref| informers.pods.get(&of.object_ref()).is_some_and(|pod| pods::has_ended(&pod));
        claims.into_iter().filter(|action| !matches!(action, Action::Adopt(of) if ended(of))).collect()
    }

    fn gather(&self, set: &Arc<ReplicaSet>, informers: &Informers) -> State {
        let of =
            |set: &ReplicaSet| informers.pods.controlled_by(set.metadata.uid.as_deref().unwrap_or_default());
        let pods = of(set);
        let related = match controller_of(&set.metadata) {
            Some(owner) => {
                informers.replica_sets.controlled_by(&owner.uid).iter().flat_map(|set| of(set)).collect()
            }
            None => pods.clone(),
        };
        State { set: set.clone(), pods, related }
    }

    fn decide(&self, state: &State, context: &Context) -> Vec<Action> {
        let decided = decide(state, &controller_reference(&*state.set), context);
        let mut actions = Vec::new();
        if let Some(status) = decided.status {
            let mut set = (*state.set).clone();
            set.status = Some(status);
            actions.push(Action::Status(set.into()));
        }
        actions.extend(decided.actions);
        actions.extend(decided.again_at.map(Action::RequeueAt));
        actions
    }
}

fn selector(set: &ReplicaSet) -> Option<LabelSelector> {
    set.spec.as_ref().map(|spec| spec.selector.clone())
}

/// The decision about a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The pods to create or delete.
    pub actions: Vec<Action>,
    /// The new status, if it changed.
    pub status: Option<ReplicaSetStatus>,
    /// When to reconcile again, as a pod becomes available then.
    pub again_at: Option<Timestamp>,
}

/// Decides about a set. `owner` is the controller reference of its pods.
pub fn decide(state: &State, owner: &OwnerReference, context: &Context) -> Decided {
    let spec = state.set.spec.clone().unwrap_or_default();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let (mut active, rest): (Vec<_>, Vec<_>) =
        state.pods.iter().cloned().partition(|pod| pods::is_active(pod));
    let terminating = rest.iter().filter(|pod| pods::is_terminating(pod) && !pods::has_ended(pod)).count();
    let status = status(&state.set, &active, terminating, wanted, context);
    let mut actions = Vec::new();
    if state.set.metadata.deletion_timestamp.is_none() {
        if active.len() < wanted {
            let metadata = &state.set.metadata;
            let namespace = metadata.namespace.as_deref();
            let name = metadata.name.as_deref();
            let pod = pods::from_template(
                &spec.template.clone().unwrap_or_default(),
                namespace.unwrap_or_default(),
                name.unwrap_or_default(),
                owner.clone(),
            );
            let missing = (wanted - active.len()).min(AT_A_TIME);
            actions.extend((0..missing).map(|_| Action::Create(pod.clone().into())));
        } else if active.len() > wanted {
            let surplus = (active.len() - wanted).min(AT_A_TIME);
            if wanted > 0 {
                pods::rank_for_deletion(&mut active, &state.related, context.now);
            }
            actions.extend(active[..surplus].iter().map(|pod| Action::Delete(Ref::to(&**pod), None)));
        }
    }
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let again_at = pods::next_available(&active, min_ready, context.now);
    let changed = state.set.status.as_ref() != Some(&status);
    Decided { actions, status: changed.then_some(status), again_at }
}

fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    wanted: usize,
    context: &Context,
) -> ReplicaSetStatus {
    let spec = set.spec.clone().unwrap_or_default();
    let labels = spec.template.and_then(|template| template.metadata).and_then(|said| said.labels);
    let labels = labels.unwrap_or_default();
    let has_all = |pod: &Pod| {
        let of_pod = pod.metadata.labels.as_ref();
        labels.iter().all(|(key, value)| of_pod.and_then(|all| all.get(key)) == Some(value))
    };
    let count = |of: &dyn Fn(&Pod) -> bool| {
        Some(i32::try_from(active.iter().filter(|pod| of(pod)).count()).unwrap_or(i32::MAX))
    };
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let before = set.status.clone().unwrap_or_default();
    ReplicaSetStatus {
        replicas: count(&|_| true).unwrap_or_default(),
        fully_labeled_replicas: count(&has_all).filter(|count| *count > 0),
        ready_replicas: count(&pods::is_ready).filter(|count| *count > 0),
        available_replicas: count(&|pod| pods::is_available(pod, min_ready, context.now))
            .filter(|count| *count > 0),
        terminating_replicas: Some(i32::try_from(terminating).unwrap_or(i32::MAX)),
        observed_generation: set.metadata.generation,
        conditions: conditions(before.conditions, active.len(), wanted, context),
    }
}

/// The conditions of a set: `ReplicaFailure` if pods could not be created or deleted.
fn conditions(
    before: Option<Vec<ReplicaSetCondition>>,
    active: usize,
    wanted: usize,
    context: &Context,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = before.unwrap_or_default();
    let said = conditions.iter().any(|condition| condition.type_ == FAILURE);
    let failure = context.failure.as_ref().filter(|failure| failure.verb != Verb::Change);
    match failure {
        Some(failure) if !said => conditions.push(ReplicaSetCondition {
            type_: FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(if active < wanted { "FailedCreate" } else { "FailedDelete" }.to_owned()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(context.time()),
        }),
        None => conditions.retain(|condition| condition.type_ != FAILURE),
        Some(_) => {}
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests;
