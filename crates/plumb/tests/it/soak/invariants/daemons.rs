//! Daemon sets: one pod on each node, or two during a surge, and at most `maxUnavailable` nodes without one.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;

use super::super::observed_pods::{
    PodChange, Pods, controller, has_ended, is_active, is_available, label, name, share, uid,
};
use super::super::workloads::{CLASS, STEADY};
use super::Check;

#[derive(Default)]
pub(in super::super) struct Daemons {
    all: HashMap<String, Tracked>,
}

struct Tracked {
    name: String,
    is_steady: bool,
    surges: bool,
    unavailable: i64,
    /// The desired number of nodes, once its pods were available on all of them.
    nodes: Option<i64>,
}

impl Daemons {
    pub(in super::super) fn apply(&mut self, set: DaemonSet, deleted: bool) {
        let uid = uid(&set.metadata).to_owned();
        if deleted || set.metadata.deletion_timestamp.is_some() {
            self.all.remove(&uid);
            return;
        }
        let status = set.status.unwrap_or_default();
        let wanted = i64::from(status.desired_number_scheduled);
        let is_complete = status.number_available.map(i64::from) == Some(wanted) && wanted > 0;
        let rolling = set.spec.and_then(|spec| spec.update_strategy?.rolling_update).unwrap_or_default();
        let surges = share(wanted, rolling.max_surge.as_ref(), "0%", true) > 0;
        let tracked = self.all.entry(uid).or_insert_with(|| Tracked {
            name: name(&set.metadata).to_owned(),
            is_steady: label(&set.metadata, CLASS) == STEADY,
            surges,
            unavailable: share(wanted, rolling.max_unavailable.as_ref(), "1%", true),
            nodes: None,
        });
        if is_complete {
            tracked.nodes = Some(wanted);
        }
    }

    pub(in super::super) fn check(&self, change: &PodChange, pods: &Pods) -> Check {
        let pod = change.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(tracked) = self.all.get(&owner.uid) else { return Ok(()) };
        if change.before.is_none() {
            let here = node(pod);
            let on_node = || pods.of_owner(&owner.uid).filter(|pod| node(pod) == here && !has_ended(pod));
            let (all, active) = (on_node().count(), on_node().filter(|pod| is_active(pod)).count());
            if !tracked.surges && all > 1 {
                return Err(format!("it is one of {all} pods of {} on {here:?}", tracked.name));
            }
            if active > 2 {
                return Err(format!("it is one of {active} pods of {} on {here:?}", tracked.name));
            }
        }
        if let Some(nodes) = tracked.nodes.filter(|_| tracked.is_steady && change.became_unavailable()) {
            let serving: BTreeSet<&str> =
                pods.of_owner(&owner.uid).filter(|pod| is_available(pod)).filter_map(node).collect();
            let missing = nodes - i64::try_from(serving.len()).unwrap();
            if missing > tracked.unavailable {
                return Err(format!(
                    "{missing} nodes have no available pod, and at most {} may",
                    tracked.unavailable
                ));
            }
        }
        Ok(())
    }
}

/// The node of a daemon pod, bound or not.
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
