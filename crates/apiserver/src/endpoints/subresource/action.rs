//! Subresources such as `pods/binding`: a POST of an object of the subresource's own kind changes the object in the URL, as
//! the strategy of its kind says.

use http::{Response, StatusCode};
use plumb_apischema::Schema;
use serde_json::Value;

use crate::admission::Operation;
use crate::codec::{answer_value, success};
use crate::endpoints::write::Attempts;
use crate::error::ApiError;
use crate::kinds::SubresourceAction;
use crate::request::Call;
use crate::response_body::Body;

/// Changes the object in the URL by the object of the request.
pub(super) async fn perform(call: &Call, action: SubresourceAction) -> Result<Response<Body>, ApiError> {
    let subresource = call.scope.row.resource.subresource(call.info.subresource());
    let kind = subresource.and_then(|own| Schema::builtin().kind(&own.group, &own.version, &own.kind));
    let kind = kind.ok_or_else(ApiError::no_such_path)?;
    let requested = call.http.decode(kind, call.cluster().rules())?.value;
    let mut attempts = Attempts::new(call, call.key()?);
    loop {
        match attempt(call, action, &requested, &mut attempts).await {
            Ok(false) => {}
            Ok(true) => {
                return attempts.once_durable(Ok(answer_value(StatusCode::CREATED, &success()))).await;
            }
            Err(error) => return attempts.once_durable(Err(error)).await,
        }
    }
}

/// Whether the change is stored, or was a dry run.
async fn attempt(
    call: &Call,
    action: SubresourceAction,
    requested: &Value,
    attempts: &mut Attempts<'_>,
) -> Result<bool, ApiError> {
    let current = attempts.begin()?.ok_or_else(|| call.scope.row.not_found(call.info.name()))?;
    let (chain, mut requested) = (call.server.admission(), requested.clone());
    let attributes = call.attributes(Operation::Create, &Value::Null, call.query.dry_run()?);
    chain.mutate(&attributes, &mut requested).await?;
    let changed = action(call.info.name(), &current, &requested, call.cluster().now())?;
    chain.validate(&attributes, &requested).await?;
    if attributes.dry_run {
        return Ok(true);
    }
    let charge = || chain.charge(&attributes, &requested);
    Ok(attempts.commit(Some(&current), Some(&changed), charge).await?.is_some())
}
