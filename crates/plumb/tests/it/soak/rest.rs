//! What a cluster is like that nobody edits any more: as it was asked to be, and nothing besides.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::laws::Laws;
use super::ledger::{controller, has_ended, is_active, place, serves, uid};
use super::world::World;
use super::zoo::GUEST;

/// Why it is not at rest, in words.
type Unrest = Result<(), String>;

async fn all<K>(client: &Client) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Api::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

/// Refuses what is not so.
fn holds(holds: bool, otherwise: impl FnOnce() -> String) -> Unrest {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Whether everything is as it was asked to be.
pub(super) async fn at_rest(world: &World, laws: &Laws) -> Unrest {
    let client = world.admin();
    let deployments: Vec<Deployment> = all(&client).await;
    let sets: Vec<ReplicaSet> = all(&client).await;
    let stateful: Vec<StatefulSet> = all(&client).await;
    let daemons: Vec<DaemonSet> = all(&client).await;
    let jobs: Vec<Job> = all(&client).await;
    let pods: Vec<Pod> = all(&client).await;
    // Whatever is in a namespace that does not go is not at rest either: the namespace says why.
    for namespace in all::<Namespace>(&client).await {
        let name = namespace.metadata.name.unwrap_or_default();
        let kept = || pods.iter().filter(|pod| pod.metadata.namespace.as_deref() == Some(&*name));
        holds(!name.starts_with(GUEST), || {
            let kept: Vec<_> = kept().map(|pod| (&pod.metadata, node_of(pod), &pod.status)).collect();
            format!("namespace {name} is there: {:#?}, its pods: {kept:#?}", namespace.status)
        })?;
    }
    deployments.iter().try_for_each(deployed)?;
    stateful.iter().try_for_each(|set| stands(set, &pods))?;
    daemons.iter().try_for_each(everywhere)?;
    jobs.iter().try_for_each(ended)?;

    let mut owners: BTreeSet<&str> = BTreeSet::new();
    owners.extend(deployments.iter().map(|one| uid(&one.metadata)));
    owners.extend(sets.iter().map(|one| uid(&one.metadata)));
    owners.extend(stateful.iter().map(|one| uid(&one.metadata)));
    owners.extend(daemons.iter().map(|one| uid(&one.metadata)));
    owners.extend(jobs.iter().map(|one| uid(&one.metadata)));
    let crons: Vec<CronJob> = all(&client).await;
    owners.extend(crons.iter().map(|one| uid(&one.metadata)));
    orphaned(&pods, &owners)?;
    orphaned(&sets, &owners)?;
    orphaned(&all::<ControllerRevision>(&client).await, &owners)?;
    let made: Vec<Job> = jobs.iter().filter(|job| controller(&job.metadata).is_some()).cloned().collect();
    orphaned(&made, &owners)?;

    for pod in &pods {
        let is_well = has_ended(pod) || serves(pod);
        holds(is_well && pod.metadata.deletion_timestamp.is_none(), || {
            format!("pod {:?}: {:#?}", place(&pod.metadata), pod.status)
        })?;
        holds(pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty), || {
            format!("pod {:?} is kept by {:?}", place(&pod.metadata), pod.metadata.finalizers)
        })?;
    }
    budgets(&all(&client).await)?;
    quotas(&all(&client).await, &pods)?;
    nothing_leaks(world, laws, &pods).await
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn deployed(deployment: &Deployment) -> Unrest {
    let spec = deployment.spec.clone().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = spec.replicas.unwrap_or(1);
    let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
    let is_seen = status.observed_generation == deployment.metadata.generation;
    let is_whole = counts.iter().all(|count| count.unwrap_or(0) == wanted);
    holds(is_seen && is_whole && status.unavailable_replicas.unwrap_or(0) == 0, || {
        format!("deployment {:?} of {wanted}: {status:#?}", place(&deployment.metadata))
    })
}

fn stands(set: &StatefulSet, pods: &[Pod]) -> Unrest {
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let counts = [status.ready_replicas, status.available_replicas, status.updated_replicas];
    let own = |pod: &&Pod| controller(&pod.metadata).is_some_and(|owner| owner.uid == uid(&set.metadata));
    let active = pods.iter().filter(own).filter(|pod| is_active(pod)).count();
    let is_whole = status.replicas == wanted
        && counts.iter().all(|count| count.unwrap_or(0) == wanted)
        && usize::try_from(wanted) == Ok(active)
        && status.current_revision == status.update_revision;
    holds(is_whole && status.observed_generation == set.metadata.generation, || {
        format!("stateful set {:?} of {wanted}: {status:#?}", place(&set.metadata))
    })
}

fn everywhere(set: &DaemonSet) -> Unrest {
    let status = set.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let counts = [
        status.current_number_scheduled,
        status.number_ready,
        status.number_available.unwrap_or(0),
        status.updated_number_scheduled.unwrap_or(0),
    ];
    let is_whole = counts.iter().all(|count| *count == wanted) && status.number_misscheduled == 0;
    holds(is_whole && status.observed_generation == set.metadata.generation, || {
        format!("daemon set {:?}: {status:#?}", place(&set.metadata))
    })
}

fn ended(job: &Job) -> Unrest {
    let status = job.status.clone().unwrap_or_default();
    let is_over = |type_: &str| {
        status.conditions.iter().flatten().any(|said| said.type_ == type_ && said.status == "True")
    };
    let counted = status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| {
        uncounted.failed.as_ref().is_none_or(Vec::is_empty)
            && uncounted.succeeded.as_ref().is_none_or(Vec::is_empty)
    });
    holds((is_over("Complete") || is_over("Failed")) && counted, || {
        format!("job {:?}: {status:#?}", place(&job.metadata))
    })
}

/// Everything is of somebody who is there.
fn orphaned<K: Resource<DynamicType = ()>>(objects: &[K], owners: &BTreeSet<&str>) -> Unrest {
    objects.iter().try_for_each(|object| {
        let owner = controller(object.meta());
        holds(owner.is_some_and(|owner| owners.contains(owner.uid.as_str())), || {
            format!("{} {:?} is of nobody: {owner:?}", K::kind(&()), place(object.meta()))
        })
    })
}

fn budgets(budgets: &[PodDisruptionBudget]) -> Unrest {
    budgets.iter().try_for_each(|budget| {
        let status = budget.status.clone().unwrap_or_default();
        holds(
            status.current_healthy == status.expected_pods
                && status.disrupted_pods.as_ref().is_none_or(std::collections::BTreeMap::is_empty),
            || format!("budget {:?}: {status:#?}", place(&budget.metadata)),
        )
    })
}

fn quotas(quotas: &[ResourceQuota], pods: &[Pod]) -> Unrest {
    quotas.iter().try_for_each(|quota| {
        let counted =
            pods.iter().filter(|pod| pod.metadata.namespace == quota.metadata.namespace && !has_ended(pod));
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref()?.get("pods"));
        holds(used.is_some_and(|used| used.0 == counted.clone().count().to_string()), || {
            format!("{:?} of the quota of {} pods are used", used, counted.count())
        })
    })
}

/// Nodes hold nothing for pods that are gone, and what was told is what is there.
async fn nothing_leaks(world: &World, laws: &Laws, pods: &[Pod]) -> Unrest {
    let there: BTreeSet<&str> = pods.iter().map(|pod| uid(&pod.metadata)).collect();
    let told: BTreeSet<&str> = laws.pods.iter().map(|pod| uid(&pod.metadata)).collect();
    holds(there == told, || format!("{} pods are there, and {} were told of", there.len(), told.len()))?;
    let (sandboxes, promises) = world.held_by_nodes().await;
    for (what, held) in [("sandbox", sandboxes), ("promise", promises)] {
        let leaked = held.iter().find(|uid| !there.contains(uid.as_str()));
        holds(leaked.is_none(), || format!("a {what} is there for pod {leaked:?}, which is not"))?;
    }
    let running = pods.iter().filter(|pod| !has_ended(pod)).count();
    let (sandboxes, _) = world.held_by_nodes().await;
    holds(sandboxes.len() >= running, || format!("{} sandboxes for {running} pods", sandboxes.len()))
}
