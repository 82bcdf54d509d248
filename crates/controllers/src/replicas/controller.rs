//! Replication controllers, which are converted to replica sets.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    Pod, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{State, decide};
use crate::workload::claim::claims;
use crate::workload::{Action, Context, Informers, Watches, Workload};
use plumb_controller_runtime::controller_reference;

/// The controller of replication controllers.
pub struct ReplicationControllers;

impl Workload for ReplicationControllers {
    const NAME: &'static str = "replication-controller";
    type Kind = ReplicationController;
    type State = (Arc<ReplicationController>, State);

    fn watch(&self, watches: &Watches<ReplicationController>) {
        watches.owned::<Pod>(selector);
    }

    fn claims(&self, controller: &ReplicationController, informers: &Informers) -> Vec<Action> {
        claims(controller, selector(controller).as_ref(), &informers.pods)
    }

    fn gather(&self, controller: &Arc<ReplicationController>, informers: &Informers) -> Self::State {
        let uid = controller.metadata.uid.as_deref().unwrap_or_default();
        let pods = informers.pods.controlled_by(uid);
        let set = Arc::new(as_set(controller));
        (controller.clone(), State { set, related: pods.clone(), pods })
    }

    fn decide(&self, (controller, state): &Self::State, context: &Context) -> Vec<Action> {
        let decided = decide(state, &controller_reference(&**controller), context);
        let mut actions = Vec::new();
        let status = decided.status.map(from_set);
        if let Some(status) = status.filter(|status| controller.status.as_ref() != Some(status)) {
            let mut controller = (**controller).clone();
            controller.status = Some(status);
            actions.push(Action::Status(controller.into()));
        }
        actions.extend(decided.actions);
        actions.extend(decided.again_at.map(Action::RequeueAt));
        actions
    }
}

fn selector(controller: &ReplicationController) -> Option<LabelSelector> {
    let labels = controller.spec.as_ref()?.selector.clone()?;
    Some(LabelSelector { match_labels: Some(labels), match_expressions: None })
}

fn as_set(controller: &ReplicationController) -> ReplicaSet {
    let spec = controller.spec.clone().unwrap_or_default();
    let status = controller.status.clone();
    ReplicaSet {
        metadata: controller.metadata.clone(),
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: spec.replicas,
            selector: selector(controller).unwrap_or_default(),
            template: spec.template,
        }),
        status: status.map(|status| ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| {
                let each = all.into_iter().map(|one| ReplicaSetCondition {
                    last_transition_time: one.last_transition_time,
                    message: one.message,
                    reason: one.reason,
                    status: one.status,
                    type_: one.type_,
                });
                each.collect()
            }),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }),
    }
}

fn from_set(status: ReplicaSetStatus) -> ReplicationControllerStatus {
    ReplicationControllerStatus {
        available_replicas: status.available_replicas,
        conditions: status.conditions.map(|all| {
            let each = all.into_iter().map(|one| ReplicationControllerCondition {
                last_transition_time: one.last_transition_time,
                message: one.message,
                reason: one.reason,
                status: one.status,
                type_: one.type_,
            });
            each.collect()
        }),
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        replicas: status.replicas,
    }
}
