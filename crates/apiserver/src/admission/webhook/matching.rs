//! Which webhooks match a write, and in which version they receive it.

use std::sync::Arc;

use serde_json::Value;

use super::super::effort::{self, Pace};
use super::super::evaluation::Inputs;
use super::super::matching::{Invocation, Versions};
use super::super::{Attributes, condition};
use super::configuration::Hook;
use crate::error::ApiError;

/// Whether a write matches a webhook, and the version in which the webhook receives it.
pub(super) async fn invocation(
    hooks: &Arc<[Hook]>,
    index: usize,
    attributes: &Attributes<'_>,
    new: &Value,
    versions: &mut Versions,
    pace: &mut Pace,
) -> Result<Option<Invocation>, ApiError> {
    let hook = &hooks[index];
    let Some(invocation) = hook.criteria.invocation(attributes, new)? else { return Ok(None) };
    let converted = invocation.converted(attributes, new, versions).await;
    // As upstream, whatever the failure policy of the webhook is.
    let invocation = converted.map_err(|error| ApiError::internal(error.message))?;
    if hook.conditions.is_empty() {
        return Ok(Some(invocation));
    }
    attributes.in_time()?;
    let context = (hooks.clone(), invocation.clone());
    let concerned = effort::evaluate(
        &context,
        attributes,
        new,
        pace,
        move |(hooks, invocation), attributes, new, effort| {
            let hook = &hooks[index];
            condition::hold(&hook.conditions, &Inputs::of(attributes, invocation, new, hook.used), effort)
        },
    );
    match concerned.await? {
        Ok(concerned) => Ok(concerned.then_some(invocation)),
        Err(_) if hook.ignores_failure => Ok(None),
        Err(why) => Err(attributes.forbidden(&why)),
    }
}
