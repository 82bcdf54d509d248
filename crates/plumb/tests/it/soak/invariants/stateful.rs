//! Stateful sets: ordinals within the replicas, created in order, deleted in reverse order, one at a time.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::super::observed_pods::{
    PodChange, Pods, RecentValues, controller, is_active, is_available, label, name, uid,
};
use super::super::workloads::{CLASS, UNTOUCHED};
use super::Check;

#[derive(Default)]
pub(in super::super) struct StatefulSets {
    all: HashMap<String, Tracked>,
}

struct Tracked {
    namespace: String,
    name: String,
    is_untouched: bool,
    in_order: bool,
    replicas: RecentValues,
}

impl StatefulSets {
    pub(in super::super) fn apply(&mut self, set: StatefulSet, deleted: bool, now: Duration) {
        let uid = uid(&set.metadata).to_owned();
        if deleted || set.metadata.deletion_timestamp.is_some() {
            self.all.remove(&uid);
            return;
        }
        let spec = set.spec.unwrap_or_default();
        let tracked = self.all.entry(uid).or_insert_with(|| Tracked {
            namespace: set.metadata.namespace.clone().unwrap_or_default(),
            name: name(&set.metadata).to_owned(),
            is_untouched: label(&set.metadata, CLASS) == UNTOUCHED,
            in_order: spec.pod_management_policy.as_deref() != Some("Parallel"),
            replicas: RecentValues::default(),
        });
        tracked.replicas.record(now, spec.replicas.map_or(1, i64::from));
    }

    pub(in super::super) fn check(&self, change: &PodChange, pods: &Pods, now: Duration) -> Check {
        let pod = change.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(tracked) = self.all.get(&owner.uid) else { return Ok(()) };
        let Some(own) = ordinal(pod, &tracked.name) else {
            return Err(format!("its name is not one of the pods of {}", tracked.name));
        };
        let other = |ordinal: i64| {
            pods.of_owner(&owner.uid).find(|pod| self::ordinal(pod, &tracked.name) == Some(ordinal))
        };
        let place = |ordinal: i64| (tracked.namespace.clone(), format!("{}-{ordinal}", tracked.name));
        let was_available = |ordinal: &i64| {
            other(*ordinal).is_some_and(is_available) || pods.was_available_recently(&place(*ordinal), now)
        };
        if change.before.is_none() {
            if own >= tracked.replicas.max(now) {
                return Err(format!(
                    "it is created, and there are only {} replicas",
                    tracked.replicas.max(now)
                ));
            }
            if tracked.in_order
                && let Some(missing) = (0..own).find(|lower| !was_available(lower))
            {
                return Err(format!("it is created before ordinal {missing} is ready"));
            }
        }
        if !change.became_terminating() {
            return Ok(());
        }
        if tracked.is_untouched {
            return Err("it is deleted without an edit".to_owned());
        }
        if pods.is_deleted_by_editor(pod) || change.before.as_ref().is_some_and(|pod| !is_active(pod)) {
            return Ok(());
        }
        let (least, max_pods) = (tracked.replicas.min(now), tracked.replicas.max(now));
        if own >= least {
            // The set is scaled down: pods with higher ordinals are deleted first.
            let above = pods.of_owner(&owner.uid).filter_map(|pod| self::ordinal(pod, &tracked.name)).max();
            if tracked.in_order && own >= max_pods && above.is_some_and(|above| above > own) {
                return Err("it is deleted while there are pods with higher ordinals".to_owned());
            }
            return Ok(());
        }
        // The set is updated: pods with higher ordinals are ready, and with `OrderedReady` those with lower ones too.
        if let Some(missing) = (own + 1..least).find(|above| !was_available(above)) {
            return Err(format!("it is replaced before ordinal {missing} is ready"));
        }
        if tracked.in_order
            && let Some(missing) = (0..own).find(|below| !was_available(below))
        {
            return Err(format!("it is replaced while ordinal {missing} is not ready"));
        }
        Ok(())
    }
}

fn ordinal(pod: &Pod, set: &str) -> Option<i64> {
    name(&pod.metadata).strip_prefix(set)?.strip_prefix('-')?.parse().ok()
}
