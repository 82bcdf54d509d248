//! The stages of an update, a patch or an apply, of an object or of a part of it.

use std::sync::Arc;

use http::{Response, StatusCode};
use plumb_store::{Event, Object};
use serde_json::Value;

use super::metadata::{check_identity, check_url, is_finalized};
use super::stages::{Admitted, Current, Defaulted, Mutated, Prepared, Requested, Validated};
use super::{AFTER_ADMISSION, Attempts, Part, create, read_body};
use crate::admission::{Attributes, Chain, Operation};
use crate::allocation::Reservation;
use crate::codec::FieldValidation;
use crate::custom::{dry_run, in_version, is_stored_as, presented_value};
use crate::endpoints::field_managers::{self, ApplyPatch, FieldManager};
use crate::endpoints::patching::Patch;
use crate::endpoints::response::{show_stored, show_value};
use crate::endpoints::write_options::WriteOptions;
use crate::error::ApiError;
use crate::kinds::{Context, rest};
use crate::request::{Call, RequestInfo, RequestScope};
use crate::response_body::Body;
use crate::url::Verb;
use crate::warnings::Warnings;

/// Updates, patches or applies an object, or a part of it.
pub(crate) async fn update(call: &Call, part: Part) -> Result<Response<Body>, ApiError> {
    let options = WriteOptions::of(call.info.verb, &call.query, call.http.headers())?;
    let change = Change::read(call, &options)?;
    let mut attempts = Attempts::new(call, call.key()?);
    loop {
        let outcome = try_update(call, part, &options, &change, &mut attempts).await;
        if matches!(outcome, Ok(Outcome::NotFound | Outcome::Unchanged(_)) | Err(_))
            && attempts.is_outdated().await?
        {
            continue;
        }
        match outcome {
            Ok(Outcome::NotFound) => {
                let (Change::Apply(patch), Part::Main) = (&change, part) else {
                    return attempts.once_durable(Err(call.scope.row.not_found(call.info.name()))).await;
                };
                match create::apply(call, &options, patch).await {
                    // Another client created it first, so this is an update now.
                    Err(error) if error.reason == "AlreadyExists" => {}
                    response => return attempts.once_durable(response).await,
                }
            }
            Ok(Outcome::Stored(event)) => {
                let stored = event.current().ok_or_else(|| ApiError::internal("an update stored nothing"))?;
                return show_stored(call, StatusCode::OK, &stored.value).await;
            }
            Ok(Outcome::Deleted(new)) => return show_value(call, StatusCode::OK, new),
            Ok(Outcome::DryRun(new)) => {
                return attempts.once_durable(show_value(call, StatusCode::OK, new)).await;
            }
            Ok(Outcome::Unchanged(stored)) => {
                let response = show_stored(call, StatusCode::OK, &stored.value).await;
                return attempts.once_durable(response).await;
            }
            Ok(Outcome::Conflict) => {}
            Err(error) => return attempts.once_durable(Err(error)).await,
        }
    }
}

/// The outcome of one attempt.
enum Outcome {
    /// The object is stored.
    Stored(Arc<Event>),
    /// The last finalizer was removed, and the object is deleted. This is what it would have become.
    Deleted(Value),
    /// There is no such object.
    NotFound,
    /// It was a dry run, and the object would have become this.
    DryRun(Value),
    /// The object is stored already as it is requested.
    Unchanged(Arc<Object>),
    /// Another writer changed the object meanwhile.
    Conflict,
}

/// The stages of an update, in order.
async fn try_update(
    call: &Call,
    part: Part,
    options: &WriteOptions,
    change: &Change,
    attempts: &mut Attempts<'_>,
) -> Result<Outcome, ApiError> {
    let (cx, info, scope, warnings) = (call.context(), &call.info, &call.scope, &call.state.warnings);
    let (fields, chain) = (FieldManager::of(call, options), call.server.admission());
    let Some(current) = read_current(cx, attempts).await? else { return Ok(Outcome::NotFound) };
    let requested = request(cx, scope, &fields, warnings, change, &current)?;
    let tracked = if options.is_apply { None } else { Some(&fields) };
    let defaulted = apply_defaults(cx, info, part, tracked, warnings, &current, requested)?;
    let attributes = call.attributes(Operation::Update, &current.old, options.dry_run);
    let mutated = mutate(chain, &attributes, info, &current, defaulted).await?;
    let prepared = prepare(cx, part, &current, mutated)?;
    let validated = validate(cx, scope, part, warnings, &current, prepared)?;
    let admitted = admit(chain, &attributes, validated).await?;
    store(chain, &attributes, &current, admitted, attempts).await
}

/// The change that a request asks for.
enum Change {
    /// The object of the body replaces the stored one.
    Replace(Value),
    /// A patch is applied to the stored object.
    Patch(Patch, FieldValidation),
    /// An applied configuration is merged into the stored object.
    Apply(ApplyPatch),
}

impl Change {
    fn read(call: &Call, options: &WriteOptions) -> Result<Self, ApiError> {
        let (http, rules) = (&call.http, call.cluster().rules());
        if options.is_apply {
            return ApplyPatch::read(&http.body, &call.query, options, rules).map(Self::Apply);
        }
        if call.info.verb == Verb::Patch {
            let patch = Patch::read(http.headers(), &http.body, rules)?;
            return Ok(Self::Patch(patch, options.field_validation));
        }
        let mut new = read_body(call, options)?;
        check_url(&call.info, &mut new)?;
        Ok(Self::Replace(new))
    }
}

/// Stage: the stored object, in the version of the kind. None if it does not exist.
async fn read_current(cx: Context<'_>, attempts: &mut Attempts<'_>) -> Result<Option<Current>, ApiError> {
    let Some(stored) = attempts.begin()? else { return Ok(None) };
    let mut old = presented_value(cx.row, &in_version(cx.row, &stored.value).await?)?;
    cx.row.strategy().apply_defaults_to_stored(cx, &mut old);
    Ok(Some(Current { stored, old }))
}

/// Stage: the stored object with the requested change.
fn request(
    cx: Context<'_>,
    scope: &RequestScope,
    fields: &FieldManager<'_>,
    warnings: &Warnings,
    change: &Change,
    Current { old, .. }: &Current,
) -> Result<Requested, ApiError> {
    match change {
        Change::Replace(new) => Ok(Requested(new.clone())),
        Change::Apply(patch) => patch.apply(fields, warnings, Some(old)).map(Requested),
        Change::Patch(patch, validation) => {
            let (row, is_strict) = (scope.request_row(), *validation == FieldValidation::Strict);
            let decoded = patch.apply(row, &scope.to_served_version(old), is_strict)?;
            warnings.extend(validation.judge(row, &decoded)?);
            Ok(Requested(scope.to_storage_version(decoded.value, cx.rules)))
        }
    }
}

/// Stage: the defaults and the field managers. Those of an apply are set already.
fn apply_defaults(
    cx: Context<'_>,
    info: &RequestInfo,
    part: Part,
    fields: Option<&FieldManager<'_>>,
    warnings: &Warnings,
    current: &Current,
    Requested(mut new): Requested,
) -> Result<Defaulted, ApiError> {
    // SPEC: duplicate owner references in a patch are dropped only after its field managers are set.
    if info.verb == Verb::Update {
        warnings.extend(rest::drop_duplicate_owners(&mut new, ""));
    }
    check_identity(info, cx.row, current, &mut new)?;
    part.apply_defaults(cx, &current.old, &mut new)?;
    if let Some(fields) = fields {
        fields.track(&current.old, &mut new);
    }
    Ok(Defaulted(new))
}

/// Stage: mutating admission. It cannot make another object of it.
async fn mutate(
    chain: &Chain,
    attributes: &Attributes<'_>,
    info: &RequestInfo,
    current: &Current,
    Defaulted(mut new): Defaulted,
) -> Result<Mutated, ApiError> {
    chain.mutate(attributes, &mut new).await?;
    attributes.warnings.extend(rest::drop_duplicate_owners(&mut new, AFTER_ADMISSION));
    check_identity(info, attributes.row, current, &mut new)?;
    Ok(Mutated(new))
}

/// Stage: the fields that the update does not change, those that the server sets, and what it allocates.
fn prepare(
    cx: Context<'_>,
    part: Part,
    Current { old, .. }: &Current,
    Mutated(mut object): Mutated,
) -> Result<Prepared, ApiError> {
    let managed_fields = field_managers::take(&mut object);
    part.prepare_for_update(cx, old, &mut object)?;
    let reserved = match part {
        Part::Main => cx.row.strategy().allocate(cx, Some(old), &mut object)?,
        _ => Reservation::none(cx.allocations),
    };
    part.count_generation(cx.row, old, &mut object);
    field_managers::put(&mut object, managed_fields);
    field_managers::settle(old, &mut object);
    Ok(Prepared { object, reserved })
}

/// Stage: validation by the strategy, and warnings about the valid object.
fn validate(
    cx: Context<'_>,
    scope: &RequestScope,
    part: Part,
    warnings: &Warnings,
    Current { old, .. }: &Current,
    Prepared { object, reserved }: Prepared,
) -> Result<Validated, ApiError> {
    part.validate_update(cx, scope, warnings, old, &object)?;
    warnings.extend(part.warnings(cx.row.strategy(), old, &object));
    Ok(Validated { object, reserved })
}

/// Stage: validating admission, and the form in which the object is stored.
async fn admit(
    chain: &Chain,
    attributes: &Attributes<'_>,
    Validated { mut object, reserved }: Validated,
) -> Result<Admitted, ApiError> {
    chain.validate(attributes, &object).await?;
    rest::canonicalize(attributes.row, &mut object);
    Ok(Admitted { object, reserved })
}

/// Stage: one transaction with the quotas, or none in a dry run and where the object would not change.
async fn store(
    chain: &Chain,
    attributes: &Attributes<'_>,
    Current { stored, old }: &Current,
    Admitted { object: new, mut reserved }: Admitted,
    attempts: &mut Attempts<'_>,
) -> Result<Outcome, ApiError> {
    let (row, called_webhooks) = (attributes.row, attributes.called_webhooks);
    if attributes.dry_run {
        chain.charge(attributes, &new)?;
        return dry_run(row, new, called_webhooks).await.map(Outcome::DryRun);
    }
    // Both have the resource version of the stored object by now.
    if new == *old && is_stored_as(row, stored, &new, called_webhooks).await? {
        return Ok(Outcome::Unchanged(Arc::clone(stored)));
    }
    let left = (!is_finalized(row, &new)).then_some(&new);
    let charge = || chain.charge(attributes, &new);
    let event = attempts.commit_reserved(Some(stored), left, charge, &mut reserved).await?;
    Ok(match event {
        None => Outcome::Conflict,
        Some(event) if event.current().is_some() => Outcome::Stored(event),
        Some(_) => Outcome::Deleted(new),
    })
}
