//! Which nodes a `DaemonSet` runs on, and the node affinity and tolerations of its pods.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Toleration,
};
use plumb_placement as placement;

use super::{GENERATION_LABEL, HASH, generation, spec};
use crate::workload::pods;
use plumb_controller_runtime::controller_reference;

const NAME_FIELD: &str = "metadata.name";
/// The tolerations that daemon pods get: they run before a node is ready, and as long as the node exists.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Whether a daemon pod should run on a node (upstream's `NodeShouldRunDaemonPod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShouldRun {
    /// The pod should run.
    Yes,
    /// The pod should not start, but may continue to run.
    Continue,
    /// The pod should not run.
    No,
}

/// The node selector, affinity and tolerations of a set's pods.
pub(super) struct Predicates {
    affinity: placement::NodeAffinity,
    tolerations: Vec<placement::Toleration>,
    only: Option<String>,
}

impl Predicates {
    pub(super) fn for_daemon_set(set: &DaemonSet) -> Self {
        let mut wanted = spec(set).template.spec.clone().unwrap_or_default();
        add_tolerations(&mut wanted);
        let only = wanted.node_name.take().filter(|name| !name.is_empty());
        let tolerations = wanted.tolerations.iter().flatten().map(placement::Toleration::read).collect();
        Self { affinity: placement::NodeAffinity::read(&wanted), tolerations, only }
    }

    /// Whether a pod of the set should run on a node.
    pub(super) fn should_run(&self, node: &Node) -> ShouldRun {
        let is_other = self.only.is_some() && self.only != node.metadata.name;
        if is_other || !self.affinity.matches_node(node) {
            return ShouldRun::No;
        }
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let mut should_run = ShouldRun::Yes;
        for taint in taints.filter(|taint| !self.tolerations.iter().any(|one| one.tolerates(taint))) {
            match &*taint.effect {
                "NoExecute" => return ShouldRun::No,
                "NoSchedule" => should_run = ShouldRun::Continue,
                _ => {}
            }
        }
        should_run
    }
}

/// Adds the tolerations of daemon pods.
fn add_tolerations(spec: &mut PodSpec) {
    let host = (spec.host_network == Some(true)).then_some(NO_NETWORK);
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(host) {
        let wanted = Toleration {
            key: Some(key.to_owned()),
            effect: Some(effect.to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        let is_same = |one: &Toleration| {
            let value = one.value.as_ref().is_none_or(String::is_empty);
            value && (&one.key, &one.effect, &one.operator) == (&wanted.key, &wanted.effect, &wanted.operator)
        };
        match tolerations.iter_mut().find(|one| is_same(one)) {
            // Daemon pods have no `tolerationSeconds`.
            Some(same) => *same = wanted,
            None => tolerations.push(wanted),
        }
    }
}

/// The pod for a node, of the revision with this hash. The scheduler binds it, and decides whether it fits.
pub(super) fn new_pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let metadata = &set.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut pod = pods::from_template(&spec(set).template, namespace, name, controller_reference(set));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    let spec = pod.spec.get_or_insert_default();
    add_tolerations(spec);
    let named = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![named]), match_expressions: None };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let of_node = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    // This replaces the required node affinity of the template, which the node already matches.
    of_node.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

/// The node that a pod is bound to, or that its affinity names.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let required = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = required.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|one| one.key == NAME_FIELD && one.operator == "In");
    match names.next()?.values.as_deref()? {
        [name] => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn mk_set(spec: Value) -> DaemonSet {
        let template = json!({ "metadata": { "labels": { "app": "d" } }, "spec": spec });
        let spec = json!({ "selector": { "matchLabels": { "app": "d" } }, "template": template });
        let notes = json!({ "deprecated.daemonset.template.generation": "4" });
        serde_json::from_value(
            json!({ "metadata": { "name": "d", "namespace": "n", "annotations": notes }, "spec": spec }),
        )
        .unwrap()
    }

    #[test]
    fn a_daemon_pod_runs_where_its_template_allows_and_tolerates_the_taints_of_nodes() {
        let node = |taints: &[(&str, &str)]| -> Node {
            let taints: Vec<_> =
                taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect })).collect();
            let metadata = json!({ "name": "a", "labels": { "disk": "ssd" } });
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "taints": taints } })).unwrap()
        };
        let plain = json!({ "containers": [] });
        let selecting = |disk: &str| json!({ "containers": [], "nodeSelector": { "disk": disk } });
        for (spec, taints, wanted) in [
            (plain.clone(), &[][..], ShouldRun::Yes),
            (
                plain.clone(),
                &[
                    ("node.kubernetes.io/unschedulable", "NoSchedule"),
                    ("node.kubernetes.io/not-ready", "NoExecute"),
                ][..],
                ShouldRun::Yes,
            ),
            (plain.clone(), &[("mine", "NoSchedule")][..], ShouldRun::Continue),
            (plain.clone(), &[("mine", "PreferNoSchedule")][..], ShouldRun::Yes),
            (plain.clone(), &[("mine", "NoSchedule"), ("mine", "NoExecute")][..], ShouldRun::No),
            (plain, &[("node.kubernetes.io/network-unavailable", "NoSchedule")][..], ShouldRun::Continue),
            (
                json!({ "containers": [], "hostNetwork": true }),
                &[("node.kubernetes.io/network-unavailable", "NoSchedule")][..],
                ShouldRun::Yes,
            ),
            (selecting("ssd"), &[][..], ShouldRun::Yes),
            (selecting("hdd"), &[][..], ShouldRun::No),
            (json!({ "containers": [], "nodeName": "b" }), &[][..], ShouldRun::No),
        ] {
            assert_eq!(
                Predicates::for_daemon_set(&mk_set(spec.clone())).should_run(&node(taints)),
                wanted,
                "{spec} {taints:?}"
            );
        }
    }

    #[test]
    fn the_node_of_a_pod_is_read_from_its_affinity() {
        let likes = json!([{ "weight": 1, "preference": { "matchExpressions": [] } }]);
        let affinity = json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "x", "operator": "Exists" }] }] },
            "preferredDuringSchedulingIgnoredDuringExecution": likes,
        } });
        let bears = json!([{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 }]);
        let set = mk_set(json!({ "containers": [], "affinity": affinity, "tolerations": bears }));
        let pod = new_pod(&set, "a", "h");
        assert_eq!(node_of(&pod), Some("a"));
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(pod["metadata"]["generateName"], "d-");
        let labels = json!({ "app": "d", "controller-revision-hash": "h", "pod-template-generation": "4" });
        assert_eq!(pod["metadata"]["labels"], labels);
        let named =
            json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] }]);
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
        assert_eq!(affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"], named);
        assert_eq!(affinity["preferredDuringSchedulingIgnoredDuringExecution"], likes);
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 6);
        assert_eq!(tolerations[0].get("tolerationSeconds"), None);
    }
}
