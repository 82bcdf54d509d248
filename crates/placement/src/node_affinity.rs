//! `nodeSelector` and node affinity.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, VolumeNodeAffinity,
};

use crate::labels::{Labels, Requirement};

/// The only field that `matchFields` supports.
const NAME_FIELD: &str = "metadata.name";

/// A `NodeSelectorTerm`: all its expressions about labels and fields must match. An empty term matches no node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    fn read(term: &NodeSelectorTerm) -> Self {
        let read = |list: &Option<Vec<NodeSelectorRequirement>>| {
            let all = list.iter().flatten();
            let values = all.map(|one| (&one.key, &one.operator, one.values.as_deref().unwrap_or_default()));
            values.map(|(key, operator, values)| Requirement::expression(key, operator, values)).collect()
        };
        Self { labels: read(&term.match_expressions), fields: read(&term.match_fields) }
    }

    /// Whether the term matches a node.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let empty = self.labels.is_empty() && self.fields.is_empty();
        let labels = || self.labels.iter().all(|one| one.matches(labels.get(one.key()).map(String::as_str)));
        let fields =
            || self.fields.iter().all(|one| one.matches(Some(name).filter(|_| one.key() == NAME_FIELD)));
        !empty && labels() && fields()
    }

    /// The node names that the term allows, if it lists any.
    fn names(&self) -> Option<BTreeSet<&str>> {
        let listed = self.fields.iter().filter(|one| one.key() == NAME_FIELD);
        let mut listed = listed.filter_map(Requirement::allowed);
        let first: BTreeSet<&str> = listed.next()?.iter().map(String::as_str).collect();
        Some(listed.fold(first, |names, more| {
            names.into_iter().filter(|name| more.iter().any(|one| one == name)).collect()
        }))
    }
}

/// The `nodeSelector` and the node affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeAffinity {
    /// `nodeSelector`.
    selector: Vec<Requirement>,
    /// The required terms; one of them must match, if there is a list.
    required: Option<Vec<NodeTerm>>,
    /// The preferred terms, each with its weight.
    pub preferred: Vec<(i64, NodeTerm)>,
}

impl NodeAffinity {
    /// Parses the `nodeSelector` and the node affinity of a pod.
    pub fn read(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred =
            affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let selector = spec.node_selector.iter().flatten();
        let preferred = preferred.into_iter().flatten();
        Self {
            selector: selector.map(|(key, value)| Requirement::equals(key, value)).collect(),
            required: required.map(|one| one.node_selector_terms.iter().map(NodeTerm::read).collect()),
            preferred: preferred
                .map(|one| (i64::from(one.weight), NodeTerm::read(&one.preference)))
                .collect(),
        }
    }

    /// The affinity of a persistent volume: the nodes from which it can be reached.
    pub fn for_volume(affinity: Option<&VolumeNodeAffinity>) -> Self {
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        let required = required.map(|one| one.node_selector_terms.iter().map(NodeTerm::read).collect());
        Self { required, ..Self::default() }
    }

    /// Returns a copy without the preferred terms.
    #[must_use]
    pub fn without_preferred(&self) -> Self {
        Self { preferred: Vec::new(), ..self.clone() }
    }

    /// Whether every node matches.
    pub fn is_any(&self) -> bool {
        self.selector.is_empty() && self.required.is_none()
    }

    /// Whether the pod can run on a node with this name and these labels.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let selected = self.selector.iter().all(|one| one.matches(labels.get(one.key()).map(String::as_str)));
        selected
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    /// Whether the pod can run on a node.
    pub fn matches_node(&self, node: &Node) -> bool {
        static NONE: Labels = Labels::new();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.matches(name, node.metadata.labels.as_ref().unwrap_or(&NONE))
    }

    /// The names of the nodes that the pod can run on, if every required term lists names. The set is empty if the terms
    /// contradict each other.
    pub fn names(&self) -> Option<BTreeSet<&str>> {
        let terms = self.required.as_ref().filter(|terms| !terms.is_empty())?;
        let names: Option<Vec<BTreeSet<&str>>> = terms.iter().map(NodeTerm::names).collect();
        Some(names?.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn affinity(spec: Value) -> NodeAffinity {
        let mut spec = spec;
        spec["containers"] = json!([]);
        NodeAffinity::read(&serde_json::from_value::<PodSpec>(spec).unwrap())
    }

    fn required(terms: Value) -> Value {
        json!({ "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
        } } })
    }

    #[test]
    fn a_node_must_match_the_selector_and_one_required_term() {
        let node: Node =
            serde_json::from_value(json!({ "metadata": { "name": "a", "labels": { "disk": "ssd" } } }))
                .unwrap();
        let disk = |value: &str| json!({ "key": "disk", "operator": "In", "values": [value] });
        let name = |value: &str| json!({ "key": "metadata.name", "operator": "In", "values": [value] });
        for (spec, expected) in [
            (json!({}), true),
            (json!({ "nodeSelector": { "disk": "ssd" } }), true),
            (json!({ "nodeSelector": { "disk": "hdd" } }), false),
            (required(json!([])), false),
            (required(json!([{}])), false),
            (
                required(
                    json!([{ "matchExpressions": [disk("hdd")] }, { "matchExpressions": [disk("ssd")] }]),
                ),
                true,
            ),
            (required(json!([{ "matchExpressions": [disk("ssd")], "matchFields": [name("b")] }])), false),
            (required(json!([{ "matchFields": [name("a")] }])), true),
        ] {
            assert_eq!(affinity(spec.clone()).matches_node(&node), expected, "{spec}");
        }
    }

    #[test]
    fn names_are_known_only_if_every_required_term_lists_names() {
        let names = |values: &[&str]| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": values }] });
        let labelled = json!({ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] });
        for (terms, expected) in [
            (json!([names(&["a", "b"]), names(&["c"])]), Some(vec!["a", "b", "c"])),
            (json!([names(&["a"]), labelled]), None),
            (json!([]), None),
        ] {
            let listed = affinity(required(terms.clone()));
            assert_eq!(listed.names().map(|names| names.into_iter().collect()), expected, "{terms}");
        }
    }
}
