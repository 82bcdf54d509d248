//! The resources of a pod in a create, in a pod update and in `/resize`.
//!
//! `plumb-resize` has all rules about resources; this module converts objects to its types and back.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_apischema::{Schema, json as schema_json};
use plumb_resize::defaulting::{allocate_at_creation, copy_back, drop_disabled};
use plumb_resize::list::BadQuantity;
use plumb_resize::qos::QosClass;
use plumb_resize::rules::Rules;
use plumb_resize::status::propose;
use plumb_resize::validate;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::validation;
use crate::defaults;
use crate::registry::{Context, FieldPaths, SubresourceStrategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::invalid;
use plumb_apiserver::object::metadata;

/// A pod in the API's types.
pub(crate) fn typed(object: &Value) -> Result<Pod, ApiError> {
    Pod::deserialize(object).map_err(|error| ApiError::bad_request(format!("not a pod: {error}")))
}

/// Writes the spec and the status of a typed pod back to the object if they changed.
fn write_back(object: &mut Value, before: &Pod, pod: &Pod) -> Result<(), ApiError> {
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| ApiError::internal(error.to_string()))
    };
    if let Some(spec) = pod.spec.as_ref().filter(|_| before.spec != pod.spec) {
        let spec = json(serde_json::to_value(spec))?;
        // Serialization writes some fields that the API omits.
        let kind = Schema::builtin().kind("", "v1", "Pod");
        let kind = kind.ok_or_else(|| ApiError::internal("the table has no pods"))?;
        let decoded = schema_json::decode_value(Schema::builtin(), kind, json!({ "spec": spec }));
        object["spec"] = decoded.map_err(|error| ApiError::internal(error.to_string()))?.value["spec"].take();
    }
    if let Some(status) = pod.status.as_ref().filter(|_| before.status != pod.status) {
        let mut status = json(serde_json::to_value(status))?;
        // The API writes these timestamps as null if they are unknown.
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

/// Sets the phase, the QoS class and the allocation of a new pod that has its defaults.
pub(super) fn prepare_for_create(new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    let before = typed(new)?;
    let mut pod = before.clone();
    drop_disabled(None, &mut pod, rules);
    let none = PodSpec::default();
    let class = QosClass::of_spec(pod.spec.as_ref().unwrap_or(&none))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Pending".to_owned());
    status.qos_class = Some(class.name().to_owned());
    allocate_at_creation(&mut pod, rules);
    write_back(new, &before, &pod)
}

/// Prepares a pod update.
pub(super) fn prepare_for_update(old: &Value, new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    let stored = typed(old)?;
    let before = typed(new)?;
    let mut pod = before.clone();
    drop_disabled(Some(&stored), &mut pod, rules);
    propose(&stored, &mut pod, rules).map_err(unreadable)?;
    write_back(new, &before, &pod)
}

/// Prepares an update through `/resize`: of the request only the resources are used.
fn prepare_resize(old: &Value, new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    let stored = typed(old)?;
    let mut pod = validate::prepare_resize(&stored, typed(new)?, rules);
    propose(&stored, &mut pod, rules).map_err(unreadable)?;
    // Validation rejects a request that changes one of these.
    let given = ["uid", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let given = given.map(|field| (field, new["metadata"].get(field).cloned()));
    *new = old.clone();
    for (field, value) in given {
        let fields = metadata(new);
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
    }
    write_back(new, &stored, &pod)
}

/// Drops the fields of features that are off from a status that has its defaults.
pub(super) fn prepare_for_status_update(old: &Value, new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    if rules.resize && rules.resize_pod_level {
        return Ok(());
    }
    let (stored, before) = (typed(old)?, typed(new)?);
    let mut pod = before.clone();
    drop_disabled(Some(&stored), &mut pod, rules);
    write_back(new, &before, &pod)
}

/// Restores the fields that an old client drops from a pod because it does not know them. This runs before defaulting.
pub(super) fn restore_dropped_fields(old: &Value, new: &mut Value, rules: &Rules) -> Result<(), ApiError> {
    if rules.copy_back && may_have_dropped_fields(new) {
        let before = typed(new)?;
        let mut pod = before.clone();
        copy_back(&typed(old)?, &mut pod, rules);
        write_back(new, &before, &pod)?;
    }
    Ok(())
}

/// Whether an old client may have dropped fields. This cheap test avoids decoding both pods in most updates.
fn may_have_dropped_fields(pod: &Value) -> bool {
    let no_policy = |container: &Value| container["resizePolicy"].as_array().is_none_or(Vec::is_empty);
    entries(&pod["spec"], &["containers", "initContainers"]).any(no_policy)
        || entries(&pod["status"], &STATUSES).any(|status| status["allocatedResources"].is_null())
        || (pod["spec"]["resources"].is_object() && pod["status"]["allocatedResources"].is_null())
}

/// The status lists with the allocated resources of containers.
const STATUSES: [&str; 2] = ["containerStatuses", "initContainerStatuses"];

/// The elements of some lists of a spec or status.
fn entries<'a>(part: &'a Value, lists: &[&str]) -> impl Iterator<Item = &'a Value> {
    lists.iter().filter_map(|list| part[*list].as_array()).flatten()
}

/// Applies the defaults of resize policies to a pod that an earlier version stored, or that was stored with the feature
/// off.
pub(super) fn apply_defaults_to_stored(stored: &mut Value, rules: &Rules) {
    let has_no_policy = |container: &Value| container.get("resizePolicy").is_none();
    let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
    let needs_defaults = entries(&stored["spec"], &["containers"]).any(has_no_policy)
        || entries(&stored["spec"], &["initContainers"]).filter(is_sidecar).any(has_no_policy);
    if rules.default_policies && needs_defaults {
        defaults::apply("", "v1", "Pod", stored, rules);
    }
}

/// The strategy of `/resize`: only the resources change.
#[derive(Debug)]
pub(super) struct ResizeStrategy;

impl SubresourceStrategy for ResizeStrategy {
    fn prepare_for_update(&self, cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        prepare_resize(old, new, cx.rules)
    }

    fn counts_generation(&self) -> bool {
        true
    }

    /// A resize does not write the status; in the dialect of the KEP the server does.
    fn reset_fields(&self) -> FieldPaths {
        &[&["status"]]
    }

    fn validate_update(&self, cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
        invalid(cx.row, new, &validation::resize(old, new, cx.rules))
    }
}

/// The allocated resources in the status of a pod: those of its containers by name, then those of the pod.
pub(super) fn allocated(pod: &Value) -> Vec<(&str, Option<&Value>)> {
    let of_containers = entries(&pod["status"], &STATUSES)
        .filter_map(|status| Some((status["name"].as_str()?, Some(status.get("allocatedResources")?))));
    of_containers.chain([("", pod["status"].get("allocatedResources"))]).collect()
}
