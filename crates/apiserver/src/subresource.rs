//! What hangs below an object: its status, its scale, a resize, a binding.

mod eviction;
mod scale;
mod token;

use http::{Response, StatusCode};
use plumb_apischema::Schema;
use serde_json::Value;

use crate::admission::Operation;
use crate::body::Body;
use crate::call::Call;
use crate::error::ApiError;
use crate::exchange::{answer_value, object, success};
use crate::nodes;
use crate::read;
use crate::registry::pod;
use crate::target::Verb;
use crate::write::{self, Attempts, Part};

/// Answers a request to a subresource.
pub(crate) async fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let name = call.target.subresource.clone().unwrap_or_default();
    let subresource = call.row.resource.subresource(&name).ok_or_else(ApiError::no_such_path)?;
    if !subresource.verbs.contains(&call.verb.name()) {
        return Err(ApiError::method_not_allowed());
    }
    // What goes to nodes is boxed: every other request would hold the memory of it, too.
    let is_pod = (call.row.group(), call.row.kind()) == ("", "Pod");
    let is_node = (call.row.group(), call.row.kind()) == ("", "Node");
    let part = match name.as_str() {
        "status" => Some(Part::Status),
        name => call.row.strategy().subresource(name).map(Part::Subresource),
    };
    match (part, call.verb) {
        (Some(_), Verb::Get) => return read::get(call).await,
        (Some(part), Verb::Update | Verb::Patch) => return write::update(call, part).await,
        _ => {}
    }
    match (name.as_str(), call.verb) {
        ("token", Verb::Create) => token::create(call).await,
        ("binding", Verb::Create) if is_pod => bind(call).await,
        ("exec", Verb::Get | Verb::Create) if is_pod => Box::pin(nodes::streams::exec(call)).await,
        ("attach", Verb::Get | Verb::Create) if is_pod => Box::pin(nodes::streams::attach(call)).await,
        ("portforward", Verb::Get | Verb::Create) if is_pod => {
            Box::pin(nodes::streams::port_forward(call)).await
        }
        ("log", Verb::Get) if is_pod => Box::pin(nodes::log::answer(call)).await,
        ("proxy", _) if is_node => Box::pin(nodes::proxy::node(call)).await,
        ("proxy", _) if is_pod => Box::pin(nodes::proxy::pod(call)).await,
        ("proxy", _) if (call.row.group(), call.row.kind()) == ("", "Service") => {
            Box::pin(nodes::proxy::service(call)).await
        }
        ("eviction", Verb::Create) if is_pod => eviction::evict(call).await,
        ("scale", Verb::Get) => scale::get(call).await,
        ("scale", Verb::Update | Verb::Patch) => scale::change(call).await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// Assigns a pod to a node.
async fn bind(call: &Call) -> Result<Response<Body>, ApiError> {
    let kind = Schema::builtin().kind("", "v1", "Binding").ok_or_else(ApiError::no_such_path)?;
    let binding = object(&call.head.headers, &call.body, kind, call.cluster().rules())?.value;
    let key = call.row.key(call.namespace(), call.name())?;
    let mut attempts = Attempts::new(call, key);
    loop {
        match try_bind(call, &binding, &mut attempts).await {
            Ok(false) => {}
            Ok(true) => {
                return attempts.once_durable(Ok(answer_value(StatusCode::CREATED, &success()))).await;
            }
            Err(error) => return attempts.once_durable(Err(error)).await,
        }
    }
}

/// Whether the binding is stored, or was a dry run.
async fn try_bind(call: &Call, binding: &Value, attempts: &mut Attempts<'_>) -> Result<bool, ApiError> {
    let current = attempts.begin()?.ok_or_else(|| call.row.not_found(call.name()))?;
    let (chain, mut binding) = (call.server.admission(), binding.clone());
    let attributes = call.attributes(Operation::Create, &Value::Null)?;
    chain.mutate(&attributes, &mut binding).await?;
    let bound = pod::bind(call.name(), &current, &binding, call.cluster().now())?;
    chain.validate(&attributes, &binding).await?;
    if attributes.dry_run {
        return Ok(true);
    }
    let charge = || chain.charge(&attributes, &binding);
    Ok(attempts.commit(Some(&current), Some(&bound), charge).await?.is_some())
}
