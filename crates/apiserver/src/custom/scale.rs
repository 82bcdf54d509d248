//! The scale subresource of custom resources.

use plumb_crd::Scale;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::object::meta;

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |here, step| here.get(step))
}

/// SPEC: upstream takes the lower half of a number that is too large for a Scale.
fn low_half(number: i64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The scale of an object.
pub(crate) fn scale_of(object: &Value, scale: &Scale) -> Result<Value, ApiError> {
    let replicas = |path: &[String]| at(object, path).and_then(Value::as_i64).map(low_half);
    let spec = replicas(&scale.spec);
    let selector = scale.selector.as_ref().and_then(|path| at(object, path)).and_then(Value::as_str);
    if spec.is_none() {
        let why = format!("the spec replicas field {:?} does not exist", scale.spec_path);
        return Err(ApiError::internal(why));
    }
    let mut metadata = json!({
        "name": meta(object, "name"), "uid": meta(object, "uid"),
        "resourceVersion": meta(object, "resourceVersion"),
        "creationTimestamp": meta(object, "creationTimestamp"),
    });
    if !meta(object, "namespace").is_empty() {
        metadata["namespace"] = json!(meta(object, "namespace"));
    }
    let mut status = json!({ "replicas": replicas(&scale.status).unwrap_or_default() });
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = json!(selector);
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": { "replicas": spec }, "status": status,
    }))
}

/// Sets the replicas at the path that the definition names.
pub(crate) fn set_replicas(object: &mut Value, scale: &Scale, replicas: Value) {
    let mut here = object;
    for step in &scale.spec {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[step.as_str()];
    }
    *here = replicas;
}
