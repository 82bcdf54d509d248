//! The stages of a create.

use std::sync::Arc;

use http::{Response, StatusCode};
use plumb_store::Event;
use serde_json::Value;

use super::metadata::{check_url, clear_system_fields, set_namespace};
use super::stages::{Admitted, Defaulted, Mutated, Prepared, Requested, Validated};
use super::{AFTER_ADMISSION, Attempts, read_body};
use crate::admission::{Attributes, Chain, Operation};
use crate::custom::dry_run;
use crate::endpoints::field_managers::{ApplyPatch, FieldManager};
use crate::endpoints::response::{show_stored, show_value};
use crate::endpoints::write_options::WriteOptions;
use crate::error::ApiError;
use crate::kinds::{Context, rest};
use crate::object::{meta, metadata};
use crate::request::{Call, RequestInfo, RequestScope};
use crate::response_body::Body;
use crate::url::Verb;
use crate::warnings::Warnings;

/// How many names the server generates for one object before it responds with an error.
const GENERATED_NAMES: usize = 8;

/// Creates an object.
pub(crate) async fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = WriteOptions::of(call.info.verb, &call.query, call.http.headers())?;
    let requested = Requested(read_body(call, &options)?);
    let has_version = requested.has_resource_version();
    let fields = FieldManager::of(call, &options);
    let defaulted = apply_defaults(call.context(), &call.info, &fields, &call.state.warnings, requested)?;
    if has_version {
        return Err(reject_resource_version(call, &options, defaulted).await?);
    }
    create_defaulted(call, &options, defaulted).await
}

/// Creates an object by server-side apply.
pub(super) async fn apply(
    call: &Call,
    options: &WriteOptions,
    patch: &ApplyPatch,
) -> Result<Response<Body>, ApiError> {
    let mut new = patch.apply(&FieldManager::of(call, options), &call.state.warnings, None)?;
    let (row, uid) = (&call.scope.row, meta(&new, "uid"));
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(row.group(), row.plural(), call.info.name(), &why));
    }
    check_url(&call.info, &mut new)?;
    call.authorize(Verb::Create)?;
    let without_labels = set_defaults(call.context(), &mut new)?;
    if without_labels {
        metadata(&mut new).remove("labels");
    }
    create_defaulted(call, options, Defaulted(new)).await
}

impl Requested {
    /// Whether the object has a resource version, which a new object must not have.
    fn has_resource_version(&self) -> bool {
        meta(&self.0, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0)
    }
}

/// Stage: the namespace of the URL, the defaults and the field managers.
fn apply_defaults(
    cx: Context<'_>,
    info: &RequestInfo,
    fields: &FieldManager<'_>,
    warnings: &Warnings,
    Requested(mut new): Requested,
) -> Result<Defaulted, ApiError> {
    set_namespace(info.namespace(), &mut new)?;
    warnings.extend(rest::drop_duplicate_owners(&mut new, ""));
    let without_labels = set_defaults(cx, &mut new)?;
    fields.track_new(&mut new);
    if without_labels {
        metadata(&mut new).remove("labels");
    }
    Ok(Defaulted(new))
}

/// Applies the defaults of a new object, and clears the metadata that the server sets. Returns whether its labels are to be
/// removed, since it gets those of its pod template when it is prepared.
fn set_defaults(cx: Context<'_>, new: &mut Value) -> Result<bool, ApiError> {
    let strategy = cx.row.strategy();
    let without_labels = strategy.takes_labels_of_pod_template(new);
    clear_system_fields(new);
    rest::set_kind(cx.row, new);
    strategy.apply_defaults(cx, &Value::Null, new)?;
    Ok(without_labels)
}

/// The error for a new object with a resource version. Validation comes first: only an object that could be stored gets
/// this error.
async fn reject_resource_version(
    call: &Call,
    options: &WriteOptions,
    Defaulted(mut new): Defaulted,
) -> Result<ApiError, ApiError> {
    let attributes = call.attributes(Operation::Create, &Value::Null, options.dry_run);
    call.server.admission().mutate(&attributes, &mut new).await?;
    let prepared = prepare(call.context(), &call.state.warnings, Mutated(new))?;
    check(call.context(), &call.scope, &prepared)?;
    Ok(ApiError::unexplained("resourceVersion should not be set on objects to be created"))
}

/// The stages of a create after the defaults.
async fn create_defaulted(
    call: &Call,
    options: &WriteOptions,
    defaulted: Defaulted,
) -> Result<Response<Body>, ApiError> {
    let row = &call.scope.row;
    let name = meta(&defaulted.0, "name").to_owned();
    let generate_name = meta(&defaulted.0, "generateName").to_owned();
    let mut attributes = call.attributes(Operation::Create, &Value::Null, options.dry_run);
    (attributes.name, attributes.generate_name) = (&name, &generate_name);
    if row.is_namespace() {
        attributes.namespace = Some(&name);
    }
    let mutated = mutate(call.server.admission(), &attributes, &call.info, defaulted).await?;
    if mutated.generates_name() {
        for _ in 1..GENERATED_NAMES {
            if let Some(response) = try_create(call, &attributes, mutated.clone()).await? {
                return Ok(response);
            }
        }
    }
    let name = meta(&mutated.0, "name").to_owned();
    let created = try_create(call, &attributes, mutated).await?;
    created.ok_or_else(|| ApiError::already_exists(row.group(), row.plural(), &name))
}

impl Mutated {
    /// Whether the server generates the name of the object.
    fn generates_name(&self) -> bool {
        meta(&self.0, "name").is_empty() && !meta(&self.0, "generateName").is_empty()
    }
}

/// The stages of a create after mutating admission, and the response. Returns none if an object of that name exists.
async fn try_create(
    call: &Call,
    attributes: &Attributes<'_>,
    mutated: Mutated,
) -> Result<Option<Response<Body>>, ApiError> {
    let (cx, chain, warnings) = (call.context(), call.server.admission(), &call.state.warnings);
    let prepared = prepare(cx, warnings, mutated)?;
    let validated = validate(cx, &call.scope, warnings, prepared)?;
    let name = meta(&validated.object, "name").to_owned();
    let attributes = Attributes { name: &name, ..*attributes };
    let admitted = admit(chain, &attributes, validated).await?;
    let mut attempts = Attempts::new(call, cx.row.key(call.info.namespace(), &name)?);
    match store(chain, &attributes, admitted, &mut attempts).await {
        Ok(Outcome::Stored(event)) => {
            let stored = event.current().ok_or_else(|| ApiError::internal("a create stored nothing"))?;
            show_stored(call, StatusCode::CREATED, &stored.value).await.map(Some)
        }
        Ok(Outcome::DryRun(new)) => {
            attempts.once_durable(show_value(call, StatusCode::CREATED, new).map(Some)).await
        }
        Ok(Outcome::AlreadyExists) => attempts.once_durable(Ok(None)).await,
        Err(error) => attempts.once_durable(Err(error)).await,
    }
}

/// The outcome of the last stage of a create.
enum Outcome {
    /// The object is stored.
    Stored(Arc<Event>),
    /// It was a dry run, and this would have been stored.
    DryRun(Value),
    /// There is an object of that name.
    AlreadyExists,
}

/// Stage: mutating admission. It cannot move an object to another namespace, nor an applied object to another name.
async fn mutate(
    chain: &Chain,
    attributes: &Attributes<'_>,
    info: &RequestInfo,
    Defaulted(mut new): Defaulted,
) -> Result<Mutated, ApiError> {
    chain.mutate(attributes, &mut new).await?;
    attributes.warnings.extend(rest::drop_duplicate_owners(&mut new, AFTER_ADMISSION));
    if info.verb == Verb::Create {
        set_namespace(info.namespace(), &mut new)?;
    } else {
        check_url(info, &mut new)?;
    }
    Ok(Mutated(new))
}

/// Stage: the fields that the server sets, and what it allocates.
fn prepare(cx: Context<'_>, warnings: &Warnings, Mutated(mut object): Mutated) -> Result<Prepared, ApiError> {
    rest::fill_system_fields(cx.row, &mut object, cx.now());
    warnings.extend(rest::prepare_for_create(cx, &mut object)?);
    let reserved = cx.row.strategy().allocate(cx, None, &mut object)?;
    Ok(Prepared { object, reserved })
}

/// Stage: validation by the strategy, and warnings about the valid object.
fn validate(
    cx: Context<'_>,
    scope: &RequestScope,
    warnings: &Warnings,
    prepared: Prepared,
) -> Result<Validated, ApiError> {
    check(cx, scope, &prepared)?;
    let Prepared { object, reserved } = prepared;
    warnings.extend(cx.row.strategy().warnings_on_create(&object));
    Ok(Validated { object, reserved })
}

/// Validates a new object in the version that its rules are for.
fn check(cx: Context<'_>, scope: &RequestScope, prepared: &Prepared) -> Result<(), ApiError> {
    let (row, shown) = scope.validated(&prepared.object);
    row.strategy().validate_object(cx.with_row(row), &shown)
}

/// Stage: validating admission, and the form in which the object is stored.
async fn admit(
    chain: &Chain,
    attributes: &Attributes<'_>,
    Validated { mut object, reserved }: Validated,
) -> Result<Admitted, ApiError> {
    chain.validate(attributes, &object).await?;
    rest::canonicalize_new(attributes.row, &mut object);
    Ok(Admitted { object, reserved })
}

/// Stage: one transaction with the quotas, or none in a dry run and where an object of that name exists.
async fn store(
    chain: &Chain,
    attributes: &Attributes<'_>,
    Admitted { object: new, mut reserved }: Admitted,
    attempts: &mut Attempts<'_>,
) -> Result<Outcome, ApiError> {
    if attempts.begin()?.is_some() {
        return Ok(Outcome::AlreadyExists);
    }
    if attributes.dry_run {
        chain.charge(attributes, &new)?;
        return dry_run(attributes.row, new, attributes.called_webhooks).await.map(Outcome::DryRun);
    }
    let charge = || chain.charge(attributes, &new);
    let event = attempts.commit_reserved(None, Some(&new), charge, &mut reserved).await?;
    Ok(event.map_or(Outcome::AlreadyExists, Outcome::Stored))
}
