//! The service account tokens that a node agent may request: those bound to a pod of the node, with an audience that a
//! volume of the pod names.

use serde_json::Value;

use super::find;
use plumb_apiserver::admission::{Attributes, Operation};
use plumb_apiserver::authz::{Ask, Objects, node_of};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::{decode, meta};

/// Rejects a token request that no pod of the node needs.
pub(super) fn check(attributes: &Attributes<'_>, request: &Value) -> Result<(), ApiError> {
    if attributes.operation != Operation::Create || attributes.subresource != Some("token") {
        return Ok(());
    }
    let refuse = |why: &str| attributes.forbidden(why);
    let bound = &request["spec"]["boundObjectRef"];
    let text = |field: &str| bound[field].as_str().unwrap_or_default();
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return Err(refuse("node requested token not bound to a pod"));
    }
    let uid = text("uid");
    if uid.is_empty() {
        return Err(refuse("node requested token with a pod binding without a uid"));
    }
    let pod = find(attributes, "pods", text("name"))?;
    if meta(&pod, "uid") != uid {
        return Err(refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        )));
    }
    if pod["spec"]["nodeName"].as_str() != node_of(attributes.user) {
        return Err(refuse("node requested token bound to a pod scheduled on a different node"));
    }
    needed(attributes, request, &pod).map_err(|why| refuse(&why))
}

/// Whether a volume of the pod needs the audience of the token, or the node agent is authorized for it.
fn needed(attributes: &Attributes<'_>, request: &Value, pod: &Value) -> Result<(), String> {
    let asked: Vec<&str> =
        request["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audience = match asked.as_slice() {
        [] => "",
        [one] => one,
        _ => return Err("node may only request 0 or 1 audiences".to_owned()),
    };
    let wanted = |given: &Value| given["audience"].as_str().unwrap_or_default() == audience;
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        let mut tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
        if tokens.any(wanted) {
            return Ok(());
        }
        let requests = driver(attributes, pod, volume).map(|driver| driver["spec"]["tokenRequests"].clone());
        if requests.as_ref().and_then(Value::as_array).is_some_and(|list| list.iter().any(wanted)) {
            return Ok(());
        }
    }
    let objects = Objects {
        resource: audience,
        namespace: attributes.namespace.unwrap_or_default(),
        name: attributes.name,
        ..Objects::default()
    };
    let ask = Ask::about_objects(attributes.user, "request-serviceaccounts-token-audience", objects);
    if attributes.cluster.authorizer().decide(&ask).is_allowed() {
        return Ok(());
    }
    Err(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        attributes.user.name()
    ))
}

/// The CSI driver of a volume, which may need tokens too.
fn driver(attributes: &Attributes<'_>, pod: &Value, volume: &Value) -> Option<Value> {
    let text =
        |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let claim = if volume.get("ephemeral").is_some() {
        Some(format!("{}-{}", meta(pod, "name"), volume["name"].as_str().unwrap_or_default()))
    } else {
        text(volume, "/persistentVolumeClaim/claimName")
    };
    let name = match claim {
        Some(claim) => {
            let claim = find(attributes, "persistentvolumeclaims", &claim).ok()?;
            let bound = find(attributes, "persistentvolumes", &text(&claim, "/spec/volumeName")?).ok()?;
            text(&bound, "/spec/csi/driver")?
        }
        None => text(volume, "/csi/driver")?,
    };
    let row = attributes.cluster.kinds().find("storage.k8s.io", "csidrivers")?;
    decode(&attributes.cluster.store().get(&row.key(None, &name).ok()?)?.value).ok()
}
