//! Which pods a pod wants near, wants far, and wants spread.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodAffinityTerm, TopologySpreadConstraint};

use plumb_placement::{Labels, Requirement, Selector};

/// Pods in some namespaces, and what counts as near them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodTerm {
    pub(crate) namespaces: BTreeSet<String>,
    /// Further namespaces, by their labels.
    pub(crate) namespace_selector: Selector,
    pub(crate) selector: Selector,
    /// The label of nodes that are near if they have the same value of it.
    pub(crate) topology_key: String,
}

impl PodTerm {
    /// Reads a term of a pod in a namespace, which is meant if none is said.
    pub(crate) fn read(term: &PodAffinityTerm, namespace: &str) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self {
            namespaces,
            namespace_selector: Selector::read(term.namespace_selector.as_ref()),
            selector: Selector::read(term.label_selector.as_ref()),
            topology_key: term.topology_key.clone(),
        }
    }

    /// Whether a pod is meant, given the labels of its namespace.
    pub(crate) fn matches(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        let there = self.namespaces.contains(namespace) || self.namespace_selector.matches(of_namespace);
        there && self.selector.matches(labels)
    }
}

/// How evenly pods are to be spread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spread {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    pub(crate) selector: Selector,
    pub(crate) min_domains: usize,
    /// Only nodes count that the pod may have.
    pub(crate) honours_affinity: bool,
    /// Only nodes count whose taints the pod bears.
    pub(crate) honours_taints: bool,
}

impl Spread {
    /// Which pods are counted. A selector that asks for nothing counts nobody, as upstream has it, though it selects
    /// the pod itself.
    pub(crate) fn counted(&self) -> Selector {
        if self.selector.is_empty() { Selector::Nothing } else { self.selector.clone() }
    }

    /// Reads a constraint of a pod with these labels.
    pub(crate) fn read(constraint: &TopologySpreadConstraint, labels: &Labels) -> Self {
        let keys = constraint.match_label_keys.iter().flatten();
        let own = keys.filter_map(|key| Some((key, labels.get(key)?)));
        let selector = own
            .fold(Selector::read(constraint.label_selector.as_ref()), |selector, (key, value)| {
                selector.and(Requirement::equals(key, value))
            });
        Self {
            max_skew: i64::from(constraint.max_skew),
            topology_key: constraint.topology_key.clone(),
            selector,
            min_domains: constraint.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
            honours_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honours_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}
