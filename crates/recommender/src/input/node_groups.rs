//! Groups of nodes in the model: a pod has one more label for each selector that its node matches, and the selector of the
//! VPA wants it.

use std::collections::BTreeMap;

use kube::core::{Expression, Selector, SelectorExt as _};
use plumb_vpa::node_groups::{NODE_SELECTOR_ANNOTATION, NodeLabels, NodeSelectorError, node_selector};
use plumb_vpa_api::VerticalPodAutoscaler;

/// The message of the condition `ConfigUnsupported` of a VPA that selects nodes.
pub(crate) fn unsupported(vpa: &VerticalPodAutoscaler, is_enabled: bool) -> Option<String> {
    let selector = node_selector(vpa)?;
    let selector = if is_enabled { selector } else { Err(NodeSelectorError::NotEnabled) };
    let error = selector.err()?;
    Some(format!("Cannot use the annotation {NODE_SELECTOR_ANNOTATION}: {error}"))
}

/// The requirement that pods of nodes which a selector matches meet in the model.
pub(crate) fn requirement(nodes: &Selector) -> Expression {
    Expression::Equal(label(nodes), String::new())
}

/// No label of a pod has such a name.
fn label(nodes: &Selector) -> String {
    format!("plumb.dev/nodes:{nodes}")
}

/// Which nodes there are, and by which selectors VPAs group them.
#[derive(Debug, Default)]
pub(crate) struct NodeGroups {
    /// By their labels in the model.
    selectors: BTreeMap<String, Selector>,
    nodes: LabelsByNode,
}

/// The labels of nodes, by the names of the nodes.
pub(crate) type LabelsByNode = BTreeMap<String, NodeLabels>;

impl NodeGroups {
    /// Notes what there is now. Whether it is other than before.
    pub(crate) fn set(&mut self, selectors: impl Iterator<Item = Selector>, nodes: LabelsByNode) -> bool {
        let selectors: BTreeMap<String, Selector> =
            selectors.map(|selector| (label(&selector), selector)).collect();
        let is_same =
            self.selectors.keys().eq(selectors.keys()) && (selectors.is_empty() || self.nodes == nodes);
        (self.selectors, self.nodes) = (selectors, nodes);
        !is_same
    }

    /// The labels that pods of a node have in the model.
    pub(crate) fn of_node(&self, node: &str) -> impl Iterator<Item = (String, String)> {
        let labels = self.nodes.get(node);
        let matching = self
            .selectors
            .iter()
            .filter(move |(_, selector)| labels.is_some_and(|labels| selector.matches(labels)));
        matching.map(|(label, _)| (label.clone(), String::new()))
    }
}
