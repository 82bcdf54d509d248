//! The stages of an update, a patch or an apply, of an object or of a part of it.

use std::sync::Arc;

use http::{Response, StatusCode};
use plumb_store::{Event, Object};
use serde_json::Value;

use super::metadata::{check_identity, check_url, is_finalized};
use super::stages::{Admitted, Current, Defaulted, Mutated, Prepared, Validated};
use super::{AFTER_ADMISSION, Attempts, Part, create, read_body};
use crate::admission::{Attributes, Operation};
use crate::allocation::Reservation;
use crate::body::Body;
use crate::call::Call;
use crate::custom::{dry_run, in_version, is_stored_as, presented_value};
use crate::error::ApiError;
use crate::exchange::FieldValidation;
use crate::kinds::rest;
use crate::managers::{self, ApplyPatch};
use crate::patching::Patch;
use crate::present::{show_stored, show_value};
use crate::target::Verb;

/// Updates, patches or applies an object, or a part of it.
pub(crate) async fn update(call: &Call, part: Part) -> Result<Response<Body>, ApiError> {
    let applies = call.verb == Verb::Patch && ApplyPatch::is_requested(&call.head.headers);
    managers::check_options(call.verb, &call.query, applies)?;
    let change = Change::read(call)?;
    let key = call.row.key(call.namespace(), call.name())?;
    let mut attempts = Attempts::new(call, key);
    loop {
        match try_update(call, part, &change, &mut attempts).await {
            Ok(Outcome::NotFound) => {
                let (Change::Apply(patch), Part::Main) = (&change, part) else {
                    return attempts.once_durable(Err(call.row.not_found(call.name()))).await;
                };
                match create::apply(call, patch).await {
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
    change: &Change,
    attempts: &mut Attempts<'_>,
) -> Result<Outcome, ApiError> {
    let Some(current) = read_current(call, attempts).await? else { return Ok(Outcome::NotFound) };
    let defaulted = apply_change(call, part, change, &current)?;
    let attributes = call.attributes(Operation::Update, &current.old)?;
    let mutated = mutate(call, &attributes, &current, defaulted).await?;
    let prepared = prepare(call, part, &current, mutated)?;
    let validated = validate(call, part, &current, prepared)?;
    let admitted = admit(call, &attributes, validated).await?;
    store(call, &attributes, &current, admitted, attempts).await
}

/// The change that a request asks for.
enum Change {
    /// The object of the body replaces the stored one.
    Replace(Value),
    /// A patch is applied to the stored object.
    Patch(Patch),
    /// An applied configuration is merged into the stored object.
    Apply(ApplyPatch),
}

impl Change {
    fn read(call: &Call) -> Result<Self, ApiError> {
        if call.verb != Verb::Update && ApplyPatch::is_requested(&call.head.headers) {
            return ApplyPatch::read(call).map(Self::Apply);
        }
        if call.verb != Verb::Update {
            return Patch::read(&call.head.headers, &call.body, call.cluster().rules()).map(Self::Patch);
        }
        let mut new = read_body(call)?;
        check_url(call, &mut new)?;
        Ok(Self::Replace(new))
    }

    /// The changed object in the stored version.
    fn apply(&self, call: &Call, old: &Value) -> Result<Value, ApiError> {
        match self {
            Self::Replace(new) => Ok(new.clone()),
            Self::Apply(patch) => patch.apply(call, Some(old)),
            Self::Patch(patch) => {
                let validation = FieldValidation::of(&call.query)?;
                let is_strict = validation == FieldValidation::Strict;
                let decoded = patch.apply(call.body_kind(), &call.to_served_version(old), is_strict)?;
                call.warn(validation.judge(call.body_kind(), &decoded)?);
                Ok(call.to_storage_version(decoded.value))
            }
        }
    }
}

/// Stage: the stored object, in the version of the request. None if it does not exist.
async fn read_current(call: &Call, attempts: &mut Attempts<'_>) -> Result<Option<Current>, ApiError> {
    let Some(stored) = attempts.begin()? else { return Ok(None) };
    let mut old = presented_value(&call.row, &in_version(&call.row, &stored.value).await?)?;
    call.row.strategy().apply_defaults_to_stored(call.context(), &mut old);
    Ok(Some(Current { stored, old }))
}

/// Stage: the requested change, the defaults and the field managers.
fn apply_change(call: &Call, part: Part, change: &Change, current: &Current) -> Result<Defaulted, ApiError> {
    let mut new = change.apply(call, &current.old)?;
    // SPEC: duplicate owner references in a patch are dropped only after its field managers are set.
    if call.verb == Verb::Update {
        call.warn(rest::drop_duplicate_owners(&mut new, "").into_iter().collect());
    }
    check_identity(call, current, &mut new)?;
    part.apply_defaults(call.context(), &current.old, &mut new)?;
    if !matches!(change, Change::Apply(_)) {
        managers::track(call, &current.old, &mut new);
    }
    Ok(Defaulted(new))
}

/// Stage: mutating admission. It cannot make another object of it.
async fn mutate(
    call: &Call,
    attributes: &Attributes<'_>,
    current: &Current,
    Defaulted(mut new): Defaulted,
) -> Result<Mutated, ApiError> {
    call.server.admission().mutate(attributes, &mut new).await?;
    call.warn(rest::drop_duplicate_owners(&mut new, AFTER_ADMISSION).into_iter().collect());
    check_identity(call, current, &mut new)?;
    Ok(Mutated(new))
}

/// Stage: the fields that the update does not change, those that the server sets, and what it allocates.
fn prepare(
    call: &Call,
    part: Part,
    Current { old, .. }: &Current,
    Mutated(mut object): Mutated,
) -> Result<Prepared, ApiError> {
    let managed_fields = managers::take(&mut object);
    part.prepare_for_update(call.context(), old, &mut object)?;
    let reserved = match part {
        Part::Main => call.row.strategy().allocate(call.context(), Some(old), &mut object)?,
        _ => Reservation::none(call.cluster().allocations()),
    };
    part.count_generation(&call.row, old, &mut object);
    managers::put(&mut object, managed_fields);
    managers::settle(old, &mut object);
    Ok(Prepared { object, reserved })
}

/// Stage: validation by the strategy, and warnings about the valid object.
fn validate(
    call: &Call,
    part: Part,
    Current { old, .. }: &Current,
    Prepared { object, reserved }: Prepared,
) -> Result<Validated, ApiError> {
    part.validate_update(call, old, &object)?;
    call.warn(part.warnings(call.row.strategy(), old, &object));
    Ok(Validated { object, reserved })
}

/// Stage: validating admission, and the form in which the object is stored.
async fn admit(
    call: &Call,
    attributes: &Attributes<'_>,
    Validated { mut object, reserved }: Validated,
) -> Result<Admitted, ApiError> {
    call.server.admission().validate(attributes, &object).await?;
    rest::canonicalize(&call.row, &mut object);
    Ok(Admitted { object, reserved })
}

/// Stage: one transaction with the quotas, or none in a dry run and where the object would not change.
async fn store(
    call: &Call,
    attributes: &Attributes<'_>,
    Current { stored, old }: &Current,
    Admitted { object: new, mut reserved }: Admitted,
    attempts: &mut Attempts<'_>,
) -> Result<Outcome, ApiError> {
    let chain = call.server.admission();
    if attributes.dry_run {
        chain.charge(attributes, &new)?;
        return dry_run(&call.row, new, &call.called_webhooks).await.map(Outcome::DryRun);
    }
    // Both have the resource version of the stored object by now.
    if new == *old && is_stored_as(&call.row, stored, &new, &call.called_webhooks).await? {
        return Ok(Outcome::Unchanged(Arc::clone(stored)));
    }
    let left = (!is_finalized(&call.row, &new)).then_some(&new);
    let charge = || chain.charge(attributes, &new);
    let event = attempts.commit_reserved(Some(stored), left, charge, &mut reserved).await?;
    Ok(match event {
        None => Outcome::Conflict,
        Some(event) if event.current().is_some() => Outcome::Stored(event),
        Some(_) => Outcome::Deleted(new),
    })
}
