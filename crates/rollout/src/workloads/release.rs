//! How a workload is given back to its controller.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use plumb_controller_runtime::{ObjectRef, Requeue};

use super::object::Workload;
use super::reconcile::Rollouts;
use super::record::WorkloadRecord;
use super::replica_sets::{self, Live, MOST_STEPS, is_marked_orphan, orphan_step};
use super::write;
use super::{STATUS_ANNOTATION, report};
use crate::engine::{self, Heading, REVISION_LABEL, RolloutOutcome, RolloutStatus};
use crate::request::RequestError;

/// The finalizer of an object whose dependents stay when it is deleted (`metav1.FinalizerOrphanDependents`).
const ORPHAN: &str = "orphan";

impl Rollouts {
    /// Releases a workload to its controller once no change is left to make.
    pub(super) async fn release(
        &self,
        workload: &Workload,
        mut record: WorkloadRecord,
    ) -> Result<Requeue, RequestError> {
        if let Workload::Deployment(deployment) = workload {
            self.step_through(deployment, |sets| match Live::find(deployment, sets, &self.rules) {
                Live::Found(live) => {
                    replica_sets::next_step(deployment, &live, sets, false, true, &self.rules)
                }
                _ => None,
            })
            .await?;
        }
        if !self.is_observed_by_controller(workload) {
            return Ok(Requeue::AwaitChange);
        }
        let (hold, ended) = (record.hold.take(), record.ended.take());
        let mut patch = write::recording(&record);
        if let Some(status) = ended {
            patch = engine::merged(patch, Some(write::reporting(&report::text(&status))));
        }
        if let Some(hold) = hold {
            patch["spec"] = workload.kind().restoring(&hold.restored);
        }
        self.patch(workload, "releasing", patch).await?;
        // The next reconcile sets the condition: `kubectl wait` ends when the workload can be written, too.
        Ok(Requeue::Now)
    }

    /// Whether the workload's controller has observed the writes of its `ReplicaSet` or pods. It watches them
    /// separately from the workload: released before that, it would recreate pods that only its own cache still has
    /// as they were.
    fn is_observed_by_controller(&self, workload: &Workload) -> bool {
        let is_counted = |updated: Option<i32>, owner: Option<&str>, label: Option<&str>| {
            let pods = self.informers.pods.controlled_by(owner.unwrap_or_default());
            let labelled = pods.iter().filter(|pod| {
                let labels = pod.metadata.labels.as_ref();
                let found = labels.and_then(|labels| labels.get(REVISION_LABEL)).map(String::as_str);
                pod.metadata.deletion_timestamp.is_none() && found.is_some() && found == label
            });
            usize::try_from(updated.unwrap_or(0)).is_ok_and(|updated| updated >= labelled.count())
        };
        let is_found = match workload {
            Workload::Deployment(deployment) => {
                let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
                let sets = self.informers.replica_sets.controlled_by(uid);
                let updated = deployment.status.as_ref().and_then(|status| status.updated_replicas);
                match Live::find(deployment, &sets, &self.rules) {
                    // Only one that equals the template is counted.
                    Live::Found(live) => {
                        updated.unwrap_or(0) > 0
                            || live.status.as_ref().is_none_or(|status| status.replicas == 0)
                    }
                    _ => true,
                }
            }
            Workload::StatefulSet(set) => {
                let status = set.status.as_ref();
                let revision = status.and_then(|status| status.update_revision.as_deref());
                is_counted(
                    status.and_then(|status| status.updated_replicas),
                    set.metadata.uid.as_deref(),
                    revision,
                )
            }
            Workload::DaemonSet(set) => {
                let counted = set.status.as_ref().map(|status| {
                    daemons_counted(status.updated_number_scheduled, status.number_misscheduled)
                });
                is_counted(counted, set.metadata.uid.as_deref(), self.hash_of(workload).as_deref())
            }
            Workload::AdvancedStatefulSet(set) => {
                let status = set.status.as_ref();
                let revision = status.and_then(|status| status.update_revision.as_deref());
                let updated = status.and_then(|status| status.updated_replicas);
                is_counted(updated, set.metadata.uid.as_deref(), revision)
            }
            Workload::AdvancedDaemonSet(set) => {
                let counted = set.status.as_ref().map(|status| {
                    daemons_counted(status.updated_number_scheduled, status.number_misscheduled)
                });
                is_counted(counted, set.metadata.uid.as_deref(), self.hash_of(workload).as_deref())
            }
        };
        is_found && workload.is_observed()
    }

    /// Leaves the pods of a workload to its controller, which recreates them.
    pub(super) async fn leave(
        &self,
        workload: &Workload,
        mut record: WorkloadRecord,
        why: &str,
    ) -> Result<Requeue, RequestError> {
        record.rollout.heading = Heading::Recreate;
        record.rollout.outcome = Some(RolloutOutcome::Recreated);
        record.ended = None;
        let reported = workload.annotation(STATUS_ANNOTATION);
        let status = RolloutStatus::recreating(reported, &record.rollout.revision, why, workload.replicas());
        // Before the release: an uninstallation waits for that alone. The next reconcile comes to the same.
        if self.set_condition(workload, &status).await {
            return Ok(Requeue::Now);
        }
        self.restore_replica_sets(workload, &record).await?;
        let now = self.clock.now();
        let hold = record.hold.take();
        let mut patch =
            engine::merged(write::recording(&record), Some(write::reporting(&report::text(&status))));
        if let Some(hold) = hold {
            patch["spec"] = workload.kind().restoring(&hold.restored);
        }
        self.patch(workload, "releasing", patch).await?;
        self.metrics.finished(RolloutOutcome::Recreated, now.duration_since(record.rollout.started_at));
        self.reporter.released(workload, why, now);
        Ok(Requeue::Now)
    }

    /// Restores the `ReplicaSets` of a Deployment that is left to its controller to their state before the hold.
    pub(super) async fn restore_replica_sets(
        &self,
        workload: &Workload,
        record: &WorkloadRecord,
    ) -> Result<(), RequestError> {
        let (Workload::Deployment(deployment), Some(RolloutOutcome::Recreated)) =
            (workload, record.rollout.outcome)
        else {
            return Ok(());
        };
        let previous = &record.previous_template;
        self.step_through(deployment, |sets| replica_sets::release_step(sets, previous, &self.rules)).await
    }

    /// Takes the mark of a hold from a ReplicaSet of this name that nothing controls any more: a Deployment that is created again
    /// would take it for one of another template, and recreate its pods.
    pub(super) async fn unmark_orphan(&self, object: &ObjectRef) -> Result<(), RequestError> {
        let set = self.informers.replica_sets.get(object).filter(|set| is_marked_orphan(set));
        let Some(step) = set.and_then(|set| orphan_step(&set)) else { return Ok(()) };
        write::perform_step(&self.client, &self.informers.replica_sets, &object.namespace, &step).await
    }

    /// The same for the `ReplicaSets` of a Deployment that is being deleted and leaves them behind.
    pub(super) async fn unmark_orphans_of(&self, workload: &Workload) -> Result<(), RequestError> {
        let metadata = workload.metadata();
        let orphans = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN);
        match workload {
            Workload::Deployment(deployment) if orphans => {
                self.step_through(deployment, |sets| sets.iter().find_map(|set| orphan_step(set))).await
            }
            _ => Ok(()),
        }
    }

    /// Performs one step after the other, each decided from the `ReplicaSets` after the one before.
    async fn step_through(
        &self,
        deployment: &Deployment,
        next: impl Fn(&[Arc<ReplicaSet>]) -> Option<replica_sets::Step> + Send,
    ) -> Result<(), RequestError> {
        let uid = deployment.metadata.uid.clone().unwrap_or_default();
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        for _ in 0..MOST_STEPS {
            let step = next(&self.informers.replica_sets.controlled_by(&uid));
            let Some(step) = step else { break };
            write::perform_step(&self.client, &self.informers.replica_sets, &namespace, &step).await?;
        }
        Ok(())
    }
}

/// How many pods of a DaemonSet may have the label of its latest revision, as far as its controller has observed them. It does not
/// count those on nodes that should run none, such as one that was tainted since, among the updated ones.
fn daemons_counted(updated: Option<i32>, misscheduled: i32) -> i32 {
    updated.unwrap_or(0).saturating_add(misscheduled)
}
