//! Subresources: the status, the scale, a resize, a binding.

mod action;
mod eviction;
mod scale;
mod token;

use http::Response;

use crate::endpoints::nodes;
use crate::endpoints::read;
use crate::endpoints::write::{self, Part};
use crate::error::ApiError;
use crate::kinds::SubresourceHandler;
use crate::request::Call;
use crate::response_body::Body;
use crate::url::Verb;

/// Handles a request for a subresource.
pub(crate) async fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let (name, row) = (call.info.subresource(), &call.scope.row);
    let subresource = row.resource.subresource(name).ok_or_else(ApiError::no_such_path)?;
    if !subresource.verbs.contains(&call.info.verb.name()) {
        return Err(ApiError::method_not_allowed());
    }
    let strategy = row.strategy();
    let part = match name {
        "status" => Some(Part::Status),
        name => strategy.subresource(name).map(Part::Subresource),
    };
    match (part, name, call.info.verb) {
        (Some(_), _, Verb::Get) => return read::get(call).await,
        (Some(part), _, Verb::Update | Verb::Patch) => return write::update(call, part).await,
        (_, "scale", Verb::Get) => return scale::get(call).await,
        (_, "scale", Verb::Update | Verb::Patch) => return scale::change(call).await,
        _ => {}
    }
    // The futures of connections to nodes are boxed, so that those of all other requests are not as large.
    match strategy.subresource_handler(name).ok_or_else(ApiError::no_such_path)? {
        SubresourceHandler::Action(action) => action::perform(call, action).await,
        SubresourceHandler::Attach => Box::pin(nodes::streams::attach(call)).await,
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
