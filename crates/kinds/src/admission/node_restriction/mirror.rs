//! Mirror pods, the only pods that a node agent may create.

use serde_json::Value;

use super::{NodeRequest, node_name};
use plumb_apiserver::authz::references;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::meta;

pub(super) fn check(
    node: &str,
    request: &NodeRequest<'_>,
    find_node: impl FnOnce(&str) -> Option<Value>,
) -> Result<(), ApiError> {
    let Some(pod) = request.new else { return Err(request.unexpected()) };
    let refuse = |why: String| Err(request.refuse(&why));
    if !references::is_mirror(pod) {
        return refuse(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
        ));
    }
    if node_name(Some(pod)) != node {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = match owners.map(Vec::as_slice) {
        Some([owner]) => owner,
        None | Some([]) => {
            return refuse(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        Some(_) => {
            return refuse(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return refuse(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let found = find_node(node).ok_or_else(|| ApiError::not_found("", "nodes", node))?;
    let (claimed, uid) = (owner["uid"].as_str().unwrap_or_default(), meta(&found, "uid"));
    if claimed != uid {
        return refuse(format!("node {node} UID mismatch: expected {claimed} got {uid}"));
    }
    match api_reference(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => refuse(format!("node {node:?} can not create pods that reference {what}")),
        Err(why) => refuse(format!("error checking mirror pod for API references: {why}")),
    }
}

/// The volume sources that refer to no API object.
const LOCAL: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// The volume sources that refer to API objects, with the kinds of these.
const NEEDY: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
/// The sources of projected volumes that refer to API objects, with the kinds of these.
const NEEDY_SOURCES: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The kind of API object that a pod refers to, if any.
fn api_reference(pod: &Value) -> Result<Option<&'static str>, String> {
    let spec = &pod["spec"];
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Ok(Some("serviceaccounts"));
    }
    if references::secrets(pod).next().is_some() {
        return Ok(Some("secrets"));
    }
    if references::config_maps(pod).next().is_some() {
        return Ok(Some("configmaps"));
    }
    if list("resourceClaims").next().is_some() {
        return Ok(Some("resourceclaims"));
    }
    for volume in list("volumes") {
        let has = |field: &str| volume.get(field).is_some();
        let name = volume["name"].as_str().unwrap_or_default();
        if let Some((_, what)) = NEEDY.iter().find(|(field, _)| has(field)) {
            return Ok(Some(what));
        }
        if let Some(projected) = volume.get("projected") {
            for source in projected["sources"].as_array().into_iter().flatten() {
                let has = |field: &str| source.get(field).is_some();
                if let Some((_, what)) = NEEDY_SOURCES.iter().find(|(field, _)| has(field)) {
                    return Ok(Some(what));
                }
                if !has("downwardAPI") {
                    return Err(format!("unknown source for projected volume {name:?}"));
                }
            }
        } else if !LOCAL.iter().any(|field| has(field)) {
            return Err(format!("unknown volume type for volume  {name:?}"));
        }
    }
    Ok(None)
}
