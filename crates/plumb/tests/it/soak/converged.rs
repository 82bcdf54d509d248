//! Whether the cluster has converged after the last edit: every object has its desired state, and nothing leaks.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::cluster::Cluster;
use super::invariants::Invariants;
use super::observed_pods::{controller, has_ended, is_active, is_available, namespaced_name, uid};
use super::workloads::TEMPORARY;

/// The message of a difference.
type Check = Result<(), String>;

async fn all<K>(client: &Client) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Api::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

/// Fails with a message unless a condition holds.
fn ensure(ensure: bool, otherwise: impl FnOnce() -> String) -> Check {
    if ensure { Ok(()) } else { Err(otherwise()) }
}

/// Checks whether everything has its desired state.
pub(super) async fn check_converged(cluster: &Cluster, invariants: &Invariants) -> Check {
    let client = cluster.admin();
    let deployments: Vec<Deployment> = all(&client).await;
    let sets: Vec<ReplicaSet> = all(&client).await;
    let stateful: Vec<StatefulSet> = all(&client).await;
    let daemons: Vec<DaemonSet> = all(&client).await;
    let jobs: Vec<Job> = all(&client).await;
    let pods: Vec<Pod> = all(&client).await;
    // Objects of a namespace that is not deleted have not converged either: the status of the namespace says why.
    for namespace in all::<Namespace>(&client).await {
        let name = namespace.metadata.name.unwrap_or_default();
        let remaining = || pods.iter().filter(|pod| pod.metadata.namespace.as_deref() == Some(&*name));
        ensure(!name.starts_with(TEMPORARY), || {
            let remaining: Vec<_> =
                remaining().map(|pod| (&pod.metadata, node_of(pod), &pod.status)).collect();
            format!("namespace {name} exists: {:#?}, its pods: {remaining:#?}", namespace.status)
        })?;
    }
    deployments.iter().try_for_each(check_deployment)?;
    stateful.iter().try_for_each(|set| check_stateful_set(set, &pods))?;
    daemons.iter().try_for_each(check_daemon_set)?;
    jobs.iter().try_for_each(check_job)?;

    let mut owners: BTreeSet<&str> = BTreeSet::new();
    owners.extend(deployments.iter().map(|one| uid(&one.metadata)));
    owners.extend(sets.iter().map(|one| uid(&one.metadata)));
    owners.extend(stateful.iter().map(|one| uid(&one.metadata)));
    owners.extend(daemons.iter().map(|one| uid(&one.metadata)));
    owners.extend(jobs.iter().map(|one| uid(&one.metadata)));
    let crons: Vec<CronJob> = all(&client).await;
    owners.extend(crons.iter().map(|one| uid(&one.metadata)));
    check_owners(&pods, &owners)?;
    check_owners(&sets, &owners)?;
    check_owners(&all::<ControllerRevision>(&client).await, &owners)?;
    let of_cron_jobs: Vec<Job> =
        jobs.iter().filter(|job| controller(&job.metadata).is_some()).cloned().collect();
    check_owners(&of_cron_jobs, &owners)?;

    for pod in &pods {
        let is_healthy = has_ended(pod) || is_available(pod);
        ensure(is_healthy && pod.metadata.deletion_timestamp.is_none(), || {
            format!("pod {:?}: {:#?}", namespaced_name(&pod.metadata), pod.status)
        })?;
        ensure(pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty), || {
            format!("pod {:?} has finalizers {:?}", namespaced_name(&pod.metadata), pod.metadata.finalizers)
        })?;
    }
    check_budgets(&all(&client).await)?;
    check_quotas(&all(&client).await, &pods)?;
    check_leaks(cluster, invariants, &pods).await
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn check_deployment(deployment: &Deployment) -> Check {
    let spec = deployment.spec.clone().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = spec.replicas.unwrap_or(1);
    let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
    let is_observed = status.observed_generation == deployment.metadata.generation;
    let is_complete = counts.iter().all(|count| count.unwrap_or(0) == wanted);
    ensure(is_observed && is_complete && status.unavailable_replicas.unwrap_or(0) == 0, || {
        format!("deployment {:?} of {wanted}: {status:#?}", namespaced_name(&deployment.metadata))
    })
}

fn check_stateful_set(set: &StatefulSet, pods: &[Pod]) -> Check {
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let counts = [status.ready_replicas, status.available_replicas, status.updated_replicas];
    let own = |pod: &&Pod| controller(&pod.metadata).is_some_and(|owner| owner.uid == uid(&set.metadata));
    let active = pods.iter().filter(own).filter(|pod| is_active(pod)).count();
    let is_complete = status.replicas == wanted
        && counts.iter().all(|count| count.unwrap_or(0) == wanted)
        && usize::try_from(wanted) == Ok(active)
        && status.current_revision == status.update_revision;
    ensure(is_complete && status.observed_generation == set.metadata.generation, || {
        format!("stateful set {:?} of {wanted}: {status:#?}", namespaced_name(&set.metadata))
    })
}

fn check_daemon_set(set: &DaemonSet) -> Check {
    let status = set.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let counts = [
        status.current_number_scheduled,
        status.number_ready,
        status.number_available.unwrap_or(0),
        status.updated_number_scheduled.unwrap_or(0),
    ];
    let is_complete = counts.iter().all(|count| *count == wanted) && status.number_misscheduled == 0;
    ensure(is_complete && status.observed_generation == set.metadata.generation, || {
        format!("daemon set {:?}: {status:#?}", namespaced_name(&set.metadata))
    })
}

fn check_job(job: &Job) -> Check {
    let status = job.status.clone().unwrap_or_default();
    let has_condition = |type_: &str| {
        status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    let counted = status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| {
        uncounted.failed.as_ref().is_none_or(Vec::is_empty)
            && uncounted.succeeded.as_ref().is_none_or(Vec::is_empty)
    });
    ensure((has_condition("Complete") || has_condition("Failed")) && counted, || {
        format!("job {:?}: {status:#?}", namespaced_name(&job.metadata))
    })
}

/// Every object has an owner that exists.
fn check_owners<K: Resource<DynamicType = ()>>(objects: &[K], owners: &BTreeSet<&str>) -> Check {
    objects.iter().try_for_each(|object| {
        let owner = controller(object.meta());
        ensure(owner.is_some_and(|owner| owners.contains(owner.uid.as_str())), || {
            format!("{} {:?} has no owner: {owner:?}", K::kind(&()), namespaced_name(object.meta()))
        })
    })
}

fn check_budgets(budgets: &[PodDisruptionBudget]) -> Check {
    budgets.iter().try_for_each(|budget| {
        let status = budget.status.clone().unwrap_or_default();
        ensure(
            status.current_healthy == status.expected_pods
                && status.disrupted_pods.as_ref().is_none_or(std::collections::BTreeMap::is_empty),
            || format!("budget {:?}: {status:#?}", namespaced_name(&budget.metadata)),
        )
    })
}

fn check_quotas(quotas: &[ResourceQuota], pods: &[Pod]) -> Check {
    quotas.iter().try_for_each(|quota| {
        let counted =
            pods.iter().filter(|pod| pod.metadata.namespace == quota.metadata.namespace && !has_ended(pod));
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref()?.get("pods"));
        ensure(used.is_some_and(|used| used.0 == counted.clone().count().to_string()), || {
            format!("{:?} of the quota of {} pods are used", used, counted.count())
        })
    })
}

/// Nodes have nothing left of deleted pods, and the observed pods are those that exist.
async fn check_leaks(cluster: &Cluster, invariants: &Invariants, pods: &[Pod]) -> Check {
    let existing: BTreeSet<&str> = pods.iter().map(|pod| uid(&pod.metadata)).collect();
    let observed: BTreeSet<&str> = invariants.pods.iter().map(|pod| uid(&pod.metadata)).collect();
    ensure(existing == observed, || {
        format!("{} pods exist, and {} were observed", existing.len(), observed.len())
    })?;
    let (sandboxes, allocations) = cluster.pods_on_nodes().await;
    for (what, held) in [("sandbox", sandboxes), ("allocation", allocations)] {
        let leaked = held.iter().find(|uid| !existing.contains(uid.as_str()));
        ensure(leaked.is_none(), || format!("there is a {what} of pod {leaked:?}, which does not exist"))?;
    }
    let running = pods.iter().filter(|pod| !has_ended(pod)).count();
    let (sandboxes, _) = cluster.pods_on_nodes().await;
    ensure(sandboxes.len() >= running, || format!("{} sandboxes for {running} pods", sandboxes.len()))
}
