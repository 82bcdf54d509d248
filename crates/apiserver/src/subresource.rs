//! What hangs below an object: its status, its scale, a resize, a binding.

mod scale;

use std::sync::Arc;

use http::{Response, StatusCode};
use plumb_apischema::Schema;
use plumb_store::{Edit, Object, UpdateError};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::exchange::{Body, answer_value, object};
use crate::object::{decode, encode};
use crate::pods;
use crate::read;
use crate::server::Call;
use crate::target::Verb;
use crate::write::{self, Part, attributes, store_failed};

/// Answers a request to a subresource.
pub(crate) async fn answer(call: Call) -> Result<Response<Body>, ApiError> {
    let name = call.target.subresource.clone().unwrap_or_default();
    let subresource = call.row.resource.subresource(&name).ok_or_else(ApiError::no_such_path)?;
    if !subresource.verbs.contains(&call.verb.name()) {
        return Err(ApiError::method_not_allowed());
    }
    let is_pod = (call.row.group(), call.row.kind()) == ("", "Pod");
    match (name.as_str(), call.verb) {
        ("status" | "resize", Verb::Get) => read::get(&call),
        ("status", Verb::Update | Verb::Patch) => write::change(&call, Part::Status).await,
        ("resize", Verb::Update | Verb::Patch) if is_pod => write::change(&call, Part::Resize).await,
        ("finalize", Verb::Update) => write::change(&call, Part::Finalize).await,
        ("binding", Verb::Create) if is_pod => bind(&call).await,
        ("scale", Verb::Get) => scale::get(&call),
        ("scale", Verb::Update | Verb::Patch) => scale::change(&call).await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// Assigns a pod to a node.
async fn bind(call: &Call) -> Result<Response<Body>, ApiError> {
    let kind = Schema::builtin().kind("", "v1", "Binding").ok_or_else(ApiError::no_such_path)?;
    let binding = object(&call.head.headers, &call.body, kind, call.server.rules())?.value;
    let key = call.row.key(call.namespace(), call.name())?;
    let edit = |current: Option<&Arc<Object>>| -> Result<Option<Edit>, ApiError> {
        let current = current.ok_or_else(|| call.row.not_found(call.name()))?;
        let bound = pods::bind(call, &decode(&current.value)?, &binding)?;
        let attributes = attributes(&call.row, &bound);
        Ok(Some(Edit::Put { value: encode(&call.row, &bound)?, attributes }))
    };
    match call.server.store().update(&key, edit).await {
        Ok(_) => Ok(answer_value(StatusCode::CREATED, &success())),
        Err(UpdateError::Refused(error)) => Err(error),
        Err(UpdateError::Write(error)) => Err(store_failed(&error)),
    }
}

/// A `Status` that says that all went well.
pub(crate) fn success() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" })
}
