//! The invariants of the cluster, checked with every event.

mod daemons;
mod deployments;
mod jobs;
mod stateful;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_resize::Quantity;

use self::daemons::Daemons;
use self::deployments::Deployments;
use self::jobs::Jobs;
use self::stateful::StatefulSets;
use super::observed_pods::{DeletedByEditor, PodChange, Pods, cpu, has_ended, name, namespaced_name};
use super::observer::{ObservedEvent, ObservedObject};
use super::workloads::{LIMITED, LIMITED_CPU, LIMITED_PODS};

/// The message of a violation.
pub(super) type Check = Result<(), String>;

/// The observed objects, and the invariants over them.
pub(super) struct Invariants {
    pub(super) pods: Pods,
    pub(super) deployments: Deployments,
    pub(super) sets: StatefulSets,
    pub(super) daemons: Daemons,
    pub(super) jobs: Jobs,
    nodes: Vec<Node>,
    /// The number of checked events.
    pub(super) checked: u64,
}

impl Invariants {
    pub(super) fn new(deleted_by_editor: DeletedByEditor) -> Self {
        Self {
            pods: Pods::new(deleted_by_editor),
            deployments: Deployments::default(),
            sets: StatefulSets::default(),
            daemons: Daemons::default(),
            jobs: Jobs::default(),
            nodes: Vec::new(),
            checked: 0,
        }
    }

    /// Applies an event, and checks the invariants.
    pub(super) fn apply(&mut self, event: ObservedEvent, now: Duration) -> Check {
        self.checked += 1;
        let deleted = event.deleted;
        match event.object {
            ObservedObject::Pod(pod) => {
                let change = self.pods.apply(*pod, deleted, now);
                self.check(&change, now)
            }
            ObservedObject::ReplicaSet(set) => self.deployments.apply_replica_set(*set, deleted, now),
            ObservedObject::Deployment(deployment) => {
                self.deployments.apply(*deployment, deleted, now);
                Ok(())
            }
            ObservedObject::StatefulSet(set) => {
                self.sets.apply(*set, deleted, now);
                Ok(())
            }
            ObservedObject::DaemonSet(set) => {
                self.daemons.apply(*set, deleted);
                Ok(())
            }
            ObservedObject::Job(job) => self.jobs.apply(*job, deleted, now, &self.pods),
            ObservedObject::CronJob(cron_job) => {
                self.jobs.apply_cron_job(*cron_job, deleted);
                Ok(())
            }
            ObservedObject::Node(node) => {
                self.nodes.retain(|known| known.metadata.name != node.metadata.name);
                self.nodes.push(*node);
                Ok(())
            }
        }
    }

    fn check(&mut self, change: &PodChange, now: Duration) -> Check {
        let (namespace, name) = namespaced_name(&change.pod().metadata);
        let checked = check_transitions(change)
            .and_then(|()| self.check_quota(change))
            .and_then(|()| self.check_node_capacity(change))
            .and_then(|()| self.deployments.check(change, &self.pods, now))
            .and_then(|()| self.sets.check(change, &self.pods, now))
            .and_then(|()| self.daemons.check(change, &self.pods))
            .and_then(|()| self.jobs.check(change, &self.pods, now));
        checked.map_err(|violation| format!("pod {namespace}/{name}: {violation}"))
    }

    /// The pods of a namespace are within its quota.
    fn check_quota(&self, change: &PodChange) -> Check {
        if change.pod().metadata.namespace.as_deref() != Some(LIMITED) || change.after.is_none() {
            return Ok(());
        }
        let counted = || self.pods.in_namespace(LIMITED).filter(|pod| !has_ended(pod));
        let (pods, cores) = (counted().count(), counted().map(cpu).sum::<i64>());
        let max_pods = LIMITED_CPU.parse().map(Quantity::saturating_milli).unwrap();
        if i64::try_from(pods).unwrap() > LIMITED_PODS || cores > max_pods {
            return Err(format!("the namespace has {pods} pods that request {cores}m, more than its quota"));
        }
        Ok(())
    }

    /// The pods of a node fit its allocatable resources.
    fn check_node_capacity(&self, change: &PodChange) -> Check {
        let Some(node) = node_of(change.pod()) else { return Ok(()) };
        if change.before.as_ref().and_then(node_of) == Some(node) || change.after.is_none() {
            return Ok(());
        }
        let Some(known) = self.nodes.iter().find(|known| name(&known.metadata) == node) else {
            return Err(format!("it is bound to {node}, which does not exist"));
        };
        let allocatable = known.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable_of = |resource: &str| {
            allocatable
                .and_then(|all| all.get(resource)?.0.parse().ok())
                .map_or(0, Quantity::saturating_milli)
        };
        let on_node = || self.pods.iter().filter(|pod| node_of(pod) == Some(node) && !has_ended(pod));
        let (pods, cores) = (i64::try_from(on_node().count()).unwrap(), on_node().map(cpu).sum::<i64>());
        if cores > allocatable_of("cpu") || pods * 1000 > allocatable_of("pods") {
            return Err(format!("{node} has {pods} pods that request {cores}m, more than is allocatable"));
        }
        Ok(())
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// A pod that has ended does not run again, a bound pod keeps its node, a terminating pod stays terminating.
fn check_transitions(change: &PodChange) -> Check {
    let (Some(before), Some(now)) = (&change.before, &change.after) else { return Ok(()) };
    if has_ended(before) && !has_ended(now) {
        return Err("it had ended, and runs again".to_owned());
    }
    if node_of(before).is_some() && node_of(before) != node_of(now) {
        return Err(format!("it moved from node {:?} to {:?}", node_of(before), node_of(now)));
    }
    if before.metadata.deletion_timestamp.is_some() && now.metadata.deletion_timestamp.is_none() {
        return Err("its deletion timestamp was removed".to_owned());
    }
    Ok(())
}
