//! Which webhooks a write concerns, and as what it is put to them.

use serde_json::Value;

use super::super::expression::Inputs;
use super::super::matching::{Invocation, Versions};
use super::super::{Attributes, condition};
use super::configuration::Hook;
use crate::error::ApiError;

/// Whether a write concerns a webhook, and the version that it gets it in.
pub(super) async fn invocation(
    hook: &Hook,
    attributes: &Attributes<'_>,
    new: &Value,
    versions: &mut Versions,
) -> Result<Option<Invocation>, ApiError> {
    let Some(invocation) = hook.criteria.invocation(attributes, new)? else { return Ok(None) };
    let converted = invocation.converted(attributes, new, versions).await;
    // As upstream, whatever the failure policy of the webhook is.
    let invocation = converted.map_err(|error| ApiError::internal(error.message))?;
    if hook.conditions.is_empty() {
        return Ok(Some(invocation));
    }
    let concerned =
        condition::hold(&hook.conditions, &Inputs::of(attributes, &invocation, new, hook.reading));
    match concerned {
        Ok(concerned) => Ok(concerned.then_some(invocation)),
        Err(_) if hook.ignores_failure => Ok(None),
        Err(why) => Err(attributes.forbidden(&why)),
    }
}
