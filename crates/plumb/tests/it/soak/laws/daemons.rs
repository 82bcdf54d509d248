//! Daemon sets: one pod a node, or two where the new one comes first, and few nodes without.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;

use super::super::ledger::{Pods, Turn, controller, has_ended, is_active, label, name, serves, share, uid};
use super::super::zoo::{CLASS, STEADY};
use super::Verdict;

#[derive(Default)]
pub(in super::super) struct Daemons {
    all: HashMap<String, Kept>,
}

struct Kept {
    name: String,
    is_steady: bool,
    surges: bool,
    unavailable: i64,
    /// On how many nodes it is to be, once it was on all of them.
    nodes: Option<i64>,
}

impl Daemons {
    pub(in super::super) fn take(&mut self, set: DaemonSet, gone: bool) {
        let uid = uid(&set.metadata).to_owned();
        if gone || set.metadata.deletion_timestamp.is_some() {
            self.all.remove(&uid);
            return;
        }
        let status = set.status.unwrap_or_default();
        let wanted = i64::from(status.desired_number_scheduled);
        let is_complete = status.number_available.map(i64::from) == Some(wanted) && wanted > 0;
        let rolling = set.spec.and_then(|spec| spec.update_strategy?.rolling_update).unwrap_or_default();
        let surges = share(wanted, rolling.max_surge.as_ref(), "0%", true) > 0;
        let kept = self.all.entry(uid).or_insert_with(|| Kept {
            name: name(&set.metadata).to_owned(),
            is_steady: label(&set.metadata, CLASS) == STEADY,
            surges,
            unavailable: share(wanted, rolling.max_unavailable.as_ref(), "1%", true),
            nodes: None,
        });
        if is_complete {
            kept.nodes = Some(wanted);
        }
    }

    pub(in super::super) fn judge(&self, turn: &Turn, pods: &Pods) -> Verdict {
        let pod = turn.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(kept) = self.all.get(&owner.uid) else { return Ok(()) };
        if turn.before.is_none() {
            let here = node(pod);
            let there = || pods.of(&owner.uid).filter(|pod| node(pod) == here && !has_ended(pod));
            let (all, active) = (there().count(), there().filter(|pod| is_active(pod)).count());
            if !kept.surges && all > 1 {
                return Err(format!("it is one of {all} pods of {} on {here:?}", kept.name));
            }
            if active > 2 {
                return Err(format!("it is one of {active} pods of {} on {here:?}", kept.name));
            }
        }
        if let Some(nodes) = kept.nodes.filter(|_| kept.is_steady && turn.left()) {
            let serving: BTreeSet<&str> =
                pods.of(&owner.uid).filter(|pod| serves(pod)).filter_map(node).collect();
            let missing = nodes - i64::try_from(serving.len()).unwrap();
            if missing > kept.unavailable {
                return Err(format!("{missing} nodes are without, and at most {} may be", kept.unavailable));
            }
        }
        Ok(())
    }
}

/// The node that a daemon is for, whether it is bound yet or not.
fn node(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    let wanted = || {
        let required = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms = required.required_during_scheduling_ignored_during_execution.as_ref()?;
        let field = terms.node_selector_terms.first()?.match_fields.as_ref()?.first()?;
        field.values.as_ref()?.first().map(String::as_str)
    };
    spec.node_name.as_deref().or_else(wanted)
}
