//! The plugin `RuntimeClass`: pod overhead and scheduling constraints of a runtime class.

use k8s_openapi::api::node::v1::RuntimeClass as Class;
use plumb_resize::list::{ResourceList, WireList};
use serde::Deserialize as _;
use serde_json::{Value, json};

use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::stored;
use plumb_apiserver::validation::path_segment_errors;

/// Sets the overhead, node selector and tolerations of a pod's runtime class.
pub(crate) struct RuntimeClass;

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
    let found = stored::one(attributes.cluster.store(), kind, None, name)?
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
    if let Some(of_class) = scheduling.tolerations.as_ref().filter(|tolerations| !tolerations.is_empty()) {
        let own = spec["tolerations"].as_array().map_or(&[][..], Vec::as_slice);
        let all: Vec<Value> =
            own.iter().cloned().chain(of_class.iter().map(|toleration| json!(toleration))).collect();
        spec["tolerations"] = Value::Array(merge_tolerations(&all));
    }
    Ok(())
}

/// Leaves out what another toleration covers; of equal ones the first stays.
fn merge_tolerations(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let covers = |other: &Value| covers(other, toleration);
        let is_covered_later = all[at + 1..].iter().any(|other| other != toleration && covers(other));
        if !is_covered_later && !merged.iter().any(covers) {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether a toleration tolerates all that another one does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let same = |name: &str| text(wide, name) == text(narrow, name);
    let exists = text(wide, "operator") == "Exists";
    let every_key = text(wide, "key").is_empty() && exists;
    let every_effect = text(wide, "effect").is_empty();
    if !(same("key") || every_key) || !(same("effect") || every_effect) {
        return false;
    }
    if let (Some(limit), "NoExecute") = (wide["tolerationSeconds"].as_i64(), text(wide, "effect").as_str())
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(wide, "operator").as_str() {
        "Exists" => true,
        // SPEC: upstream takes an empty operator as Equal for the one toleration, not for the other.
        "Equal" | "" => text(narrow, "operator") == "Equal" && same("value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_tolerations_that_cover_each_other_the_widest_stay() {
        let exists = |key: &str, effect: &str| json!({ "key": key, "operator": "Exists", "effect": effect });
        let equal = |key: &str, value: &str| json!({ "key": key, "operator": "Equal", "value": value });
        let for_seconds = |seconds: i64| json!({ "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        let all_keys = json!({ "operator": "Exists" });
        let implied = json!({ "key": "a", "value": "1" });
        let table = [
            // (of the pod and of the class, merged)
            (vec![equal("a", "1"), equal("a", "1")], vec![equal("a", "1")]),
            (vec![equal("a", "1"), equal("a", "2")], vec![equal("a", "1"), equal("a", "2")]),
            (vec![equal("a", "1"), exists("a", "")], vec![exists("a", "")]),
            (vec![exists("a", ""), equal("a", "1")], vec![exists("a", "")]),
            (vec![exists("a", "NoSchedule"), exists("a", "")], vec![exists("a", "")]),
            (
                vec![exists("a", "NoSchedule"), exists("b", "")],
                vec![exists("a", "NoSchedule"), exists("b", "")],
            ),
            (vec![exists("a", "NoSchedule"), all_keys.clone()], vec![all_keys]),
            (vec![for_seconds(10), for_seconds(20)], vec![for_seconds(20)]),
            (vec![for_seconds(10), exists("a", "NoExecute")], vec![exists("a", "NoExecute")]),
            (vec![implied.clone(), equal("a", "1")], vec![implied]),
        ];
        for (all, merged) in table {
            assert_eq!(merge_tolerations(&all), merged, "{all:?}");
        }
    }
}
