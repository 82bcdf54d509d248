//! The node lifecycle controller's `NoSchedule` taints, which follow the conditions of nodes.
//!
//! The conditions of a node (`Ready`, the pressures) and `spec.unschedulable` become taints with the effect
//! `NoSchedule`, which schedulers filter by. The controller leaves taints with other keys or effects alone.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::clock::whole_seconds;
use plumb_controller_runtime::{Clock, InformerFactory, ObjectRef, Reconciler, Requeue, Store};
use serde_json::json;

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "node-controller";

const EFFECT: &str = "NoSchedule";
/// The taint of a node that was cordoned.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taint of each condition and status.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The taints that a node should have, if they differ from those that it has.
pub fn decide(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.clone().unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let state = |wanted: &str| {
        let found = conditions.into_iter().flatten().find(|condition| condition.type_ == wanted);
        found.map(|condition| condition.status.as_str())
    };
    let matching = TAINTS.iter().filter(|(condition, status, _)| state(condition) == Some(*status));
    let mut wanted: Vec<&str> = matching.map(|(_, _, taint)| *taint).collect();
    // A node without the condition Ready is not ready.
    if state("Ready").is_none() {
        wanted.push(NOT_READY);
    }
    if spec.unschedulable == Some(true) {
        wanted.push(UNSCHEDULABLE);
    }
    let is_ours = |taint: &Taint| {
        let known = TAINTS.iter().any(|(_, _, key)| *key == taint.key) || taint.key == UNSCHEDULABLE;
        known && taint.effect == EFFECT
    };
    let had = spec.taints.unwrap_or_default();
    let (ours, mut taints): (Vec<Taint>, Vec<Taint>) = had.into_iter().partition(is_ours);
    let as_wanted = ours.len() == wanted.len() && ours.iter().all(|taint| wanted.contains(&&*taint.key));
    if as_wanted {
        return None;
    }
    let kept: Vec<Taint> = ours.into_iter().filter(|taint| wanted.contains(&&*taint.key)).collect();
    wanted.retain(|key| !kept.iter().any(|taint| taint.key == *key));
    taints.extend(kept);
    let time_added = Some(Time(whole_seconds(now)));
    taints.extend(wanted.into_iter().map(|key| Taint {
        key: key.to_owned(),
        effect: EFFECT.to_owned(),
        time_added: time_added.clone(),
        value: None,
    }));
    Some(taints)
}

/// The name of the task, in health checks and metrics.
pub const TASK: &str = "node-taint-controller";

/// Reconciles the taints of nodes until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, clock: Clock) -> BoxFuture<'static, ()> {
    let nodes = informers.informer::<Node>();
    let reconciler =
        Taints { api: Api::all(clients.write.clone()), nodes: nodes.store().clone(), clock: clock.clone() };
    clients.controller(TASK, reconciler).with_clock(clock).reconciles(&nodes).run()
}

/// Reconciles nodes.
struct Taints {
    api: Api<Node>,
    nodes: Arc<Store<Node>>,
    clock: Clock,
}

impl Reconciler for Taints {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, node: &ObjectRef) -> kube::Result<Requeue> {
        if let Some(node) = self.nodes.get(node)
            && let Some(taints) = decide(&node, self.clock.now())
        {
            write(&self.api, &node, taints).await?;
        }
        Ok(Requeue::AwaitChange)
    }
}

/// Writes the taints of a node, with its resource version as a precondition.
async fn write(nodes: &Api<Node>, node: &Node, taints: Vec<Taint>) -> kube::Result<()> {
    let metadata = json!({ "resourceVersion": node.metadata.resource_version });
    let patch = json!({ "metadata": metadata, "spec": { "taints": taints } });
    let name = node.metadata.name.as_deref().unwrap_or_default();
    settled_or_conflict(nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)], unschedulable: bool) -> Node {
        let conditions: Vec<_> =
            conditions.iter().map(|(type_, status)| json!({ "type": type_, "status": status })).collect();
        let taints: Vec<_> =
            taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect })).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "n" },
            "spec": { "taints": taints, "unschedulable": unschedulable },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    #[test]
    fn conditions_become_taints_and_other_taints_stay() {
        let now = Timestamp::UNIX_EPOCH;
        let keys =
            |node: &Node| decide(node, now).map(|all| all.into_iter().map(|t| t.key).collect::<Vec<_>>());
        let ready = ("Ready", "True");
        assert_eq!(keys(&node(&[], &[(NOT_READY, EFFECT)], false)), None);
        assert_eq!(keys(&node(&[ready], &[(NOT_READY, EFFECT)], false)), Some(vec![]));
        assert_eq!(keys(&node(&[ready], &[], false)), None);
        let mine = ("example.com/mine", EFFECT);
        assert_eq!(
            keys(&node(&[("Ready", "Unknown"), ("MemoryPressure", "True")], &[mine], true)),
            Some(vec![
                "example.com/mine".to_owned(),
                "node.kubernetes.io/unreachable".to_owned(),
                "node.kubernetes.io/memory-pressure".to_owned(),
                UNSCHEDULABLE.to_owned(),
            ])
        );
        // A taint that stays keeps its `timeAdded`.
        let both = node(
            &[("Ready", "Unknown"), ("MemoryPressure", "True")],
            &[("node.kubernetes.io/unreachable", EFFECT)],
            false,
        );
        let since: Vec<_> = decide(&both, now).unwrap().into_iter().map(|taint| taint.time_added).collect();
        assert_eq!(since, [None, Some(Time(now))]);
        // This controller does not manage taints of the same key with another effect.
        assert_eq!(keys(&node(&[ready], &[(NOT_READY, "NoExecute")], false)), None);
    }
}
