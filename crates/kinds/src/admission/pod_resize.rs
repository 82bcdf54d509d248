//! Rejects resizes that are infeasible on the pod's node, in dialects in which the API server does that.

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use plumb_resize::admission::over_capacity;
use plumb_resize::list::{BadQuantity, declared};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::rules::Rules;
use serde_json::Value;

use super::bound_pod::{find_node, node_of_changed_pod};
use crate::registry::pod::typed;
use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::{ApiError, Cause};

/// Rejects resizes that exceed the allocatable resources of the pod's node.
pub(crate) struct PodResize;

impl Plugin for PodResize {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.cluster.rules().refuse_over_capacity
            && attributes.is_below("", "pods")
            && match attributes.subresource {
                // In this dialect a pod update can resize too.
                None => attributes.cluster.rules().resize_by_pod_update,
                below => below == Some("resize"),
            }
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let Some(name) = node_of_changed_pod(attributes, new) else { return Ok(()) };
        let node = find_node(attributes, name)?;
        let verdict = fits(&typed(new)?, &node, attributes.cluster.rules())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        match verdict {
            None => Ok(()),
            Some((reason, why)) => Err(attributes
                .forbidden(&why)
                .because(Cause { reason: reason.to_owned(), ..Cause::default() })),
        }
    }
}

/// Why a pod can never fit a node: reason and message.
fn fits(pod: &Pod, node: &Node, rules: &Rules) -> Result<Option<(&'static str, String)>, BadQuantity> {
    let os = node.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/os"));
    if let Some(os) = os.filter(|os| *os != "linux") {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
        return Ok(Some(("UnsupportedPlatform", why)));
    }
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let allocatable = declared(allocatable)?.amounts();
    let empty = PodSpec::default();
    let desired = PodResources::desired(pod.spec.as_ref().unwrap_or(&empty))?;
    let requests = PodShape::of(pod)?.requests(&desired);
    Ok(over_capacity(requests, allocatable, rules).map(|why| ("NodeCapacity", why)))
}
