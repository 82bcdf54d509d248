//! Groups of nodes: the usage of a pod of a `DaemonSet` depends on the size of its node.
//!
//! Several VPAs target one `DaemonSet`, each with an annotation that selects nodes, and each is about the pods of its nodes
//! alone: the recommender counts them, the webhook and the updater apply the recommendation to them. A `DaemonSet` names the
//! node of a pod when it creates the pod, so that the webhook knows it before the scheduler does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod};
use kube::ResourceExt as _;
use kube::core::Selector;
use plumb_controller_runtime::{controller_of, pods};
use plumb_vpa_api::VerticalPodAutoscaler;

use crate::target::{ControllerRef, SelectorSyntaxError, WellKnown, parse_selector};

/// The annotation of a VPA that selects nodes by their labels, as `kubectl get nodes -l` does.
pub const NODE_SELECTOR_ANNOTATION: &str = "plumb.dev/node-selector";

/// The field of a node that the pods of a `DaemonSet` select.
const NAME_FIELD: &str = "metadata.name";

/// The labels of a node.
pub type NodeLabels = BTreeMap<String, String>;

/// Why a node selector cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeSelectorError {
    /// Nodes are not watched.
    #[error("the recommender runs without --node-selectors")]
    NotEnabled,
    /// It is no selector.
    #[error(transparent)]
    Syntax(SelectorSyntaxError),
    /// It selects all nodes.
    #[error("it selects every node")]
    Empty,
    /// Pods of other workloads do not belong to a node.
    #[error("the target is not a DaemonSet")]
    NotADaemonSet,
}

/// Whether a VPA selects nodes, or would if its annotation could be used.
pub fn selects_nodes(vpa: &VerticalPodAutoscaler) -> bool {
    vpa.annotations().contains_key(NODE_SELECTOR_ANNOTATION)
}

/// The nodes that a VPA selects; none if it selects by pods alone.
pub fn node_selector(vpa: &VerticalPodAutoscaler) -> Option<Result<Selector, NodeSelectorError>> {
    let text = vpa.annotations().get(NODE_SELECTOR_ANNOTATION)?;
    let target = ControllerRef::of_target("", &vpa.spec.target_ref);
    if target.well_known() != Some(WellKnown::DaemonSet) {
        return Some(Err(NodeSelectorError::NotADaemonSet));
    }
    Some(match parse_selector(text) {
        Err(error) => Err(NodeSelectorError::Syntax(error)),
        Ok(selector) if selector.to_string().is_empty() => Err(NodeSelectorError::Empty),
        Ok(selector) => Ok(selector),
    })
}

/// The node that a pod is bound to, or that its `DaemonSet` has created it for.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pods::node_of(pod).or_else(|| {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?;
        let required =
            affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
        // Terms are alternatives: one that names no node, or another one, allows more than that node.
        let mut terms = required.node_selector_terms.iter().map(named);
        let first = terms.next()??;
        terms.all(|other| other == Some(first)).then_some(first)
    })
}

/// The node that a term requires by its name.
fn named(term: &NodeSelectorTerm) -> Option<&str> {
    let mut fields = term.match_fields.iter().flatten();
    let name = fields.find(|field| field.key == NAME_FIELD && field.operator == "In")?;
    match name.values.as_deref()? {
        [one] => Some(one),
        _ => None,
    }
}

/// Removes the affinity of a pod, unless it names the node that a `DaemonSet` has created the pod for.
pub(crate) fn drop_affinity(pod: &mut Pod) {
    let is_daemon = controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "DaemonSet");
    let is_needed = is_daemon && pods::node_of(pod).is_none();
    if let Some(spec) = pod.spec.as_mut().filter(|_| !is_needed) {
        spec.affinity = None;
    }
}

/// A node without all but its labels.
pub fn labels_only(node: Node) -> Node {
    let mut labels = Node { metadata: node.metadata, ..Node::default() };
    labels.metadata.annotations = None;
    labels.metadata.managed_fields = None;
    labels
}
