//! Which nodes a pod wants, likes and bears.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec, Taint, Toleration as WireToleration};

use crate::labels::{Labels, Requirement};

/// The taint of a node that takes no new pods.
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// The one field of a node that can be selected by.
const NAME_FIELD: &str = "metadata.name";

/// Some nodes: every expression about labels and about the name must hold. An empty one is no node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    fn read(term: &NodeSelectorTerm) -> Self {
        let read = |list: &Option<Vec<k8s_openapi::api::core::v1::NodeSelectorRequirement>>| {
            let all = list.iter().flatten();
            let values = all.map(|one| (&one.key, &one.operator, one.values.as_deref().unwrap_or_default()));
            values.map(|(key, operator, values)| Requirement::expression(key, operator, values)).collect()
        };
        Self { labels: read(&term.match_expressions), fields: read(&term.match_fields) }
    }

    /// Whether a node is one of them.
    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let empty = self.labels.is_empty() && self.fields.is_empty();
        let labels = || self.labels.iter().all(|one| one.holds(labels.get(one.key()).map(String::as_str)));
        let fields =
            || self.fields.iter().all(|one| one.holds(Some(name).filter(|_| one.key() == NAME_FIELD)));
        !empty && labels() && fields()
    }

    /// The names of those that it can be, if it lists names.
    fn names(&self) -> Option<BTreeSet<&str>> {
        let listed = self.fields.iter().filter(|one| one.key() == NAME_FIELD);
        let mut listed = listed.filter_map(Requirement::allowed);
        let first: BTreeSet<&str> = listed.next()?.iter().map(String::as_str).collect();
        Some(listed.fold(first, |names, more| {
            names.into_iter().filter(|name| more.iter().any(|one| one == name)).collect()
        }))
    }
}

/// Which nodes a pod must have, and likes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeWish {
    /// Labels that the node has.
    selector: Vec<Requirement>,
    /// One of these it must be, if there is a list.
    any_of: Option<Vec<NodeTerm>>,
    /// What each of these is worth.
    pub(crate) likes: Vec<(i64, NodeTerm)>,
}

impl NodeWish {
    pub(crate) fn read(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred =
            affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let selector = spec.node_selector.iter().flatten();
        let likes = preferred.into_iter().flatten();
        Self {
            selector: selector.map(|(key, value)| Requirement::equals(key, value)).collect(),
            any_of: required.map(|one| one.node_selector_terms.iter().map(NodeTerm::read).collect()),
            likes: likes.map(|one| (i64::from(one.weight), NodeTerm::read(&one.preference))).collect(),
        }
    }

    /// Only what it must have.
    pub(crate) fn required(&self) -> Self {
        Self { likes: Vec::new(), ..self.clone() }
    }

    /// Whether any node will do.
    pub(crate) fn is_any(&self) -> bool {
        self.selector.is_empty() && self.any_of.is_none()
    }

    /// Whether a node is one that it may have.
    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let selected = self.selector.iter().all(|one| one.holds(labels.get(one.key()).map(String::as_str)));
        selected && self.any_of.as_ref().is_none_or(|any| any.iter().any(|term| term.matches(name, labels)))
    }

    /// The names of the nodes that it may have, if it lists names. An empty list is a contradiction.
    pub(crate) fn names(&self) -> Option<BTreeSet<&str>> {
        let terms = self.any_of.as_ref().filter(|terms| !terms.is_empty())?;
        let names: Option<Vec<BTreeSet<&str>>> = terms.iter().map(NodeTerm::names).collect();
        Some(names?.into_iter().flatten().collect())
    }
}

/// Which taints a pod bears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Toleration {
    key: String,
    value: String,
    effect: String,
    /// Whatever the value is.
    any_value: bool,
}

impl Toleration {
    pub(crate) fn read(toleration: &WireToleration) -> Self {
        Self {
            key: toleration.key.clone().unwrap_or_default(),
            value: toleration.value.clone().unwrap_or_default(),
            effect: toleration.effect.clone().unwrap_or_default(),
            any_value: toleration.operator.as_deref() == Some("Exists"),
        }
    }

    /// Whether a taint is one of them.
    pub(crate) fn bears(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = self.any_value || self.value == taint.value.as_deref().unwrap_or_default();
        effect && key && value
    }
}
