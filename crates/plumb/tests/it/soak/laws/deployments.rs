//! Deployments: never more pods than replicas and surge, never fewer available than promised, budgets kept.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;

use super::super::ledger::{
    Pods, Recent, Turn, controller, has_ended, is_active, is_evicted, label, name, serves, share, uid,
};
use super::super::zoo::{CLASS, GUARDED, LEFT, STEADY};
use super::Verdict;

#[derive(Default)]
pub(in super::super) struct Deployments {
    all: HashMap<String, Kept>,
    sets: HashMap<String, Set>,
}

/// A deployment.
struct Kept {
    name: String,
    class: String,
    recreates: bool,
    replicas: i64,
    /// The most pods that there may be.
    most: Recent,
    /// The fewest that must be available, once all were.
    fewest: i64,
    complete: bool,
}

/// A set of one.
struct Set {
    deployment: String,
    replicas: Recent,
}

impl Deployments {
    pub(in super::super) fn take(&mut self, deployment: Deployment, gone: bool, now: Duration) {
        let uid = uid(&deployment.metadata).to_owned();
        if gone || deployment.metadata.deletion_timestamp.is_some() {
            // What becomes of its pods is garbage collection's.
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
        let kept = self.all.entry(uid).or_insert_with(|| Kept {
            name: name(&deployment.metadata).to_owned(),
            class: label(&deployment.metadata, CLASS).to_owned(),
            recreates,
            replicas,
            most: Recent::default(),
            fewest: 0,
            complete: false,
        });
        kept.replicas = replicas;
        kept.fewest = replicas - if surge == 0 { unavailable.max(1) } else { unavailable };
        kept.most.tell(now, replicas + surge);
    }

    pub(in super::super) fn take_set(&mut self, set: ReplicaSet, gone: bool, now: Duration) -> Verdict {
        let uid = uid(&set.metadata).to_owned();
        let Some(owner) = controller(&set.metadata).map(|owner| owner.uid.clone()) else { return Ok(()) };
        if gone {
            self.sets.remove(&uid);
            return Ok(());
        }
        let replicas = set.spec.and_then(|spec| spec.replicas).map_or(1, i64::from);
        let kept = self
            .sets
            .entry(uid)
            .or_insert_with(|| Set { deployment: owner.clone(), replicas: Recent::default() });
        let grows = replicas > kept.replicas.last();
        kept.replicas.tell(now, replicas);
        let Some(deployment) = self.all.get(&owner).filter(|_| grows) else { return Ok(()) };
        let asked: i64 =
            self.sets.values().filter(|set| set.deployment == owner).map(|set| set.replicas.last()).sum();
        let most = deployment.most.most(now);
        if asked > most {
            let name = &deployment.name;
            return Err(format!(
                "the sets of deployment {name} ask for {asked} pods, and at most {most} may be"
            ));
        }
        Ok(())
    }

    pub(in super::super) fn judge(&mut self, turn: &Turn, pods: &Pods, now: Duration) -> Verdict {
        let pod = turn.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(set) = self.sets.get(&owner.uid) else { return Ok(()) };
        let sets = self.sets.iter().filter(|(_, other)| other.deployment == set.deployment);
        let all: Vec<&Pod> = sets.flat_map(|(uid, _)| pods.of(uid)).collect();
        let of_set = pods.of(&owner.uid).filter(|pod| is_active(pod)).count();
        let Some(kept) = self.all.get_mut(&set.deployment) else { return Ok(()) };
        let count =
            |counts: fn(&Pod) -> bool| i64::try_from(all.iter().filter(|pod| counts(pod)).count()).unwrap();
        let (active, available) = (count(is_active), count(serves));
        if turn.came() {
            let most = set.replicas.most(now);
            if i64::try_from(of_set).unwrap() > most {
                return Err(format!("its set has {of_set} pods and asks for {most}"));
            }
            let most = kept.most.most(now);
            if active > most {
                return Err(format!("its deployment has {active} pods, and at most {most} may be"));
            }
            let is_other = |other: &&&Pod| {
                !has_ended(other) && controller(&other.metadata).is_some_and(|other| other.uid != owner.uid)
            };
            if kept.recreates
                && let Some(other) = all.iter().find(is_other)
            {
                return Err(format!("it is made while {} of another template runs", name(&other.metadata)));
            }
        }
        kept.complete |= available == kept.replicas;
        if !kept.complete {
            return Ok(());
        }
        if kept.class == STEADY && turn.left() && available < kept.fewest {
            return Err(format!("{available} of its deployment are available, and {} must be", kept.fewest));
        }
        if kept.class == LEFT && turn.is_condemned() {
            return Err("it is deleted, and nobody asked for that".to_owned());
        }
        let restarts = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        if kept.class == LEFT && restarts.into_iter().any(|status| status.restart_count > 0) {
            return Err("it was started again, and nobody asked for that".to_owned());
        }
        // 30% of what is asked for, rounded up, may be missing, or one: see what budgets there are.
        let missing = ((kept.replicas * 30 + 99) / 100).max(1);
        if kept.class == GUARDED && turn.is_condemned() {
            if !turn.now.as_ref().is_some_and(is_evicted) {
                return Err("it is deleted, and was not evicted".to_owned());
            }
            if available < kept.replicas - missing {
                return Err(format!("it is evicted, and {available} of {} are left", kept.replicas));
            }
        }
        Ok(())
    }
}
