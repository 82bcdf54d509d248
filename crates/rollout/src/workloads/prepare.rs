//! Preconditions of a workload before its pods are resized: its controller has observed the edit, and the object that
//! creates pods has the new resources.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_controller_runtime::revision;

use super::object::Workload;
use super::reconcile::Rollouts;
use super::record::WorkloadRecord;
use super::replica_sets::{self, Live, MOST_STEPS, Sets};
use super::tracker::Key;
use super::write;
use crate::engine::{REVISION_LABEL, can_update};
use crate::request::RequestError;

/// The next step that a workload is ready for.
pub(super) enum Prepared {
    /// Its pods can be resized.
    Ready(Ready),
    /// Its controller has not observed the edit yet.
    Wait,
    /// Its controller has to do it.
    Release(String),
}

impl Prepared {
    fn labelled(owner: String, label: String) -> Self {
        Self::Ready(Ready { owner, label: Some(label), observed: true, sets: None })
    }

    fn created_by(live: &ReplicaSet, sets: Sets) -> Self {
        let observed = live.status.as_ref().and_then(|status| status.observed_generation);
        Self::Ready(Ready {
            owner: live.metadata.uid.clone().unwrap_or_default(),
            label: None,
            observed: observed >= live.metadata.generation,
            sets: Some(sets),
        })
    }
}

/// How the pods of a workload can be resized.
pub(super) struct Ready {
    /// The uid of the object that controls them.
    pub(super) owner: String,
    /// The label that they get.
    pub(super) label: Option<String>,
    /// Whether what creates pods has observed the new template.
    pub(super) observed: bool,
    /// The `ReplicaSets` that were found to be right.
    pub(super) sets: Option<Sets>,
}

impl Rollouts {
    pub(super) async fn prepare(
        &self,
        key: &Key,
        workload: &Workload,
        record: &WorkloadRecord,
    ) -> Result<Prepared, RequestError> {
        let label = match workload {
            Workload::Deployment(deployment) => {
                return self.prepare_deployment(key, deployment, record).await;
            }
            Workload::StatefulSet(set) => {
                set.status.as_ref().and_then(|status| status.update_revision.clone())
            }
            Workload::AdvancedStatefulSet(set) => {
                set.status.as_ref().and_then(|status| status.update_revision.clone())
            }
            Workload::DaemonSet(_) | Workload::AdvancedDaemonSet(_) => self.hash_of(workload),
        };
        let owner = workload.metadata().uid.clone().unwrap_or_default();
        Ok(match label.filter(|_| workload.is_observed()) {
            Some(label) => Prepared::labelled(owner, label),
            None => Prepared::Wait,
        })
    }

    /// A pod of a `StatefulSet` or `DaemonSet` whose revision differs from the template in more than resources: its
    /// controller was in the middle of a rollout of its own, which a label must not hide from it.
    pub(super) fn pod_of_other_template(
        &self,
        owner: &str,
        label: &str,
        template: &PodTemplateSpec,
    ) -> Option<String> {
        let mut equal: BTreeSet<String> = BTreeSet::from([label.to_owned()]);
        for revision in self.informers.revisions.controlled_by(owner) {
            let change =
                revision::template(&revision).map(|before| can_update(&before, template, &self.rules));
            if change.is_some_and(|change| change.is_none() || change.is_vertical()) {
                // Pods of a StatefulSet have its name, those of a DaemonSet its hash.
                equal.extend(revision.metadata.name.clone());
                let labels = revision.metadata.labels.as_ref();
                equal.extend(labels.and_then(|labels| labels.get(REVISION_LABEL).cloned()));
            }
        }
        let pods = self.informers.pods.controlled_by(owner);
        let other = pods.iter().find(|pod| {
            let labels = pod.metadata.labels.as_ref();
            let label = labels.and_then(|labels| labels.get(REVISION_LABEL));
            pod.metadata.deletion_timestamp.is_none() && label.is_some_and(|label| !equal.contains(label))
        });
        other.and_then(|pod| pod.metadata.name.clone())
    }

    /// The hash that the pods of a DaemonSet's latest revision are labelled with, once its controller has recorded it.
    pub(super) fn hash_of(&self, set: &Workload) -> Option<String> {
        let wanted = set.template()?;
        let revisions = self.informers.revisions.controlled_by(set.metadata().uid.as_deref()?);
        let latest = revisions.iter().max_by_key(|revision| revision.revision)?;
        if !can_update(&revision::template(latest)?, wanted, &self.rules).is_none() {
            return None;
        }
        latest.metadata.labels.as_ref()?.get(REVISION_LABEL).cloned()
    }

    async fn prepare_deployment(
        &self,
        key: &Key,
        deployment: &Deployment,
        record: &WorkloadRecord,
    ) -> Result<Prepared, RequestError> {
        let (uid, namespace) = (deployment.metadata.uid.clone().unwrap_or_default(), &key.object.namespace);
        let (held, mut history_done) = (record.hold.is_some(), false);
        for _ in 0..MOST_STEPS {
            let sets = self.informers.replica_sets.controlled_by(&uid);
            let versions = Sets::of(deployment, held, &sets);
            if let Some(live) = self.trackers.prepared(key, &versions)
                && let Some(live) = sets.iter().find(|set| set.metadata.uid.as_ref() == Some(&live))
            {
                return Ok(Prepared::created_by(live, versions));
            }
            let live = match Live::find(deployment, &sets, &self.rules) {
                Live::Found(live) => live,
                // A Deployment that was held before its first sync, or created from the manifest of one that is held: its
                // controller creates no ReplicaSet while it is paused.
                Live::None if has_observed_no_pods(deployment) => {
                    return Ok(Prepared::Release("it has no ReplicaSet yet".to_owned()));
                }
                Live::None => return Ok(Prepared::Wait),
                Live::Several => {
                    return Ok(Prepared::Release("pods of several ReplicaSets run".to_owned()));
                }
                Live::Different(reasons) => {
                    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                    return Ok(Prepared::Release(reasons.join("; ")));
                }
            };
            let step = replica_sets::next_step(deployment, &live, &sets, held, history_done, &self.rules);
            // Once a rollout has ended, only pods are compared.
            if step.is_some() && !record.is_open() {
                return Ok(Prepared::Wait);
            }
            let Some(step) = step else { return Ok(Prepared::created_by(&live, versions)) };
            history_done |= matches!(step, replica_sets::Step::CreateHistory(_));
            write::perform_step(&self.client, &self.informers.replica_sets, namespace, &step).await?;
        }
        Ok(Prepared::Wait)
    }
}

/// Whether the controller of a Deployment has observed its latest spec, and found no pod: the `ReplicaSets` of one that has
/// pods are not in the cache yet.
fn has_observed_no_pods(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation >= deployment.metadata.generation && status.replicas.unwrap_or(0) == 0
    })
}
