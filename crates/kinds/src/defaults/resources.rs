//! Defaults of resources: rounding of quantities, and requests from limits.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_resize::Quantity;
use plumb_resize::rules::Rules;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Object;

/// The fields of a container that the defaulting of resources reads.
const OF_A_CONTAINER: [&str; 4] = ["name", "resources", "resizePolicy", "restartPolicy"];
const LISTS: [&str; 2] = ["initContainers", "containers"];

/// Rounds quantities up to milli-units, the precision of the API.
pub(super) fn round_up(list: &mut Value) {
    for amount in list.as_object_mut().into_iter().flat_map(Map::values_mut) {
        // Only micro and nano are finer, and the canonical form ends with their suffix.
        let fine = amount.as_str().filter(|text| text.ends_with(['u', 'n']));
        if let Some(Ok(quantity)) = fine.map(str::parse::<Quantity>)
            && let Ok(milli) = quantity.milli()
        {
            *amount = Quantity::from_milli(milli).with_format(quantity.format()).to_string().into();
        }
    }
}

/// Applies the defaults of `plumb-resize` to a pod's resources and resize policies.
///
/// They take typed pods. The conversion of a whole pod costs more than all other defaults together, so only the fields
/// that they read are converted.
pub(super) fn complete(pod: &mut Object, rules: &Rules) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !rules.default_policies && !declares_resources(spec) {
        return;
    }
    let mut excerpt = Map::new();
    for list in LISTS {
        if let Some(containers) = spec.get(list).and_then(Value::as_array) {
            excerpt.insert(list.to_owned(), containers.iter().map(excerpt_of).collect());
        }
    }
    if let Some(resources) = spec.get("resources") {
        excerpt.insert("resources".to_owned(), resources.clone());
    }
    // Validation reports values that do not decode.
    let Ok(typed) = PodSpec::deserialize(&Value::Object(excerpt)) else { return };
    let mut typed = Pod { spec: Some(typed), ..Pod::default() };
    if plumb_resize::defaulting::default_pod(&mut typed, rules).is_err() {
        return;
    }
    let Ok(Value::Object(mut complete)) = serde_json::to_value(typed.spec.unwrap_or_default()) else {
        return;
    };
    for list in LISTS {
        let complete = complete.get_mut(list).and_then(Value::as_array_mut);
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let pairs = containers.into_iter().flatten().zip(complete.into_iter().flatten());
        for (container, complete) in pairs {
            take(container.as_object_mut(), complete.as_object_mut(), &["resources", "resizePolicy"]);
        }
    }
    take(Some(spec), Some(&mut complete), &["resources"]);
}

fn declares_resources(spec: &Object) -> bool {
    let declared = |holder: &Object| {
        holder.get("resources").and_then(Value::as_object).is_some_and(|resources| !resources.is_empty())
    };
    let lists = LISTS.iter().filter_map(|list| spec.get(*list)?.as_array()).flatten();
    declared(spec) || lists.filter_map(Value::as_object).any(declared)
}

fn excerpt_of(container: &Value) -> Value {
    let fields = OF_A_CONTAINER.iter();
    fields.filter_map(|field| Some(((*field).to_owned(), container.get(*field)?.clone()))).collect()
}

fn take(to: Option<&mut Object>, from: Option<&mut Object>, fields: &[&str]) {
    let (Some(to), Some(from)) = (to, from) else { return };
    for field in fields {
        if let Some(value) = from.remove(*field) {
            to.insert((*field).to_owned(), value);
        }
    }
}
