//! The health of a node: its conditions without heartbeats, its taints, and how fast nodes are tainted.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_controller_runtime::clock::whole_seconds;

/// How long a node may send no heartbeat: the default of `--node-monitor-grace-period`.
pub const MONITOR_GRACE_PERIOD: Duration = Duration::from_secs(50);
/// How long a new node may take until its first status: the default of upstream's `nodeStartupGracePeriod`.
const STARTUP_GRACE_PERIOD: Duration = Duration::from_mins(1);
/// The taint of nodes that report that they are not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The taint of nodes without heartbeats.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const EFFECT: &str = "NoExecute";
/// The conditions that a node agent reports.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// A condition of a node.
pub fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// Whether a node is ready: `True`, `False` or `Unknown`.
pub fn readiness(node: &Node) -> &str {
    condition(node, "Ready").map_or("Unknown", |ready| ready.status.as_str())
}

/// Whether a node is ready, and known to be.
pub fn is_ready(node: &Node) -> bool {
    readiness(node) == "True"
}

/// For how long a node may send no heartbeat.
pub fn grace_period(node: &Node) -> Duration {
    if condition(node, "Ready").is_none() { STARTUP_GRACE_PERIOD } else { MONITOR_GRACE_PERIOD }
}

/// The conditions that become unknown of a node that has sent no heartbeat for so long.
pub fn unknown_conditions(node: &Node, without_heartbeat: Duration, now: Timestamp) -> Vec<NodeCondition> {
    if without_heartbeat < grace_period(node) {
        return Vec::new();
    }
    let moment = Time(whole_seconds(now));
    let unknown = CONDITIONS.iter().filter_map(|type_| {
        let (before, reason, message) = match condition(node, type_) {
            Some(before) if before.status == "Unknown" => return None,
            Some(before) => (Some(before), "NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => (None, "NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        Some(NodeCondition {
            type_: (*type_).to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: match before {
                Some(before) => before.last_heartbeat_time.clone(),
                None => node.metadata.creation_timestamp.clone(),
            },
            last_transition_time: Some(moment.clone()),
        })
    });
    unknown.collect()
}

/// The taints that a node should have by its readiness; `None` if it has them.
pub fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let wanted = match condition(node, "Ready").map(|ready| ready.status.as_str()) {
        // A node that has not reported yet has some time to do so.
        None | Some("True") => None,
        Some("False") => Some(NOT_READY),
        Some(_) => Some(UNREACHABLE),
    };
    let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_ours = |taint: &Taint| taint.effect == EFFECT && [NOT_READY, UNREACHABLE].contains(&&*taint.key);
    let has = before.iter().find(|taint| is_ours(taint)).map(|taint| taint.key.as_str());
    let count = before.iter().filter(|taint| is_ours(taint)).count();
    if has == wanted && count <= 1 {
        return None;
    }
    let mut taints: Vec<Taint> = before.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    taints.extend(wanted.map(|key| Taint {
        key: key.to_owned(),
        effect: EFFECT.to_owned(),
        time_added: Some(Time(whole_seconds(now))),
        value: None,
    }));
    Some(taints)
}

/// How long after one node the next gets a `NoExecute` taint, given how many nodes of how many are not ready; none if no
/// node gets one. When most are not ready, it is more likely that this controller is cut off from them.
pub fn eviction_interval(not_ready: usize, all: usize) -> Option<SignedDuration> {
    // As upstream: `unhealthyZoneThreshold` of 55 %, and `largeClusterSizeThreshold` of 50 nodes.
    let is_disrupted = not_ready > 2 && not_ready * 100 >= all * 55;
    match (not_ready, is_disrupted) {
        (0, _) => Some(SignedDuration::ZERO),
        _ if not_ready == all => None,
        (_, true) if all <= 50 => None,
        (_, true) => Some(SignedDuration::from_secs(100)),
        (_, false) => Some(SignedDuration::from_secs(10)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str, taints: &[(&str, &str)]) -> Node {
        let taints: Vec<_> =
            taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect })).collect();
        let conditions = json!([{ "type": "Ready", "status": ready }]);
        serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": { "taints": taints }, "status": { "conditions": conditions } }))
            .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_conditions_of_a_node_without_heartbeats_become_unknown() {
        let long = Duration::from_secs(50);
        assert_eq!(unknown_conditions(&node("True", &[]), Duration::from_secs(49), at(0)), []);
        let said = unknown_conditions(&node("True", &[]), long, at(0));
        let reasons: Vec<_> =
            said.iter().map(|one| (one.type_.as_str(), one.reason.as_deref().unwrap())).collect();
        assert_eq!(reasons[0], ("Ready", "NodeStatusUnknown"));
        assert_eq!(reasons[1], ("MemoryPressure", "NodeStatusNeverUpdated"));
        assert_eq!(reasons.len(), 4);
        assert!(
            !unknown_conditions(&node("Unknown", &[]), long, at(0)).iter().any(|one| one.type_ == "Ready")
        );
    }

    #[test]
    fn a_new_node_has_a_longer_grace_period() {
        let new: Node = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
        assert_eq!(taints(&new, at(0)), None);
        assert_eq!(unknown_conditions(&new, Duration::from_secs(59), at(0)), []);
        let said = unknown_conditions(&new, Duration::from_mins(1), at(0));
        assert_eq!(said[0].reason.as_deref(), Some("NodeStatusNeverUpdated"));
    }

    #[test]
    fn a_node_that_is_not_ready_is_tainted() {
        let keys = |node: &Node| {
            taints(node, at(0)).map(|all| all.into_iter().map(|taint| taint.key).collect::<Vec<_>>())
        };
        let not_ready = (NOT_READY, EFFECT);
        let unreachable = (UNREACHABLE, EFFECT);
        assert_eq!(keys(&node("True", &[])), None);
        assert_eq!(keys(&node("False", &[])), Some(vec![NOT_READY.to_owned()]));
        assert_eq!(keys(&node("False", &[not_ready])), None);
        assert_eq!(keys(&node("Unknown", &[not_ready])), Some(vec![UNREACHABLE.to_owned()]));
        let mine = ("mine", EFFECT);
        assert_eq!(keys(&node("True", &[unreachable, mine])), Some(vec!["mine".to_owned()]));
        assert_eq!(keys(&node("True", &[(NOT_READY, "NoSchedule")])), None);
    }

    #[test]
    fn the_more_nodes_are_not_ready_the_slower_they_are_tainted() {
        let seconds = |not_ready, all| eviction_interval(not_ready, all).map(|pause| pause.as_secs());
        assert_eq!(seconds(1, 1), None);
        assert_eq!(seconds(1, 3), Some(10));
        assert_eq!(seconds(3, 5), None);
        assert_eq!(seconds(60, 100), Some(100));
    }
}
