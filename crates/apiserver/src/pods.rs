//! Pods: creation, updates, and resizes through both doors.
//!
//! Every rule about resources is asked of `plumb-resize`; here objects are only brought into its form and
//! back.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_apischema::{Schema, json as schema_json};
use plumb_resize::defaulting::{allocate_at_creation, copy_back, drop_disabled};
use plumb_resize::list::BadQuantity;
use plumb_resize::rules::Rules;
use plumb_resize::status::propose;
use plumb_resize::validate;
use plumb_store::Object;
use plumb_validation::field::{FieldError, aggregate_message};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::authz::node_of;
use crate::defaults;
use crate::error::ApiError;
use crate::object::{decode, is_deleting, meta, metadata, moment};
use crate::server::{ApiServer, Call};
use crate::strategy::{self, judge, qos_class};
use crate::validation;

/// A pod as the rules read it.
pub(crate) fn typed(object: &Value) -> Result<Pod, ApiError> {
    Pod::deserialize(object).map_err(|error| ApiError::bad_request(format!("not a pod: {error}")))
}

/// Puts what the rules made of a pod back, and leaves the rest as it was written.
fn put_back(object: &mut Value, before: &Pod, pod: &Pod) -> Result<(), ApiError> {
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| ApiError::internal(error.to_string()))
    };
    if let Some(spec) = pod.spec.as_ref().filter(|_| before.spec != pod.spec) {
        let spec = json(serde_json::to_value(spec))?;
        // The rules' own types write some fields that the API leaves out.
        let kind = Schema::builtin().kind("", "v1", "Pod");
        let kind = kind.ok_or_else(|| ApiError::internal("the table has no pods"))?;
        let decoded = schema_json::decode_value(Schema::builtin(), kind, json!({ "spec": spec }));
        object["spec"] = decoded.map_err(|error| ApiError::internal(error.to_string()))?.value["spec"].take();
    }
    if let Some(status) = pod.status.as_ref().filter(|_| before.status != pod.status) {
        let mut status = json(serde_json::to_value(status))?;
        // The API writes these even when nobody said when.
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            for field in ["lastProbeTime", "lastTransitionTime"] {
                condition.entry(field).or_insert(Value::Null);
            }
        }
        object["status"] = status;
    }
    Ok(())
}

fn unreadable(error: BadQuantity) -> ApiError {
    ApiError::bad_request(error.to_string())
}

/// Makes a new pod, which has its defaults, what it has to be.
pub(crate) fn prepare_create(new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    let rules = server.rules();
    let before = typed(new)?;
    let mut pod = before.clone();
    drop_disabled(None, &mut pod, rules);
    let none = PodSpec::default();
    let class = qos_class(pod.spec.as_ref().unwrap_or(&none))?;
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Pending".to_owned());
    status.qos_class = Some(class.name().to_owned());
    allocate_at_creation(&mut pod, rules);
    put_back(new, &before, &pod)
}

/// Makes an update through the main door what it has to be.
pub(crate) fn prepare_update(old: &Value, new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    let rules = server.rules();
    let stored = typed(old)?;
    let before = typed(new)?;
    let mut pod = before.clone();
    drop_disabled(Some(&stored), &mut pod, rules);
    propose(&stored, &mut pod, rules).map_err(unreadable)?;
    put_back(new, &before, &pod)
}

/// Makes a resize what it has to be: the stored pod with other resources.
pub(crate) fn prepare_resize(call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let rules = call.server.rules();
    let stored = typed(old)?;
    let mut pod = validate::prepare_resize(&stored, typed(new)?, rules);
    propose(&stored, &mut pod, rules).map_err(unreadable)?;
    // Who the pod is said to be is kept, so that the rules can complain of it.
    let said = ["uid", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let said = said.map(|field| (field, new["metadata"].get(field).cloned()));
    *new = old.clone();
    for (field, value) in said {
        let fields = metadata(new);
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
    }
    put_back(new, &stored, &pod)
}

/// Makes a status, which is complete, what it has to be: without what is switched off.
pub(crate) fn prepare_status(old: &Value, new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    if rules.resize && rules.resize_pod_level {
        return Ok(());
    }
    let (stored, before) = (typed(old)?, typed(new)?);
    let mut pod = before.clone();
    drop_disabled(Some(&stored), &mut pod, rules);
    put_back(new, &before, &pod)
}

/// Fills in what a changed pod leaves out: what an old client did not know of comes back first, so that it is
/// not taken for something to be filled in.
pub(crate) fn complete(old: &Value, new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    if rules.copy_back && may_lack_something(new) {
        let before = typed(new)?;
        let mut pod = before.clone();
        copy_back(&typed(old)?, &mut pod, rules);
        put_back(new, &before, &pod)?;
    }
    defaults::apply("", "v1", "Pod", new, rules);
    Ok(())
}

/// Whether an old client may have left something out. Few have, and to find out what takes reading both pods as wholes.
fn may_lack_something(pod: &Value) -> bool {
    let no_policy = |container: &Value| container["resizePolicy"].as_array().is_none_or(Vec::is_empty);
    entries(&pod["spec"], &["containers", "initContainers"]).any(no_policy)
        || entries(&pod["status"], &STATUSES).any(|status| status["allocatedResources"].is_null())
        || (pod["spec"]["resources"].is_object() && pod["status"]["allocatedResources"].is_null())
}

/// The lists of a status that say of containers what is allocated.
const STATUSES: [&str; 2] = ["containerStatuses", "initContainerStatuses"];

/// What is in some lists of a spec or a status.
fn entries<'a>(part: &'a Value, lists: &[&str]) -> impl Iterator<Item = &'a Value> {
    lists.iter().filter_map(|list| part[*list].as_array()).flatten()
}

/// Fills in the policies of a pod that was stored while nobody had any, by an earlier version or with the feature
/// switched off.
pub(crate) fn complete_stored(stored: &mut Value, rules: &Rules) {
    let lacks = |container: &Value| container.get("resizePolicy").is_none();
    let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
    let lack = entries(&stored["spec"], &["containers"]).any(lacks)
        || entries(&stored["spec"], &["initContainers"]).filter(is_sidecar).any(lacks);
    if rules.default_policies && lack {
        defaults::apply("", "v1", "Pod", stored, rules);
    }
}

/// Holds a resize to the rules.
pub(crate) fn validate_resize(call: &Call, old: &Value, new: &Value) -> Result<(), ApiError> {
    judge(&call.row, new, &validation::resize(old, new, call.server.rules()))
}

/// Holds a status to the rules.
pub(crate) fn validate_status(call: &Call, old: &Value, new: &Value) -> Result<(), ApiError> {
    strategy::validate_status(&call.row, old, new, &call.server, &call.warnings)?;
    if (call.row.group(), call.row.kind()) != ("", "Pod") {
        return Ok(());
    }
    // Only the node says what is allocated.
    if node_of(&call.user).is_none() && allocations(old) != allocations(new) {
        let why = "allocatedResources is the node's to say: change spec.containers[*].resources instead";
        return Err(ApiError::forbidden("", "pods", call.name(), why));
    }
    Ok(())
}

/// What a status says is allocated.
fn allocations(pod: &Value) -> Vec<(&str, Option<&Value>)> {
    let of_containers = entries(&pod["status"], &STATUSES)
        .filter_map(|status| Some((status["name"].as_str()?, Some(status.get("allocatedResources")?))));
    of_containers.chain([("", pod["status"].get("allocatedResources"))]).collect()
}

/// Binds a pod to a node.
pub(crate) fn bind(call: &Call, stored: &Object, binding: &Value) -> Result<Value, ApiError> {
    let name = call.name();
    if meta(binding, "name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (node, kind) = (text("/target/name"), text("/target/kind"));
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        // SPEC: upstream returns these errors without a reason.
        return Err(ApiError::unexplained(aggregate_message(&errors)));
    }
    let mut pod = decode(&stored.value)?;
    let found = [
        ("uid", "UID", meta(&pod, "uid").to_owned()),
        ("resourceVersion", "ResourceVersion", stored.mod_revision.to_string()),
    ];
    for (field, what, found) in found {
        let wanted = meta(binding, field);
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(ApiError::conflict("", "pods", name, &why));
        }
    }
    let conflict = |why: String| ApiError::conflict("", "pods/binding", name, &why);
    if is_deleting(&pod) {
        return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let bound = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty());
    if let Some(bound) = bound {
        return Err(conflict(format!("pod {name} is already assigned to node {bound:?}")));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod["spec"]["nodeName"] = json!(node);
    for field in ["annotations", "labels"] {
        let given = binding["metadata"][field].as_object().filter(|given| !given.is_empty());
        if let Some(given) = given {
            let own = metadata(&mut pod).entry(field).or_insert_with(|| json!({}));
            own.as_object_mut().into_iter().for_each(|own| own.extend(given.clone()));
        }
    }
    set_scheduled(&mut pod["status"], &moment(call.server.now()));
    Ok(pod)
}

/// Says in a status that the pod has a node, which is no longer only nominated.
fn set_scheduled(status: &mut Value, now: &str) {
    let mut condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if !status.is_object() {
        *status = json!({});
    }
    let Some(status) = status.as_object_mut() else { return };
    status.remove("nominatedNodeName");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|own| own["type"] == "PodScheduled") {
        Some(own) => {
            if own["status"] == "True" {
                condition["lastTransitionTime"] = own["lastTransitionTime"].clone();
            }
            *own = condition;
        }
        None => conditions.push(condition),
    }
}
