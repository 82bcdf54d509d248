//! Stateful sets: numbers within their range, from the lowest up and from the highest down, one at a time.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::super::ledger::{Pods, Recent, Turn, controller, is_active, label, name, serves, uid};
use super::super::zoo::{CLASS, LEFT};
use super::Verdict;

#[derive(Default)]
pub(in super::super) struct StatefulSets {
    all: HashMap<String, Kept>,
}

struct Kept {
    namespace: String,
    name: String,
    is_left: bool,
    in_order: bool,
    replicas: Recent,
}

impl StatefulSets {
    pub(in super::super) fn take(&mut self, set: StatefulSet, gone: bool, now: Duration) {
        let uid = uid(&set.metadata).to_owned();
        if gone || set.metadata.deletion_timestamp.is_some() {
            self.all.remove(&uid);
            return;
        }
        let spec = set.spec.unwrap_or_default();
        let kept = self.all.entry(uid).or_insert_with(|| Kept {
            namespace: set.metadata.namespace.clone().unwrap_or_default(),
            name: name(&set.metadata).to_owned(),
            is_left: label(&set.metadata, CLASS) == LEFT,
            in_order: spec.pod_management_policy.as_deref() != Some("Parallel"),
            replicas: Recent::default(),
        });
        kept.replicas.tell(now, spec.replicas.map_or(1, i64::from));
    }

    pub(in super::super) fn judge(&self, turn: &Turn, pods: &Pods, now: Duration) -> Verdict {
        let pod = turn.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(kept) = self.all.get(&owner.uid) else { return Ok(()) };
        let Some(own) = ordinal(pod, &kept.name) else {
            return Err(format!("it is called otherwise than the pods of {}", kept.name));
        };
        let other =
            |ordinal: i64| pods.of(&owner.uid).find(|pod| self::ordinal(pod, &kept.name) == Some(ordinal));
        let place = |ordinal: i64| (kept.namespace.clone(), format!("{}-{ordinal}", kept.name));
        let served =
            |ordinal: &i64| other(*ordinal).is_some_and(serves) || pods.served_lately(&place(*ordinal), now);
        if turn.before.is_none() {
            if own >= kept.replicas.most(now) {
                return Err(format!("it is made, and only {} are asked for", kept.replicas.most(now)));
            }
            if kept.in_order
                && let Some(missing) = (0..own).find(|lower| !served(lower))
            {
                return Err(format!("it is made before number {missing} is ready"));
            }
        }
        if !turn.is_condemned() {
            return Ok(());
        }
        if kept.is_left {
            return Err("it is deleted, and nobody asked for that".to_owned());
        }
        if pods.is_by_hand(pod) || turn.before.as_ref().is_some_and(|pod| !is_active(pod)) {
            return Ok(());
        }
        let (least, most) = (kept.replicas.least(now), kept.replicas.most(now));
        if own >= least {
            // It is one too many: those above it go first.
            let above = pods.of(&owner.uid).filter_map(|pod| self::ordinal(pod, &kept.name)).max();
            if kept.in_order && own >= most && above.is_some_and(|above| above > own) {
                return Err("it is deleted while there are pods above it".to_owned());
            }
            return Ok(());
        }
        // It is updated: those above it are done, and where order matters those below it are well.
        if let Some(missing) = (own + 1..least).find(|above| !served(above)) {
            return Err(format!("it is replaced before number {missing} is ready"));
        }
        if kept.in_order
            && let Some(missing) = (0..own).find(|below| !served(below))
        {
            return Err(format!("it is replaced while number {missing} is not ready"));
        }
        Ok(())
    }
}

fn ordinal(pod: &Pod, set: &str) -> Option<i64> {
    name(&pod.metadata).strip_prefix(set)?.strip_prefix('-')?.parse().ok()
}
