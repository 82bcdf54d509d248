//! How many copies of something there are to be, whatever the something is.

use std::sync::Arc;

use http::{Response, StatusCode};
use plumb_apischema::Schema;
use plumb_apischema::schema::Kind;
use plumb_store::{Edit, Object, UpdateError, Updated};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::exchange::{Body, answer_value, object as read_object};
use crate::object::{decode, encode, meta};
use crate::patching::Patch;
use crate::server::Call;
use crate::strategy;
use crate::target::Verb;
use crate::write::{attributes, store_failed};

fn kind() -> Result<&'static Kind, ApiError> {
    Schema::builtin().kind("autoscaling", "v1", "Scale").ok_or_else(ApiError::no_such_path)
}

/// Answers with a scale.
pub(super) fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    let key = call.row.key(call.namespace(), call.name())?;
    let stored = call.server.store().get(&key).ok_or_else(|| call.row.not_found(call.name()))?;
    Ok(answer_value(StatusCode::OK, &scale_of(&decode(&stored.value)?)))
}

/// Changes how many there are to be.
pub(super) async fn change(call: &Call) -> Result<Response<Body>, ApiError> {
    let key = call.row.key(call.namespace(), call.name())?;
    let edit = |current: Option<&Arc<Object>>| -> Result<Option<Edit>, ApiError> {
        let current = current.ok_or_else(|| call.row.not_found(call.name()))?;
        let old = decode(&current.value)?;
        let scale = asked(call, &scale_of(&old))?;
        let given = meta(&scale, "resourceVersion");
        if !given.is_empty() && given != current.mod_revision.to_string() {
            return Err(call.row.modified(call.name()));
        }
        let mut new = old.clone();
        new["spec"]["replicas"] = scale.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
        strategy::count_generation(&old, &mut new);
        strategy::validate_update(&call.row, &old, &new, &call.server)?;
        if new == old {
            return Ok(None);
        }
        Ok(Some(Edit::Put { value: encode(&call.row, &new)?, attributes: attributes(&call.row, &new) }))
    };
    let stored = match call.server.store().update(&key, edit).await {
        Ok(Updated::Changed(event)) => event.current().cloned(),
        Ok(Updated::Kept(current)) => current,
        Err(UpdateError::Refused(error)) => return Err(error),
        Err(UpdateError::Write(error)) => return Err(store_failed(&error)),
    };
    let stored = stored.ok_or_else(|| call.row.not_found(call.name()))?;
    Ok(answer_value(StatusCode::OK, &scale_of(&decode(&stored.value)?)))
}

/// The scale that a client wants, given the one there is.
fn asked(call: &Call, current: &Value) -> Result<Value, ApiError> {
    let decoded = if call.verb == Verb::Update {
        read_object(&call.head.headers, &call.body, kind()?, call.server.rules())?
    } else {
        Patch::read(&call.head.headers, &call.body, call.server.rules())?.apply(kind()?, current)?
    };
    Ok(decoded.value)
}

/// The scale of an object.
fn scale_of(object: &Value) -> Value {
    let selector = object.pointer("/spec/selector/matchLabels").or_else(|| object.pointer("/spec/selector"));
    let selector: Vec<String> = selector
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    let replicas = |pointer: &str| object.pointer(pointer).cloned().unwrap_or(json!(0));
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta(object, "name"), "namespace": meta(object, "namespace"), "uid": meta(object, "uid"),
            "resourceVersion": meta(object, "resourceVersion"),
            "creationTimestamp": meta(object, "creationTimestamp"),
        },
        "spec": { "replicas": replicas("/spec/replicas") },
        "status": { "replicas": replicas("/status/replicas"), "selector": selector.join(",") },
    })
}
