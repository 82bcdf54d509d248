//! Writing objects: new ones, other versions of them, and changes.
//!
//! A write is a decision over the stored object, which the store carries out unless another writer changed the object
//! meanwhile; then it is decided again. So two patches of one object never lose each other's work. [`crate::admission`]
//! says who takes part in the decision, and in which order.

mod attempt;
mod part;

use http::{Response, StatusCode};
use plumb_store::{Event, Key, Object, Write, WriteError};
use plumb_validation::field::FieldError;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

pub(crate) use attempt::Attempts;
pub(crate) use part::Part;

use crate::admission::{Attributes, Operation, system_classes};
use crate::allocation::Reservation;
use crate::body::Body;
use crate::custom::{dry_run, in_version, is_stored_as, presented_value};
use crate::error::{ApiError, store_failed};
use crate::exchange::{FieldValidation, of_another_kind};
use crate::kinds::{Row, encode, rest};
use crate::managers::{self, Wanted};
use crate::object::{finalizers, generate_name, is_deleting, meta, metadata, moment};
use crate::patching::Patch;
use crate::present::{show_stored, show_value};
use crate::server::{ApiServer, Call};
use crate::target::Verb;

/// How many names are generated for one object before it is given up.
const NAMES: usize = 8;

/// When owners were found to be named twice, as the warning says it.
const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Stores a new object.
pub(crate) async fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    managers::check_options(call, false)?;
    make(call, call.to_stored(read(call)?)).await
}

/// Reads the object that a client sends.
fn read(call: &Call) -> Result<Value, ApiError> {
    let decoded = call.read_object()?;
    call.warn(FieldValidation::of(&call.query)?.judge(call.body_kind(), &decoded)?);
    of_another_kind(call.body_kind(), &decoded.value).map_or(Ok(decoded.value), Err)
}

/// Stores what a client asks for as a new object.
pub(crate) async fn make(call: &Call, mut asked: Value) -> Result<Response<Body>, ApiError> {
    set_namespace(call, &mut asked)?;
    call.warn(rest::drop_duplicate_owners(&mut asked, "").into_iter().collect());
    let versioned = meta(&asked, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0);
    let waits = call.row.strategy().takes_labels_of_pod_template(&asked);
    default_new(call, &mut asked)?;
    managers::track_new(call, &mut asked);
    if waits {
        metadata(&mut asked).remove("labels");
    }
    if versioned {
        // Validation comes first: only an object that could be stored gets this error.
        refuse_versioned(call, asked).await
    } else {
        admit_new(call, asked).await
    }
}

/// The refusal of a new object that says which version it is.
async fn refuse_versioned(call: &Call, mut asked: Value) -> Result<Response<Body>, ApiError> {
    let attributes = Attributes::of(call, Operation::Create, &Value::Null)?;
    call.server.admission().mutate(&attributes, &mut asked).await?;
    let cx = call.context();
    fill_system_fields(&call.server, &call.row, &mut asked);
    call.warn(rest::prepare_for_create(cx, &mut asked)?);
    let _reserved = call.row.strategy().allocate(cx, None, &mut asked)?;
    let (validated, shown) = call.validated(&asked);
    validated.strategy().validate_object(cx.with_row(validated), &shown)?;
    Err(ApiError::unexplained("resourceVersion should not be set on objects to be created"))
}

/// Applies the defaults of a new object, and clears the metadata that the server sets.
fn default_new(call: &Call, asked: &mut Value) -> Result<(), ApiError> {
    clear(asked);
    set_kind(&call.row, asked);
    call.row.strategy().apply_defaults(call.context(), &Value::Null, asked)
}

/// Has an object say what it is. What one of a custom kind says of its kind is for the rules to judge.
fn set_kind(row: &Row, object: &mut Value) {
    if row.custom().is_none() {
        object["kind"] = json!(row.kind());
    }
    object["apiVersion"] = json!(row.api_version());
}

/// Stores a new object that has its managers.
async fn admit_new(call: &Call, mut asked: Value) -> Result<Response<Body>, ApiError> {
    let (name, prefix) = (meta(&asked, "name").to_owned(), meta(&asked, "generateName").to_owned());
    let mut attributes = Attributes::of(call, Operation::Create, &Value::Null)?;
    (attributes.name, attributes.generate_name) = (&name, &prefix);
    if call.row.is_namespace() {
        attributes.namespace = Some(&name);
    }
    call.server.admission().mutate(&attributes, &mut asked).await?;
    call.warn(rest::drop_duplicate_owners(&mut asked, AFTER_ADMISSION).into_iter().collect());
    // Mutating admission moves an object to no other namespace, and an object that is applied to no other name.
    if call.verb == Verb::Create {
        set_namespace(call, &mut asked)?;
    } else {
        agrees_with_url(call, &mut asked)?;
    }
    let generates = meta(&asked, "name").is_empty() && !meta(&asked, "generateName").is_empty();
    for _ in 1..NAMES {
        if !generates {
            break;
        }
        if let Some(response) = try_make(call, &attributes, asked.clone()).await? {
            return Ok(response);
        }
    }
    let name = meta(&asked, "name").to_owned();
    let made = try_make(call, &attributes, asked).await?;
    made.ok_or_else(|| ApiError::already_exists(call.row.group(), call.row.plural(), &name))
}

/// Stores a new object, unless there is one of its name.
async fn try_make(
    call: &Call,
    attributes: &Attributes<'_>,
    mut new: Value,
) -> Result<Option<Response<Body>>, ApiError> {
    let (server, chain, cx) = (&call.server, call.server.admission(), call.context());
    fill_system_fields(server, &call.row, &mut new);
    call.warn(rest::prepare_for_create(cx, &mut new)?);
    let mut reserved = call.row.strategy().allocate(cx, None, &mut new)?;
    let (validated, shown) = call.validated(&new);
    validated.strategy().validate_object(cx.with_row(validated), &shown)?;
    call.warn(call.row.strategy().warnings_on_create(&new));
    let name = meta(&new, "name").to_owned();
    let attributes = Attributes { name: &name, ..*attributes };
    chain.validate(&attributes, &new).await?;
    rest::canonicalize_new(&call.row, &mut new);
    let key = call.row.key(call.namespace(), &name)?;
    let mut attempts = Attempts::new(call, key);
    let charge = || chain.charge(&attributes, &new);
    let done = match attempts.begin()? {
        Some(_) => Ok(None),
        None if attributes.dry_run => {
            let answer = match charge() {
                Ok(_) => {
                    let new = dry_run(&call.row, new.clone(), &call.called_webhooks).await;
                    new.and_then(|new| show_value(call, StatusCode::CREATED, new))
                }
                Err(error) => Err(error),
            };
            return attempts.settled(answer.map(Some)).await;
        }
        None => attempts.commit_reserved(None, Some(&new), charge, &mut reserved).await,
    };
    let Ok(Some(event)) = done else {
        return attempts.settled(done.map(|_| None)).await;
    };
    let stored = event.current().ok_or_else(|| ApiError::internal("a create stored nothing"))?;
    show_stored(call, StatusCode::CREATED, &stored.value).await.map(Some)
}

/// Stores another version of an object, or of a part of it.
pub(crate) async fn change(call: &Call, part: Part) -> Result<Response<Body>, ApiError> {
    managers::check_options(call, call.verb == Verb::Patch && Wanted::is_asked(call))?;
    let asked = Asked::read(call)?;
    let key = call.row.key(call.namespace(), call.name())?;
    let mut attempts = Attempts::new(call, key);
    loop {
        match try_change(call, part, &asked, &mut attempts).await {
            Ok(Changed::Missing) => {
                let (Asked::Applied(wanted), Part::Main) = (&asked, part) else {
                    return attempts.settled(Err(call.row.not_found(call.name()))).await;
                };
                match make_applied(call, wanted).await {
                    // Another client created it first, so it is an update now.
                    Err(error) if error.reason == "AlreadyExists" => {}
                    answer => return attempts.settled(answer).await,
                }
            }
            Ok(Changed::Stored(event)) => {
                let stored = event.current().ok_or_else(|| ApiError::internal("an update stored nothing"))?;
                return show_stored(call, StatusCode::OK, &stored.value).await;
            }
            Ok(Changed::Deleted(new)) => return show_value(call, StatusCode::OK, new),
            Ok(Changed::Tried(new)) => {
                return attempts.settled(show_value(call, StatusCode::OK, new)).await;
            }
            Ok(Changed::Kept(current)) => {
                let answer = show_stored(call, StatusCode::OK, &current.value).await;
                return attempts.settled(answer).await;
            }
            Ok(Changed::Again) => {}
            Err(error) => return attempts.settled(Err(error)).await,
        }
    }
}

/// Makes an object by applying it.
async fn make_applied(call: &Call, wanted: &Wanted) -> Result<Response<Body>, ApiError> {
    let mut asked = wanted.apply(call, None)?;
    let (row, uid) = (&call.row, meta(&asked, "uid"));
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(row.group(), row.plural(), call.name(), &why));
    }
    agrees_with_url(call, &mut asked)?;
    call.authorize(Verb::Create)?;
    let waits = call.row.strategy().takes_labels_of_pod_template(&asked);
    default_new(call, &mut asked)?;
    if waits {
        metadata(&mut asked).remove("labels");
    }
    admit_new(call, asked).await
}

/// Whether an object has the namespace and the name that the URL has; a missing namespace is filled in.
pub(crate) fn agrees_with_url(call: &Call, new: &mut Value) -> Result<(), ApiError> {
    set_namespace(call, new)?;
    let (given, name) = (meta(new, "name"), call.name());
    if given.is_empty() {
        return Err(ApiError::nameless(name));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// What came of a try to change an object.
enum Changed {
    /// It is stored.
    Stored(Arc<Event>),
    /// The last finalizer was removed, and the object is deleted. This is what it would have become.
    Deleted(Value),
    /// There is no such object.
    Missing,
    /// It was a dry run, and would have been this.
    Tried(Value),
    /// There was nothing to change.
    Kept(Arc<Object>),
    /// Another writer changed it meanwhile.
    Again,
}

async fn try_change(
    call: &Call,
    part: Part,
    asked: &Asked,
    attempts: &mut Attempts<'_>,
) -> Result<Changed, ApiError> {
    let Some(current) = attempts.begin()? else { return Ok(Changed::Missing) };
    let mut old = presented_value(&call.row, &in_version(&call.row, &current.value).await?)?;
    let (cx, strategy) = (call.context(), call.row.strategy());
    strategy.apply_defaults_to_stored(cx, &mut old);
    let mut new = asked.apply(call, &old)?;
    // SPEC: of a patch owners that come twice are dropped only once it has its managers.
    if call.verb == Verb::Update {
        call.warn(rest::drop_duplicate_owners(&mut new, "").into_iter().collect());
    }
    let revision = current.mod_revision.to_string();
    same_object(call, &old, &mut new, &revision)?;
    part.apply_defaults(call, &old, &mut new)?;
    if !matches!(asked, Asked::Applied(_)) {
        managers::track(call, &old, &mut new);
    }
    let (chain, attributes) = (call.server.admission(), Attributes::of(call, Operation::Update, &old)?);
    chain.mutate(&attributes, &mut new).await?;
    call.warn(rest::drop_duplicate_owners(&mut new, AFTER_ADMISSION).into_iter().collect());
    // Admission makes it no other object.
    same_object(call, &old, &mut new, &revision)?;
    let kept = managers::take(&mut new);
    part.prepare_for_update(call, &old, &mut new)?;
    let mut reserved = match part {
        Part::Main => strategy.allocate(cx, Some(&old), &mut new)?,
        _ => Reservation::none(call.server.allocations()),
    };
    part.count_generation(call, &old, &mut new);
    managers::put(&mut new, kept);
    managers::settle(&old, &mut new);
    part.validate_update(call, &old, &new)?;
    call.warn(part.warnings(call, &old, &new));
    chain.validate(&attributes, &new).await?;
    rest::canonicalize(&call.row, &mut new);
    if attributes.dry_run {
        chain.charge(&attributes, &new)?;
        return dry_run(&call.row, new, &call.called_webhooks).await.map(Changed::Tried);
    }
    // Both carry the resource version of the stored object by now.
    if new == old && is_stored_as(&call.row, &current, &new, &call.called_webhooks).await? {
        return Ok(Changed::Kept(current));
    }
    let stored = (!released(&new)).then_some(&new);
    let charge = || chain.charge(&attributes, &new);
    let done = attempts.commit_reserved(Some(&current), stored, charge, &mut reserved).await?;
    Ok(match done {
        None => Changed::Again,
        Some(event) if event.current().is_some() => Changed::Stored(event),
        Some(_) => Changed::Deleted(new),
    })
}

/// What a client wants an object to become.
enum Asked {
    /// This.
    Whole(Value),
    /// Itself, with changes.
    Patched(Patch),
    /// Itself, with what an applier wants in it.
    Applied(Wanted),
}

impl Asked {
    fn read(call: &Call) -> Result<Self, ApiError> {
        if call.verb != Verb::Update && Wanted::is_asked(call) {
            return Wanted::read(call).map(Self::Applied);
        }
        if call.verb != Verb::Update {
            return Patch::read(&call.head.headers, &call.body, call.server.rules()).map(Self::Patched);
        }
        let mut new = call.to_stored(read(call)?);
        agrees_with_url(call, &mut new)?;
        Ok(Self::Whole(new))
    }

    fn apply(&self, call: &Call, old: &Value) -> Result<Value, ApiError> {
        match self {
            Self::Whole(new) => Ok(new.clone()),
            Self::Applied(wanted) => wanted.apply(call, Some(old)),
            Self::Patched(patch) => {
                let validation = FieldValidation::of(&call.query)?;
                let strictly = validation == FieldValidation::Strict;
                let decoded = patch.apply(call.body_kind(), &call.as_served(old), strictly)?;
                call.warn(validation.judge(call.body_kind(), &decoded)?);
                Ok(call.to_stored(decoded.value))
            }
        }
    }
}

/// Clears the metadata of a new object that the server sets.
fn clear(new: &mut Value) {
    let fields = metadata(new);
    for cleared in [
        "resourceVersion",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "uid",
        "creationTimestamp",
    ] {
        fields.remove(cleared);
    }
}

/// Sets the metadata that the server gives every new object.
pub(crate) fn fill_system_fields(server: &ApiServer, row: &Row, new: &mut Value) {
    let now = moment(server.now());
    set_kind(row, new);
    let fields = metadata(new);
    let prefix = fields.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let named = fields.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !named && !prefix.is_empty() {
        fields.insert("name".into(), json!(generate_name(&prefix, Uuid::new_v4())));
    }
    fields.insert("uid".into(), json!(Uuid::new_v4().to_string()));
    fields.insert("creationTimestamp".into(), json!(now));
}

/// The namespace is the address's; a body that says otherwise is a mistake.
fn set_namespace(call: &Call, new: &mut Value) -> Result<(), ApiError> {
    let given = meta(new, "namespace").to_owned();
    let fields = metadata(new);
    match call.namespace() {
        Some(namespace) if given.is_empty() || given == namespace => {
            fields.insert("namespace".into(), json!(namespace));
            Ok(())
        }
        None => {
            fields.remove("namespace");
            Ok(())
        }
        Some(_) => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Whether the new version is of the same object and of the version that the client saw; and what no client
/// changes stays.
fn same_object(call: &Call, old: &Value, new: &mut Value, revision: &str) -> Result<(), ApiError> {
    let (row, name) = (&call.row, call.name());
    agrees_with_url(call, new)?;
    let (uid, own) = (meta(new, "uid"), meta(old, "uid"));
    // Of a patch, the rules complain about another uid themselves.
    if call.verb == Verb::Update && !uid.is_empty() && uid != own {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(ApiError::conflict(row.group(), row.plural(), name, &why));
    }
    let given = meta(new, "resourceVersion");
    if !given.is_empty() && given.parse::<u64>().is_err() {
        return Err(ApiError::unexplained(format!("strconv.ParseUint: parsing {given:?}: invalid syntax")));
    }
    if matches!(given, "" | "0") && !row.strategy().allow_unconditional_update() {
        let unseen = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(ApiError::invalid(row.group(), row.plural(), name, &[unseen]));
    }
    // A version of zero is any version.
    if !matches!(given, "" | "0") && given != revision {
        return Err(row.modified(name));
    }
    set_kind(row, new);
    let kept = old["metadata"].clone();
    let fields = metadata(new);
    if fields.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        fields.insert("uid".to_owned(), kept["uid"].clone());
    }
    // An update does not change when an object is deleted; validation rejects one that tries.
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = kept.get(field) {
            fields.insert(field.to_owned(), value.clone());
        }
    }
    for field in ["creationTimestamp", "generation", "resourceVersion"] {
        match kept.get(field) {
            Some(value) => fields.insert(field.to_owned(), value.clone()),
            None => fields.remove(field),
        };
    }
    Ok(())
}

/// Whether nothing holds an object any more that was to go.
fn released(object: &Value) -> bool {
    is_deleting(object)
        && finalizers(object).is_empty()
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && object
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .is_none_or(|left| left == 0)
}

/// Makes the objects that every cluster has.
pub(crate) fn make_first_objects(server: &ApiServer) -> Result<(), ApiError> {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
    for name in namespaces {
        make_first(server, ("", "namespaces"), json!({ "metadata": { "name": name } }))?;
    }
    for class in system_classes() {
        make_first(server, ("scheduling.k8s.io", "priorityclasses"), class)?;
    }
    Ok(())
}

/// Makes an object without a namespace, unless it is there.
fn make_first(server: &ApiServer, (group, plural): (&str, &str), mut object: Value) -> Result<(), ApiError> {
    let Some(row) = server.kinds().find(group, plural) else { return Ok(()) };
    let key: Key = row.key(None, meta(&object, "name"))?;
    if server.store().get(&key).is_some() {
        return Ok(());
    }
    fill_system_fields(server, &row, &mut object);
    let cx = server.context(&row);
    row.strategy().apply_defaults(cx, &Value::Null, &mut object)?;
    rest::prepare_for_create(cx, &mut object)?;
    match server.store().write(Write::create(key, encode(&row, &object)?)).wait() {
        Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
        Err(error) => Err(store_failed(&error)),
    }
}
