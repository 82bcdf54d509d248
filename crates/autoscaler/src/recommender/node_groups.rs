//! Recommendations by group of nodes: what a pod of a `DaemonSet` uses depends on how large its node is.
//!
//! Several VPAs target one `DaemonSet`, each with an annotation that selects nodes, and each counts the pods of its nodes alone.
//! In the model such a pod has one more label for each selector that its node matches, and the selector of the VPA wants it.
//!
//! Such a VPA recommends and does not act: which node a new pod is for is not known to what matches VPAs with pods.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::core::{Expression, Selector, SelectorExt as _};

use crate::api::{UpdateMode, VerticalPodAutoscaler};
use crate::target::{ControllerRef, SelectorSyntaxError, WellKnown, parse_selector};

/// The annotation of a VPA that selects nodes by their labels, as `kubectl get nodes -l` does.
pub const NODE_SELECTOR_ANNOTATION: &str = "plumb.dev/node-selector";

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

/// Whether a VPA selects nodes, and so does not act on pods.
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

/// What the condition `ConfigUnsupported` says about a VPA that selects nodes.
pub(super) fn unsupported(vpa: &VerticalPodAutoscaler, is_enabled: bool) -> Option<String> {
    let selector = node_selector(vpa)?;
    let refused = |error| Some(format!("Cannot use the annotation {NODE_SELECTOR_ANNOTATION}: {error}"));
    match selector {
        _ if !is_enabled => refused(NodeSelectorError::NotEnabled),
        Err(error) => refused(error),
        Ok(_) if vpa.spec.update_mode() != UpdateMode::Off => Some(format!(
            "A VPA with the annotation {NODE_SELECTOR_ANNOTATION} recommends and does not update pods: its update mode should be Off"
        )),
        Ok(_) => None,
    }
}

/// The requirement that pods of nodes which a selector matches meet in the model.
pub(super) fn requirement(nodes: &Selector) -> Expression {
    Expression::Equal(label(nodes), String::new())
}

/// No label of a pod has such a name.
fn label(nodes: &Selector) -> String {
    format!("plumb.dev/nodes:{nodes}")
}

/// Which nodes there are, and by which selectors VPAs group them.
#[derive(Debug, Default)]
pub(super) struct NodeGroups {
    /// By their labels in the model.
    selectors: BTreeMap<String, Selector>,
    nodes: NodeLabels,
}

/// The labels of nodes, by the names of the nodes.
pub(super) type NodeLabels = BTreeMap<String, BTreeMap<String, String>>;

impl NodeGroups {
    /// Notes what there is now. Whether it is other than before.
    pub(super) fn set(&mut self, selectors: impl Iterator<Item = Selector>, nodes: NodeLabels) -> bool {
        let selectors: BTreeMap<String, Selector> =
            selectors.map(|selector| (label(&selector), selector)).collect();
        let is_same =
            self.selectors.keys().eq(selectors.keys()) && (selectors.is_empty() || self.nodes == nodes);
        (self.selectors, self.nodes) = (selectors, nodes);
        !is_same
    }

    /// The labels that pods of a node have in the model.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = (String, String)> {
        let labels = self.nodes.get(node);
        let matching = self
            .selectors
            .iter()
            .filter(move |(_, selector)| labels.is_some_and(|labels| selector.matches(labels)));
        matching.map(|(label, _)| (label.clone(), String::new()))
    }
}
