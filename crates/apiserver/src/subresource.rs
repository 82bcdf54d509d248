//! Subresources: the status, the scale, a resize, a binding.

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
use crate::kinds::SubresourceHandler;
use crate::nodes;
use crate::read;
use crate::registry::pod;
use crate::target::Verb;
use crate::write::{self, Attempts, Part};

/// Handles a request for a subresource.
pub(crate) async fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let name = call.target.subresource.clone().unwrap_or_default();
    let subresource = call.row.resource.subresource(&name).ok_or_else(ApiError::no_such_path)?;
    if !subresource.verbs.contains(&call.verb.name()) {
        return Err(ApiError::method_not_allowed());
    }
    let strategy = call.row.strategy();
    let part = match name.as_str() {
        "status" => Some(Part::Status),
        name => strategy.subresource(name).map(Part::Subresource),
    };
    match (part, name.as_str(), call.verb) {
        (Some(_), _, Verb::Get) => return read::get(call).await,
        (Some(part), _, Verb::Update | Verb::Patch) => return write::update(call, part).await,
        (_, "scale", Verb::Get) => return scale::get(call).await,
        (_, "scale", Verb::Update | Verb::Patch) => return scale::change(call).await,
        _ => {}
    }
    // The futures of connections to nodes are boxed, so that those of all other requests are not as large.
    match strategy.subresource_handler(&name).ok_or_else(ApiError::no_such_path)? {
        SubresourceHandler::Attach => Box::pin(nodes::streams::attach(call)).await,
        SubresourceHandler::Binding => bind(call).await,
        SubresourceHandler::Eviction => eviction::evict(call).await,
        SubresourceHandler::Exec => Box::pin(nodes::streams::exec(call)).await,
        SubresourceHandler::Log => Box::pin(nodes::log::answer(call)).await,
        SubresourceHandler::NodeProxy => Box::pin(nodes::proxy::node(call)).await,
        SubresourceHandler::PodProxy => Box::pin(nodes::proxy::pod(call)).await,
        SubresourceHandler::PortForward => Box::pin(nodes::streams::port_forward(call)).await,
        SubresourceHandler::ServiceProxy => Box::pin(nodes::proxy::service(call)).await,
        SubresourceHandler::Token => token::create(call).await,
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
