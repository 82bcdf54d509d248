//! `pods/binding`: assigns a pod to a node.

use http::{Response, StatusCode};
use plumb_apischema::Schema;
use serde_json::Value;

use crate::admission::Operation;
use crate::body::Body;
use crate::call::Call;
use crate::error::ApiError;
use crate::exchange::{answer_value, success};
use crate::registry::pod;
use crate::write::Attempts;

/// Assigns a pod to a node.
pub(super) async fn bind(call: &Call) -> Result<Response<Body>, ApiError> {
    let kind = Schema::builtin().kind("", "v1", "Binding").ok_or_else(ApiError::no_such_path)?;
    let binding = call.http.decode(kind, call.cluster().rules())?.value;
    let mut attempts = Attempts::new(call, call.key()?);
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
    let current = attempts.begin()?.ok_or_else(|| call.scope.row.not_found(call.info.name()))?;
    let (chain, mut binding) = (call.server.admission(), binding.clone());
    let attributes = call.attributes(Operation::Create, &Value::Null, call.query.dry_run()?);
    chain.mutate(&attributes, &mut binding).await?;
    let bound = pod::bind(call.info.name(), &current, &binding, call.cluster().now())?;
    chain.validate(&attributes, &binding).await?;
    if attributes.dry_run {
        return Ok(true);
    }
    let charge = || chain.charge(&attributes, &binding);
    Ok(attempts.commit(Some(&current), Some(&bound), charge).await?.is_some())
}
