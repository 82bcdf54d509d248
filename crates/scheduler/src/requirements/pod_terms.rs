//! Terms of pod affinity and anti-affinity, and topology spread constraints.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodAffinityTerm, TopologySpreadConstraint};

use plumb_placement::{Labels, Requirement, Selector};

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodTerm {
    pub(crate) namespaces: BTreeSet<String>,
    /// More namespaces, by their labels.
    pub(crate) namespace_selector: Selector,
    pub(crate) selector: Selector,
    /// The node label whose values are the topology domains.
    pub(crate) topology_key: String,
}

impl PodTerm {
    /// Reads a term of a pod in a namespace, which is the default of the term.
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

    /// Whether the term matches a pod, given the labels of its namespace.
    pub(crate) fn matches(&self, namespace: &str, namespace_labels: &Labels, labels: &Labels) -> bool {
        let in_namespace =
            self.namespaces.contains(namespace) || self.namespace_selector.matches(namespace_labels);
        in_namespace && self.selector.matches(labels)
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpreadConstraint {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    pub(crate) selector: Selector,
    pub(crate) min_domains: usize,
    /// Only nodes that match the pod's node affinity count (`nodeAffinityPolicy`).
    pub(crate) honors_affinity: bool,
    /// Only nodes whose taints the pod tolerates count (`nodeTaintsPolicy`).
    pub(crate) honors_taints: bool,
}

impl SpreadConstraint {
    /// The selector of the pods that are counted. As in upstream, an empty selector matches the pod itself and counts no
    /// pods.
    pub(crate) fn counting_selector(&self) -> Selector {
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
            min_domains: constraint.min_domains.and_then(|min| usize::try_from(min).ok()).unwrap_or(1),
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}
