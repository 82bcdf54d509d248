//! Rejects updates of pods that need a feature which their node does not declare (KEP-5328).

use k8s_openapi::api::core::v1::Pod;
use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_placement::{NodeFeature, required_to_update};
use serde_json::Value;

use super::bound_pod::{find_node, node_of_changed_pod};
use crate::registry::pod::typed;

/// Rejects updates and resizes of bound pods for the lack of a feature of their node.
pub(crate) struct NodeDeclaredFeatures {
    /// The gate.
    is_enabled: bool,
}

impl NodeDeclaredFeatures {
    pub(crate) fn new(is_enabled: bool) -> Self {
        Self { is_enabled }
    }
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        self.is_enabled
            && attributes.operation == Operation::Update
            && attributes.is_below("", "pods")
            && matches!(attributes.subresource, None | Some("resize"))
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let Some(name) = node_of_changed_pod(attributes, new) else { return Ok(()) };
        let old: Pod = typed(attributes.old)?;
        let new: Pod = typed(new)?;
        let required = required_to_update(&old.spec.unwrap_or_default(), &new.spec.unwrap_or_default());
        if required.is_empty() {
            return Ok(());
        }
        let declared = find_node(attributes, name)?.status.and_then(|status| status.declared_features);
        let declared = declared.unwrap_or_default();
        let missing = required.into_iter().filter(|feature| !feature.is_declared(&declared));
        let missing: Vec<&str> = missing.map(NodeFeature::name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(attributes.forbidden(&format!(
            "pod update requires features {} which are not available on node {name:?}",
            missing.join(", ")
        )))
    }
}
