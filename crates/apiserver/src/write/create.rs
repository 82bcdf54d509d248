//! The stages of a create.

use http::{Response, StatusCode};
use serde_json::Value;

use super::metadata::{check_url, clear_system_fields, fill_system_fields, set_kind, set_namespace};
use super::stages::{Admitted, Defaulted, Mutated, Prepared, Requested, Validated};
use super::{AFTER_ADMISSION, Attempts, read_body};
use crate::admission::{Attributes, Operation};
use crate::body::Body;
use crate::call::Call;
use crate::custom::dry_run;
use crate::error::ApiError;
use crate::kinds::rest;
use crate::managers::{self, ApplyPatch};
use crate::object::{meta, metadata};
use crate::present::{show_stored, show_value};
use crate::target::Verb;

/// How many names the server generates for one object before it responds with an error.
const GENERATED_NAMES: usize = 8;

/// Creates an object.
pub(crate) async fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    managers::check_options(call.verb, &call.query, false)?;
    let requested = Requested(read_body(call)?);
    let has_version = requested.has_resource_version();
    let defaulted = apply_defaults(call, requested)?;
    if has_version {
        return Err(reject_resource_version(call, defaulted).await?);
    }
    create_defaulted(call, defaulted).await
}

/// Creates an object by server-side apply.
pub(super) async fn apply(call: &Call, patch: &ApplyPatch) -> Result<Response<Body>, ApiError> {
    let mut new = patch.apply(call, None)?;
    let (row, uid) = (&call.row, meta(&new, "uid"));
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(row.group(), row.plural(), call.name(), &why));
    }
    check_url(call, &mut new)?;
    call.authorize(Verb::Create)?;
    let without_labels = set_defaults(call, &mut new)?;
    if without_labels {
        metadata(&mut new).remove("labels");
    }
    create_defaulted(call, Defaulted(new)).await
}

impl Requested {
    /// Whether the object has a resource version, which a new object must not have.
    fn has_resource_version(&self) -> bool {
        meta(&self.0, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0)
    }
}

/// Stage: the namespace of the URL, the defaults and the field managers.
fn apply_defaults(call: &Call, Requested(mut new): Requested) -> Result<Defaulted, ApiError> {
    set_namespace(call.namespace(), &mut new)?;
    call.warn(rest::drop_duplicate_owners(&mut new, "").into_iter().collect());
    let without_labels = set_defaults(call, &mut new)?;
    managers::track_new(call, &mut new);
    if without_labels {
        metadata(&mut new).remove("labels");
    }
    Ok(Defaulted(new))
}

/// Applies the defaults of a new object, and clears the metadata that the server sets. Returns whether its labels are to be
/// removed, since it gets those of its pod template when it is prepared.
fn set_defaults(call: &Call, new: &mut Value) -> Result<bool, ApiError> {
    let without_labels = call.row.strategy().takes_labels_of_pod_template(new);
    clear_system_fields(new);
    set_kind(&call.row, new);
    call.row.strategy().apply_defaults(call.context(), &Value::Null, new)?;
    Ok(without_labels)
}

/// The error for a new object with a resource version. Validation comes first: only an object that could be stored gets
/// this error.
async fn reject_resource_version(call: &Call, Defaulted(mut new): Defaulted) -> Result<ApiError, ApiError> {
    let attributes = call.attributes(Operation::Create, &Value::Null)?;
    call.server.admission().mutate(&attributes, &mut new).await?;
    validate(call, prepare(call, Mutated(new))?)?;
    Ok(ApiError::unexplained("resourceVersion should not be set on objects to be created"))
}

/// The stages of a create after the defaults.
async fn create_defaulted(call: &Call, defaulted: Defaulted) -> Result<Response<Body>, ApiError> {
    let name = meta(&defaulted.0, "name").to_owned();
    let generate_name = meta(&defaulted.0, "generateName").to_owned();
    let mut attributes = call.attributes(Operation::Create, &Value::Null)?;
    (attributes.name, attributes.generate_name) = (&name, &generate_name);
    if call.row.is_namespace() {
        attributes.namespace = Some(&name);
    }
    let mutated = mutate(call, &attributes, defaulted).await?;
    if mutated.generates_name() {
        for _ in 1..GENERATED_NAMES {
            if let Some(response) = try_create(call, &attributes, mutated.clone()).await? {
                return Ok(response);
            }
        }
    }
    let name = meta(&mutated.0, "name").to_owned();
    let created = try_create(call, &attributes, mutated).await?;
    created.ok_or_else(|| ApiError::already_exists(call.row.group(), call.row.plural(), &name))
}

impl Mutated {
    /// Whether the server generates the name of the object.
    fn generates_name(&self) -> bool {
        meta(&self.0, "name").is_empty() && !meta(&self.0, "generateName").is_empty()
    }
}

/// The stages of a create after mutating admission. Returns none if an object of that name exists.
async fn try_create(
    call: &Call,
    attributes: &Attributes<'_>,
    mutated: Mutated,
) -> Result<Option<Response<Body>>, ApiError> {
    let validated = validate(call, prepare(call, mutated)?)?;
    let name = meta(&validated.object, "name").to_owned();
    let attributes = Attributes { name: &name, ..*attributes };
    let admitted = admit(call, &attributes, validated).await?;
    store(call, &attributes, admitted).await
}

/// Stage: mutating admission. It cannot move an object to another namespace, nor an applied object to another name.
async fn mutate(
    call: &Call,
    attributes: &Attributes<'_>,
    Defaulted(mut new): Defaulted,
) -> Result<Mutated, ApiError> {
    call.server.admission().mutate(attributes, &mut new).await?;
    call.warn(rest::drop_duplicate_owners(&mut new, AFTER_ADMISSION).into_iter().collect());
    if call.verb == Verb::Create {
        set_namespace(call.namespace(), &mut new)?;
    } else {
        check_url(call, &mut new)?;
    }
    Ok(Mutated(new))
}

/// Stage: the fields that the server sets, and what it allocates.
fn prepare(call: &Call, Mutated(mut object): Mutated) -> Result<Prepared, ApiError> {
    fill_system_fields(&call.row, &mut object, call.cluster().now());
    call.warn(rest::prepare_for_create(call.context(), &mut object)?);
    let reserved = call.row.strategy().allocate(call.context(), None, &mut object)?;
    Ok(Prepared { object, reserved })
}

/// Stage: validation by the strategy, in the version that its rules are for.
fn validate(call: &Call, Prepared { object, reserved }: Prepared) -> Result<Validated, ApiError> {
    let (row, shown) = call.validated(&object);
    row.strategy().validate_object(call.context().with_row(row), &shown)?;
    drop(shown);
    Ok(Validated { object, reserved })
}

/// Stage: warnings about the valid object, validating admission, and the form in which the object is stored.
async fn admit(
    call: &Call,
    attributes: &Attributes<'_>,
    Validated { mut object, reserved }: Validated,
) -> Result<Admitted, ApiError> {
    call.warn(call.row.strategy().warnings_on_create(&object));
    call.server.admission().validate(attributes, &object).await?;
    rest::canonicalize_new(&call.row, &mut object);
    Ok(Admitted { object, reserved })
}

/// Stage: one transaction with the quotas, or none in a dry run. Returns none if an object of that name exists.
async fn store(
    call: &Call,
    attributes: &Attributes<'_>,
    Admitted { object: new, mut reserved }: Admitted,
) -> Result<Option<Response<Body>>, ApiError> {
    let key = call.row.key(call.namespace(), attributes.name)?;
    let mut attempts = Attempts::new(call, key);
    let charge = || call.server.admission().charge(attributes, &new);
    let stored = match attempts.begin()? {
        Some(_) => Ok(None),
        None if attributes.dry_run => {
            let response = match charge() {
                Ok(_) => {
                    let new = dry_run(&call.row, new.clone(), &call.called_webhooks).await;
                    new.and_then(|new| show_value(call, StatusCode::CREATED, new))
                }
                Err(error) => Err(error),
            };
            return attempts.once_durable(response.map(Some)).await;
        }
        None => attempts.commit_reserved(None, Some(&new), charge, &mut reserved).await,
    };
    let Ok(Some(event)) = stored else {
        return attempts.once_durable(stored.map(|_| None)).await;
    };
    let stored = event.current().ok_or_else(|| ApiError::internal("a create stored nothing"))?;
    show_stored(call, StatusCode::CREATED, &stored.value).await.map(Some)
}
