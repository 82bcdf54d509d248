//! Updates of pods that are bound to a node, for the plugins that compare a pod with its node.

use k8s_openapi::api::core::v1::Node;
use plumb_apiserver::admission::Attributes;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::decode;
use serde::Deserialize as _;
use serde_json::Value;

/// The name of the node of a pod whose spec the update changes; `None` without a node, or if only metadata or status change.
pub(super) fn node_of_changed_pod<'n>(attributes: &Attributes<'_>, new: &'n Value) -> Option<&'n str> {
    let generation = |pod: &Value| pod.pointer("/metadata/generation").cloned();
    let node = new.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty())?;
    (generation(attributes.old) != generation(new)).then_some(node)
}

/// The stored node of that name; forbids the request if there is none.
pub(super) fn find_node(attributes: &Attributes<'_>, name: &str) -> Result<Node, ApiError> {
    let cluster = attributes.cluster;
    let missing = || attributes.forbidden(&format!("node {name:?} not found"));
    let row = cluster.kinds().find("", "nodes").ok_or_else(missing)?;
    let stored = cluster.store().get(&row.key(None, name)?).ok_or_else(missing)?;
    Node::deserialize(decode(&stored.value)?).map_err(|_| missing())
}
