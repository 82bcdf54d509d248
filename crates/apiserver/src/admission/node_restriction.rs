//! The plugin `NodeRestriction`: a node agent may write only its own Node, lease, pods and their tokens, and not the
//! labels and taints of its Node that attract pods.
//!
//! Authorization knows only the URL of a request; this plugin also reads the objects.

mod labels;
mod mirror;
mod tokens;

use serde_json::Value;

use super::{Attributes, Operation, Plugin};
use crate::authz::node_of;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::{decode, meta};
use crate::registry::certificate_signing_request::request::read;
use crate::user::User;

const NODE_USER: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// Rejects writes of a node agent to objects of other nodes.
pub(super) struct NodeRestriction;

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
        let wanted = Wanted {
            user: attributes.user,
            operation: attributes.operation,
            row: attributes.row,
            subresource: attributes.subresource.unwrap_or_default(),
            namespace: attributes.namespace.unwrap_or_default(),
            name: attributes.name,
            old: evicted.as_ref().or(Some(attributes.old)).filter(|old| !old.is_null()),
            new: Some(&*new).filter(|new| !new.is_null()),
        };
        node_restriction(&wanted, |node| find(attributes, "nodes", node).ok())
    }
}

/// An object of the core group, in the namespace of the written object if its kind is namespaced.
fn find(attributes: &Attributes<'_>, plural: &str, name: &str) -> Result<Value, ApiError> {
    let kinds = attributes.cluster.kinds();
    let row = kinds.find("", plural).ok_or_else(ApiError::no_such_path)?;
    let key = row.key(attributes.namespace, name)?;
    decode(&attributes.cluster.store().get(&key).ok_or_else(|| row.not_found(name))?.value)
}

/// The attributes of a write.
#[derive(Clone, Copy)]
struct Wanted<'a> {
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

impl Wanted<'_> {
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
    wanted: &Wanted<'_>,
    find_node: impl FnOnce(&str) -> Option<Value>,
) -> Result<(), ApiError> {
    let Some(node) = node_of(wanted.user) else { return Ok(()) };
    if node.is_empty() {
        let why = format!("could not determine node from user {:?}", wanted.user.name());
        return Err(wanted.refuse(&why));
    }
    match (wanted.row.group(), wanted.row.plural()) {
        ("", "pods") => match wanted.subresource {
            "" => pod(node, wanted, find_node),
            "status" => pod_status(node, wanted),
            "eviction" => eviction(node, wanted),
            other => Err(wanted.refuse(&format!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            ))),
        },
        ("", "nodes") => own_node(node, wanted),
        ("", "persistentvolumeclaims") if wanted.subresource == "status" => claim_status(node, wanted),
        ("", "persistentvolumeclaims") => Err(wanted.refuse("may only update PVC status")),
        ("coordination.k8s.io", "leases") => {
            if wanted.namespace != LEASES {
                let why = format!("can only access leases in the {LEASES:?} system namespace");
                return Err(wanted.refuse(&why));
            }
            named_like(node, wanted, "node lease")
        }
        ("storage.k8s.io", "csinodes") => named_like(node, wanted, "CSINode"),
        ("resource.k8s.io", "resourceslices") => slice(node, wanted),
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request(node, wanted),
        _ => Ok(()),
    }
}

fn pod(
    node: &str,
    wanted: &Wanted<'_>,
    find_node: impl FnOnce(&str) -> Option<Value>,
) -> Result<(), ApiError> {
    match wanted.operation {
        Operation::Create => mirror::check(node, wanted, find_node),
        Operation::Delete if node_name(wanted.old) != node => {
            let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
            Err(wanted.refuse(&why))
        }
        Operation::Delete => Ok(()),
        Operation::Update | Operation::Connect => Err(wanted.refuse(&format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            wanted.operation.name()
        ))),
    }
}

fn pod_status(node: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    let (Operation::Update, Some(old), Some(new)) = (wanted.operation, wanted.old, wanted.new) else {
        return Err(wanted.unexpected());
    };
    if node_name(Some(old)) != node {
        let why =
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
        return Err(wanted.refuse(&why));
    }
    let differ = |pointer: &str| empty_as_none(old.pointer(pointer)) != empty_as_none(new.pointer(pointer));
    for (pointer, what) in [
        ("/metadata/labels", "labels through pod status"),
        ("/status/resourceClaimStatuses", "resource claim statues"),
        ("/status/extendedResourceClaimStatus", "extended resource claim status"),
    ] {
        if differ(pointer) {
            return Err(wanted.refuse(&format!("node {node:?} cannot update {what}")));
        }
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

fn eviction(node: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    if wanted.operation != Operation::Create {
        return Err(wanted.unexpected());
    }
    if node_name(wanted.old) != node {
        let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
        return Err(wanted.refuse(&why));
    }
    Ok(())
}

fn own_node(node: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    let name = match (wanted.operation, wanted.new) {
        (Operation::Create, Some(new)) => meta(new, "name"),
        _ => wanted.name,
    };
    if name != node {
        return Err(wanted.refuse(&format!("node {node:?} is not allowed to modify node {name:?}")));
    }
    let Some(new) = wanted.new else { return Ok(()) };
    let source = |object: &Value| empty_as_none(object.pointer("/spec/configSource")).cloned();
    match (wanted.operation, wanted.old) {
        (Operation::Create, _) => {
            if source(new).is_some() {
                let why = format!("node {node:?} is not allowed to create pods with a non-nil configSource");
                return Err(wanted.refuse(&why));
            }
            let forbidden = labels::forbidden(None, new);
            if !forbidden.is_empty() {
                let labels = forbidden.join(", ");
                let why = format!("node {node:?} is not allowed to set the following labels: {labels}");
                return Err(wanted.refuse(&why));
            }
        }
        (Operation::Update, Some(old)) => {
            if source(new).is_some() && source(new) != source(old) {
                let why = format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                );
                return Err(wanted.refuse(&why));
            }
            let differ =
                |pointer: &str| empty_as_none(old.pointer(pointer)) != empty_as_none(new.pointer(pointer));
            if differ("/spec/taints") {
                return Err(wanted.refuse(&format!("node {node:?} is not allowed to modify taints")));
            }
            if differ("/metadata/ownerReferences") {
                let why = format!("node {node:?} is not allowed to modify ownerReferences");
                return Err(wanted.refuse(&why));
            }
            let forbidden = labels::forbidden(Some(old), new);
            if !forbidden.is_empty() {
                let why = format!("is not allowed to modify labels: {}", forbidden.join(", "));
                return Err(wanted.refuse(&why));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Rejects updates of a claim's status that change other fields than those that the node agent reports.
fn claim_status(node: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    let (Operation::Update, Some(old), Some(new)) = (wanted.operation, wanted.old, wanted.new) else {
        return Err(wanted.unexpected());
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
    Err(wanted.refuse(&why))
}

fn named_like(node: &str, wanted: &Wanted<'_>, what: &str) -> Result<(), ApiError> {
    let name = match (wanted.operation, wanted.new) {
        (Operation::Create, Some(new)) => meta(new, "name"),
        _ => wanted.name,
    };
    if name == node {
        return Ok(());
    }
    Err(wanted.refuse(&format!("can only access {what} with the same name as the requesting node")))
}

fn slice(node: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    let (object, what) = match wanted.operation {
        Operation::Create => (wanted.new, "create"),
        Operation::Delete => (wanted.old, "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    if node_name(object) == node {
        return Ok(());
    }
    let why = format!("can only {what} ResourceSlice with the same NodeName as the requesting node");
    Err(wanted.refuse(&why))
}

/// Rejects a `CertificateSigningRequest` for the name of another node.
fn signing_request(node: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    let (Operation::Create, Some(new)) = (wanted.operation, wanted.new) else { return Ok(()) };
    let signer = new["spec"]["signerName"].as_str().unwrap_or_default();
    if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
        return Ok(());
    }
    let Ok(asked) = read(new) else { return Err(wanted.refuse("unable to parse csr")) };
    let own = format!("{NODE_USER}{node}");
    if asked.common_name == own {
        return Ok(());
    }
    Err(wanted.refuse(&format!("can only create a node CSR with CN={own}")))
}
