//! Deployments: no more pods than replicas and surge, as many available as `maxUnavailable` requires, budgets not violated.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;

use super::super::observed_pods::{
    PodChange, Pods, RecentValues, controller, has_ended, is_active, is_available, is_evicted, label, name,
    share, uid,
};
use super::super::workloads::{CLASS, GUARDED, STEADY, UNTOUCHED};
use super::Check;

#[derive(Default)]
pub(in super::super) struct Deployments {
    all: HashMap<String, Tracked>,
    sets: HashMap<String, Set>,
}

/// A deployment.
struct Tracked {
    name: String,
    class: String,
    recreates: bool,
    replicas: i64,
    /// The largest number of pods: replicas and surge.
    max_pods: RecentValues,
    /// The smallest number of available pods, once it was complete.
    min_available: i64,
    complete: bool,
}

/// A replica set of a deployment.
struct Set {
    deployment: String,
    replicas: RecentValues,
}

impl Deployments {
    pub(in super::super) fn apply(&mut self, deployment: Deployment, deleted: bool, now: Duration) {
        let uid = uid(&deployment.metadata).to_owned();
        if deleted || deployment.metadata.deletion_timestamp.is_some() {
            // The garbage collector deletes its pods.
            self.all.remove(&uid);
            return;
        }
        let spec = deployment.spec.unwrap_or_default();
        let replicas = i64::from(spec.replicas.unwrap_or(1));
        let strategy = spec.strategy.unwrap_or_default();
        let recreates = strategy.type_.as_deref() == Some("Recreate");
        let rolling = strategy.rolling_update.unwrap_or_default();
        let surge = if recreates { 0 } else { share(replicas, rolling.max_surge.as_ref(), "25%", true) };
        let unavailable = share(replicas, rolling.max_unavailable.as_ref(), "25%", false);
        let tracked = self.all.entry(uid).or_insert_with(|| Tracked {
            name: name(&deployment.metadata).to_owned(),
            class: label(&deployment.metadata, CLASS).to_owned(),
            recreates,
            replicas,
            max_pods: RecentValues::default(),
            min_available: 0,
            complete: false,
        });
        tracked.replicas = replicas;
        tracked.min_available = replicas - if surge == 0 { unavailable.max(1) } else { unavailable };
        tracked.max_pods.record(now, replicas + surge);
    }

    pub(in super::super) fn apply_replica_set(
        &mut self,
        set: ReplicaSet,
        deleted: bool,
        now: Duration,
    ) -> Check {
        let uid = uid(&set.metadata).to_owned();
        let Some(owner) = controller(&set.metadata).map(|owner| owner.uid.clone()) else { return Ok(()) };
        if deleted {
            self.sets.remove(&uid);
            return Ok(());
        }
        let replicas = set.spec.and_then(|spec| spec.replicas).map_or(1, i64::from);
        let tracked = self
            .sets
            .entry(uid)
            .or_insert_with(|| Set { deployment: owner.clone(), replicas: RecentValues::default() });
        let grows = replicas > tracked.replicas.last();
        tracked.replicas.record(now, replicas);
        let Some(deployment) = self.all.get(&owner).filter(|_| grows) else { return Ok(()) };
        let desired: i64 =
            self.sets.values().filter(|set| set.deployment == owner).map(|set| set.replicas.last()).sum();
        let max_pods = deployment.max_pods.max(now);
        if desired > max_pods {
            let name = &deployment.name;
            return Err(format!(
                "the sets of deployment {name} have {desired} replicas, and at most {max_pods} may be"
            ));
        }
        Ok(())
    }

    pub(in super::super) fn check(&mut self, change: &PodChange, pods: &Pods, now: Duration) -> Check {
        let pod = change.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(set) = self.sets.get(&owner.uid) else { return Ok(()) };
        let sets = self.sets.iter().filter(|(_, other)| other.deployment == set.deployment);
        let all: Vec<&Pod> = sets.flat_map(|(uid, _)| pods.of_owner(uid)).collect();
        let of_set = pods.of_owner(&owner.uid).filter(|pod| is_active(pod)).count();
        let Some(tracked) = self.all.get_mut(&set.deployment) else { return Ok(()) };
        let count =
            |counts: fn(&Pod) -> bool| i64::try_from(all.iter().filter(|pod| counts(pod)).count()).unwrap();
        let (active, available) = (count(is_active), count(is_available));
        if change.became_active() {
            let max_pods = set.replicas.max(now);
            if i64::try_from(of_set).unwrap() > max_pods {
                return Err(format!("its replica set has {of_set} pods and {max_pods} replicas"));
            }
            let max_pods = tracked.max_pods.max(now);
            if active > max_pods {
                return Err(format!("its deployment has {active} pods, and at most {max_pods} may be"));
            }
            let is_other = |other: &&&Pod| {
                !has_ended(other) && controller(&other.metadata).is_some_and(|other| other.uid != owner.uid)
            };
            if tracked.recreates
                && let Some(other) = all.iter().find(is_other)
            {
                return Err(format!(
                    "it is created while {} of another template runs",
                    name(&other.metadata)
                ));
            }
        }
        tracked.complete |= available == tracked.replicas;
        if !tracked.complete {
            return Ok(());
        }
        if tracked.class == STEADY && change.became_unavailable() && available < tracked.min_available {
            return Err(format!(
                "{available} of its deployment are available, and {} must be",
                tracked.min_available
            ));
        }
        if tracked.class == UNTOUCHED && change.became_terminating() {
            return Err("it is deleted without an edit".to_owned());
        }
        let restarts = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        if tracked.class == UNTOUCHED && restarts.into_iter().any(|status| status.restart_count > 0) {
            return Err("it was restarted without an edit".to_owned());
        }
        // The budgets allow 30% of the replicas, rounded up, or one to be unavailable.
        let missing = ((tracked.replicas * 30 + 99) / 100).max(1);
        if tracked.class == GUARDED && change.became_terminating() {
            if !change.after.as_ref().is_some_and(is_evicted) {
                return Err("it is deleted, and was not evicted".to_owned());
            }
            if available < tracked.replicas - missing {
                return Err(format!("it is evicted, and {available} of {} are available", tracked.replicas));
            }
        }
        Ok(())
    }
}
