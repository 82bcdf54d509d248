//! The kubelet's admission predicates besides resources: whether a pod may run on this node at all. The scheduler filters
//! nodes by the same rules; a pod that was bound without it, or whose node has changed since, is rejected here.

use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_placement::{NodeAffinity, Toleration};

/// A predicate that a pod fails, in the kubelet's order: of several the first one is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Predicate {
    /// `nodeSelector` or node affinity, which includes the operating system and the architecture.
    NodeAffinity,
    /// `spec.nodeName`.
    NodeName,
    /// A host port of another pod.
    NodePorts,
    /// A `NoExecute` taint of the node.
    TaintToleration,
}

impl Predicate {
    /// Its name, which is the reason of the rejection.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeAffinity => "NodeAffinity",
            Self::NodeName => "NodeName",
            Self::NodePorts => "NodePorts",
            Self::TaintToleration => "TaintToleration",
        }
    }

    /// Why a pod fails it.
    pub const fn description(self) -> &'static str {
        match self {
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::NodeName => "node(s) didn't match the requested node name",
            Self::NodePorts => "node(s) didn't have free ports for the requested pod ports",
            Self::TaintToleration => "node(s) had taints that the pod didn't tolerate",
        }
    }
}

/// The first predicate about a pod and its node alone that the pod fails. [`Predicate::NodePorts`] is about other pods.
pub(crate) fn check(pod: &Pod, node: &Node) -> Option<Predicate> {
    let spec = pod.spec.as_ref()?;
    if !NodeAffinity::read(spec).matches_node(node) {
        return Some(Predicate::NodeAffinity);
    }
    if spec
        .node_name
        .as_ref()
        .is_some_and(|name| !name.is_empty() && Some(name) != node.metadata.name.as_ref())
    {
        return Some(Predicate::NodeName);
    }
    let tolerations: Vec<_> = spec.tolerations.iter().flatten().map(Toleration::read).collect();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints = taints.filter(|taint| taint.effect == "NoExecute");
    let is_tainted = taints.any(|taint| !tolerations.iter().any(|one| one.tolerates(taint)));
    is_tainted.then_some(Predicate::TaintToleration)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_is_checked_against_its_node() {
        let taint = |effect: &str| json!([{ "key": "gpu", "effect": effect }]);
        let selector = json!({ "nodeSelector": { "kubernetes.io/arch": "amd64" } });
        let tolerant = json!({ "tolerations": [{ "key": "gpu", "operator": "Exists" }] });
        let none = json!([]);
        let (amd, arm) = ("amd64", "arm64");
        let table: [(&Value, &str, &Value, Option<Predicate>); 9] = [
            (&json!({}), amd, &none, None),
            (&selector, amd, &none, None),
            (&selector, arm, &none, Some(Predicate::NodeAffinity)),
            (&json!({ "nodeName": "a" }), amd, &none, None),
            (&json!({ "nodeName": "b" }), amd, &none, Some(Predicate::NodeName)),
            (&json!({}), amd, &taint("NoExecute"), Some(Predicate::TaintToleration)),
            (&json!({}), amd, &taint("NoSchedule"), None),
            (&tolerant, amd, &taint("NoExecute"), None),
            (&selector, arm, &taint("NoExecute"), Some(Predicate::NodeAffinity)),
        ];
        for (spec, arch, taints, expected) in table {
            let labels = json!({ "kubernetes.io/arch": arch });
            let node = json!({ "metadata": { "name": "a", "labels": labels }, "spec": { "taints": taints } });
            let mut spec = spec.clone();
            spec["containers"] = json!([]);
            let pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            let found = check(&pod, &serde_json::from_value(node.clone()).unwrap());
            assert_eq!(found, expected, "{spec} on {node}");
        }
    }
}
