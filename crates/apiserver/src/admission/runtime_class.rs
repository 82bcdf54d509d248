//! The plugin `RuntimeClass`: pod overhead and scheduling constraints of a runtime class.

use k8s_openapi::api::node::v1::RuntimeClass as Class;
use plumb_resize::list::{ResourceList, WireList};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Attributes, Operation, Plugin};
use crate::error::ApiError;
use crate::stored;
use crate::validation::path_segment_errors;

/// Sets the overhead, node selector and tolerations of a pod's runtime class.
pub(super) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "pods")
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        let Some(class) = class_of(attributes, new)? else { return Ok(()) };
        apply(&class, &mut new["spec"]).map_err(|why| attributes.forbidden(&why))
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let class = class_of(attributes, new)?;
        let fixed = class.and_then(|class| class.overhead).and_then(|overhead| overhead.pod_fixed);
        let own = new["spec"].get("overhead").filter(|own| !own.is_null());
        match (fixed, own) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(attributes.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            (Some(fixed), own) if is_same(own, &fixed) => Ok(()),
            (Some(_), _) => Err(attributes.forbidden(OTHER_OVERHEAD)),
        }
    }
}

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn class_of(attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Class>, ApiError> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else { return Ok(None) };
    // SPEC: upstream looks the class up before it validates the name, and returns an internal error for a name that its
    // client rejects.
    if let Some(why) = cannot_be_asked_for(name) {
        return Err(ApiError::unexplained(why));
    }
    let kind = ("node.k8s.io", "runtimeclasses");
    let found = stored::one(attributes.server, kind, None, name)?
        .ok_or_else(|| attributes.forbidden(&format!("pod rejected: RuntimeClass {name:?} not found")))?;
    Class::deserialize(found)
        .map(Some)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))
}

/// Why a name is not a URL path segment, with the message of upstream's client.
fn cannot_be_asked_for(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("resource name may not be empty".to_owned());
    }
    let messages = path_segment_errors(name);
    (!messages.is_empty()).then(|| format!("invalid resource name {name:?}: [{}]", messages.join(" ")))
}

fn is_same(own: Option<&Value>, fixed: &WireList) -> bool {
    let own = own.cloned().unwrap_or_default();
    let Ok(own) = serde_json::from_value::<Option<WireList>>(own) else { return false };
    matches!((ResourceList::read(own.as_ref()), ResourceList::read(Some(fixed))), (Ok(own), Ok(fixed)) if own == fixed)
}

/// Applies a class to a spec; rejects a spec with other values.
fn apply(class: &Class, spec: &mut Value) -> Result<(), String> {
    if let Some(fixed) = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref()) {
        let own = spec.get("overhead").filter(|own| own.as_object().is_some_and(|own| !own.is_empty()));
        if own.is_some() && !is_same(own, fixed) {
            return Err(OTHER_OVERHEAD.to_owned());
        }
        spec["overhead"] = json!(fixed);
    }
    let Some(scheduling) = &class.scheduling else { return Ok(()) };
    for (key, value) in scheduling.node_selector.iter().flatten() {
        if let Some(own) = spec["nodeSelector"].get(key).and_then(Value::as_str).filter(|own| own != value) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        spec["nodeSelector"][key] = json!(value);
    }
    for toleration in scheduling.tolerations.iter().flatten().map(|toleration| json!(toleration)) {
        let own = spec["tolerations"].as_array();
        if own.is_none_or(|own| !own.contains(&toleration)) {
            match spec["tolerations"].as_array_mut() {
                Some(own) => own.push(toleration),
                None => spec["tolerations"] = json!([toleration]),
            }
        }
    }
    Ok(())
}
