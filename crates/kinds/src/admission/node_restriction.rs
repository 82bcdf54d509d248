//! The plugin `NodeRestriction`: a node agent may write only its own Node, lease, pods and their tokens, and not the
//! labels and taints of its Node that attract pods.
//!
//! Authorization knows only the URL of a request; this plugin also reads the objects.

mod growth;
mod labels;
mod mirror;
mod tokens;

use plumb_resize::growth::GROWTH_ANNOTATIONS;
use serde_json::Value;

use crate::registry::certificate_signing_request::request::read;
use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::authz::node_of;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::Row;
use plumb_apiserver::object::{decode, meta};
use plumb_apiserver::user::User;

const NODE_USER: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// Rejects writes of a node agent to objects of other nodes.
pub(crate) struct NodeRestriction;

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        node_of(attributes.user).is_some()
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        if attributes.is_below("", "serviceaccounts") {
            return tokens::check(attributes, new);
        }
        // An Eviction does not name the node of its pod.
        let evicted = match attributes.subresource {
            Some("eviction") => Some(find(attributes, "pods", attributes.name)?),
            _ => None,
        };
        let request = NodeRequest {
            user: attributes.user,
            operation: attributes.operation,
            row: attributes.row,
            subresource: attributes.subresource.unwrap_or_default(),
            namespace: attributes.namespace.unwrap_or_default(),
            name: attributes.name,
            old: evicted.as_ref().or(Some(attributes.old)).filter(|old| !old.is_null()),
            new: Some(&*new).filter(|new| !new.is_null()),
        };
        node_restriction(&request, |node| find(attributes, "nodes", node).ok())
    }

    /// A resize is checked as it would be stored, after all that may change it.
    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        if !attributes.is_below("", "pods") || attributes.subresource != Some("resize") {
            return Ok(());
        }
        growth::check(attributes.old, new).map_err(|why| attributes.forbidden(&why))
    }
}

/// An object of the core group, in the namespace of the written object if its kind is namespaced.
fn find(attributes: &Attributes<'_>, plural: &str, name: &str) -> Result<Value, ApiError> {
    let kinds = attributes.cluster.kinds();
    let row = kinds.find("", plural).ok_or_else(ApiError::no_such_path)?;
    let key = row.key(attributes.namespace, name)?;
    decode(&attributes.cluster.store().get(&key).ok_or_else(|| row.not_found(name))?.value)
}

/// The write request of a node agent.
#[derive(Clone, Copy)]
struct NodeRequest<'a> {
    /// The user.
    user: &'a User,
    /// The operation.
    operation: Operation,
    /// The resource.
    row: &'a Row,
    /// The subresource; empty for the object itself.
    subresource: &'a str,
    /// The namespace; empty for a cluster-scoped object.
    namespace: &'a str,
    /// The name of the object.
    name: &'a str,
    /// The stored object; for a subresource with its own kind, the object that has the subresource.
    old: Option<&'a Value>,
    /// The new object.
    new: Option<&'a Value>,
}

impl NodeRequest<'_> {
    fn refuse(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.row.group(), self.row.plural(), self.name, why)
    }

    fn unexpected(&self) -> ApiError {
        self.refuse(&format!("unexpected operation {:?}", self.operation.name()))
    }
}

fn node_name(object: Option<&Value>) -> &str {
    object.and_then(|object| object.pointer("/spec/nodeName")).and_then(Value::as_str).unwrap_or_default()
}

/// Rejects writes that a node agent may not make; other users pass. `find_node` finds a Node by its name.
fn node_restriction(
    request: &NodeRequest<'_>,
    find_node: impl FnOnce(&str) -> Option<Value>,
) -> Result<(), ApiError> {
    let Some(node) = node_of(request.user) else { return Ok(()) };
    if node.is_empty() {
        let why = format!("could not determine node from user {:?}", request.user.name());
        return Err(request.refuse(&why));
    }
    match (request.row.group(), request.row.plural()) {
        ("", "pods") => match request.subresource {
            "" => pod(node, request, find_node),
            "status" => pod_status(node, request),
            "eviction" => eviction(node, request),
            "resize" => resize(node, request),
            // SPEC: upstream's message does not know growth by the node.
            other => Err(request.refuse(&format!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            ))),
        },
        ("", "nodes") => own_node(node, request),
        ("", "persistentvolumeclaims") if request.subresource == "status" => claim_status(node, request),
        ("", "persistentvolumeclaims") => Err(request.refuse("may only update PVC status")),
        ("coordination.k8s.io", "leases") => {
            if request.namespace != LEASES {
                let why = format!("can only access leases in the {LEASES:?} system namespace");
                return Err(request.refuse(&why));
            }
            named_like(node, request, "node lease")
        }
        ("storage.k8s.io", "csinodes") => named_like(node, request, "CSINode"),
        ("resource.k8s.io", "resourceslices") => slice(node, request),
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request(node, request),
        _ => Ok(()),
    }
}

fn pod(
    node: &str,
    request: &NodeRequest<'_>,
    find_node: impl FnOnce(&str) -> Option<Value>,
) -> Result<(), ApiError> {
    match request.operation {
        Operation::Create => mirror::check(node, request, find_node),
        Operation::Delete if node_name(request.old) != node => {
            let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
            Err(request.refuse(&why))
        }
        Operation::Delete => Ok(()),
        Operation::Update | Operation::Connect => Err(request.refuse(&format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            request.operation.name()
        ))),
    }
}

fn pod_status(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    let (Operation::Update, Some(old), Some(new)) = (request.operation, request.old, request.new) else {
        return Err(request.unexpected());
    };
    if node_name(Some(old)) != node {
        let why =
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
        return Err(request.refuse(&why));
    }
    let differ = |pointer: &str| empty_as_none(old.pointer(pointer)) != empty_as_none(new.pointer(pointer));
    for (pointer, what) in [
        ("/metadata/labels", "labels through pod status"),
        ("/status/resourceClaimStatuses", "resource claim statues"),
        ("/status/extendedResourceClaimStatus", "extended resource claim status"),
    ] {
        if differ(pointer) {
            return Err(request.refuse(&format!("node {node:?} cannot update {what}")));
        }
    }
    for name in GROWTH_ANNOTATIONS {
        if growth::annotation_of(old, name) != growth::annotation_of(new, name) {
            return Err(request.refuse(&format!("node {node:?} cannot update the annotation {name}")));
        }
    }
    Ok(())
}

/// A node may resize its own pods; which resizes, [`growth::check`] decides.
fn resize(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    if request.operation != Operation::Update {
        return Err(request.unexpected());
    }
    if node_name(request.old) != node {
        let why = format!("node {node:?} can only resize pods with spec.nodeName set to itself");
        return Err(request.refuse(&why));
    }
    Ok(())
}

fn empty_as_none(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    })
}

fn eviction(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    if request.operation != Operation::Create {
        return Err(request.unexpected());
    }
    if node_name(request.old) != node {
        let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
        return Err(request.refuse(&why));
    }
    Ok(())
}

fn own_node(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    let name = match (request.operation, request.new) {
        (Operation::Create, Some(new)) => meta(new, "name"),
        _ => request.name,
    };
    if name != node {
        return Err(request.refuse(&format!("node {node:?} is not allowed to modify node {name:?}")));
    }
    let Some(new) = request.new else { return Ok(()) };
    let source = |object: &Value| empty_as_none(object.pointer("/spec/configSource")).cloned();
    match (request.operation, request.old) {
        (Operation::Create, _) => {
            if source(new).is_some() {
                let why = format!("node {node:?} is not allowed to create pods with a non-nil configSource");
                return Err(request.refuse(&why));
            }
            // SPEC: upstream lets a node choose. Other nodes route by it here, and a node must not choose which addresses come
            // to it.
            if has_pod_network(new) {
                let why = format!("node {node:?} is not allowed to set spec.podCIDRs");
                return Err(request.refuse(&why));
            }
            let forbidden = labels::forbidden(None, new);
            if !forbidden.is_empty() {
                let labels = forbidden.join(", ");
                let why = format!("node {node:?} is not allowed to set the following labels: {labels}");
                return Err(request.refuse(&why));
            }
        }
        (Operation::Update, Some(old)) => {
            if source(new).is_some() && source(new) != source(old) {
                let why = format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                );
                return Err(request.refuse(&why));
            }
            let differ =
                |pointer: &str| empty_as_none(old.pointer(pointer)) != empty_as_none(new.pointer(pointer));
            if differ("/spec/taints") {
                return Err(request.refuse(&format!("node {node:?} is not allowed to modify taints")));
            }
            if differ("/spec/podCIDR") || differ("/spec/podCIDRs") {
                return Err(request.refuse(&format!("node {node:?} is not allowed to modify spec.podCIDRs")));
            }
            if differ("/metadata/ownerReferences") {
                let why = format!("node {node:?} is not allowed to modify ownerReferences");
                return Err(request.refuse(&why));
            }
            let forbidden = labels::forbidden(Some(old), new);
            if !forbidden.is_empty() {
                let why = format!("is not allowed to modify labels: {}", forbidden.join(", "));
                return Err(request.refuse(&why));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether a Node has a network for its pods.
fn has_pod_network(node: &Value) -> bool {
    ["/spec/podCIDR", "/spec/podCIDRs"].iter().any(|field| match node.pointer(field) {
        Some(Value::String(network)) => !network.is_empty(),
        field => empty_as_none(field).is_some(),
    })
}

/// Rejects updates of a claim's status that change other fields than those that the node agent reports.
fn claim_status(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    let (Operation::Update, Some(old), Some(new)) = (request.operation, request.old, request.new) else {
        return Err(request.unexpected());
    };
    let rest = |claim: &Value| {
        let mut rest = claim.clone();
        let parts = [
            ("metadata", &["resourceVersion", "managedFields"][..]),
            ("status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"]),
        ];
        for (part, fields) in parts {
            if let Some(part) = rest.get_mut(part).and_then(Value::as_object_mut) {
                for field in fields {
                    part.remove(*field);
                }
            }
        }
        rest
    };
    if rest(old) == rest(new) {
        return Ok(());
    }
    let why = format!(
        "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
    );
    Err(request.refuse(&why))
}

fn named_like(node: &str, request: &NodeRequest<'_>, what: &str) -> Result<(), ApiError> {
    let name = match (request.operation, request.new) {
        (Operation::Create, Some(new)) => meta(new, "name"),
        _ => request.name,
    };
    if name == node {
        return Ok(());
    }
    Err(request.refuse(&format!("can only access {what} with the same name as the requesting node")))
}

fn slice(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    let (object, what) = match request.operation {
        Operation::Create => (request.new, "create"),
        Operation::Delete => (request.old, "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    if node_name(object) == node {
        return Ok(());
    }
    let why = format!("can only {what} ResourceSlice with the same NodeName as the requesting node");
    Err(request.refuse(&why))
}

/// Rejects a `CertificateSigningRequest` for the name of another node.
fn signing_request(node: &str, request: &NodeRequest<'_>) -> Result<(), ApiError> {
    let (Operation::Create, Some(new)) = (request.operation, request.new) else { return Ok(()) };
    let signer = new["spec"]["signerName"].as_str().unwrap_or_default();
    if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
        return Ok(());
    }
    let Ok(asked) = read(new) else { return Err(request.refuse("unable to parse csr")) };
    let own = format!("{NODE_USER}{node}");
    if asked.common_name == own {
        return Ok(());
    }
    Err(request.refuse(&format!("can only create a node CSR with CN={own}")))
}
