//! Deleting objects: at once, after a grace period, or once all finalizers are removed.

use bytes::Bytes;
use http::{Response, StatusCode};
use plumb_apischema::Schema;
use plumb_resize::rules::Rules;
use plumb_store::{Key, Object};
use plumb_validation::field::{BadValue, FieldError};
use serde_json::{Value, json};

use crate::admission::{self, Attributes, Operation};
use crate::codec::{answer_value, success};
use crate::custom::{in_version, presented_value};
use crate::endpoints::list_options::ListOptions;
use crate::endpoints::read::{Selection, bring_up_to_date, page, show_page};
use crate::endpoints::response::{show_stored, show_value};
use crate::endpoints::write::Attempts;
use crate::error::ApiError;
use crate::kinds::{Context, GarbageCollectionPolicy, Row, Strategy};
use crate::object::{decode, finalizers, is_deleting, meta, metadata, moment};
use crate::request::{Call, HttpRequest};
use crate::response_body::Body;
use crate::url::Query;

/// The delete options of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    grace: Option<i64>,
    uid: Option<String>,
    revision: Option<String>,
    propagation: Option<String>,
    pub(crate) dry_run: bool,
    /// The `DeleteOptions` as the client sent them.
    body: Value,
}

impl DeleteOptions {
    /// Reads the body of a request, or else its query.
    fn of(http: &HttpRequest, query: &Query, rules: &Rules) -> Result<Self, ApiError> {
        let kind = Schema::builtin().kind("", "v1", "DeleteOptions");
        let body = match kind {
            Some(kind) if !http.body.is_empty() => http.decode(kind, rules)?.value,
            _ => Value::Null,
        };
        let sent = !body.is_null();
        let mut options = Self::read(query, body)?;
        if sent {
            // SPEC: with options in the body, upstream ignores those in the query.
            options.dry_run = is_dry_run(&options.body);
        }
        Ok(options)
    }

    /// Reads a decoded body, or else the query of a request.
    pub(crate) fn read(query: &Query, body: Value) -> Result<Self, ApiError> {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        // The query counts only without a body.
        let in_query = |name: &str| query.get(name).filter(|_| body.is_null()).map(str::to_owned);
        let grace = match body["gracePeriodSeconds"].as_i64() {
            Some(grace) => Some(grace),
            None if !body.is_null() => None,
            None => query.number("gracePeriodSeconds")?.and_then(|seconds| i64::try_from(seconds).ok()),
        };
        let orphan = body["orphanDependents"].as_bool();
        let said = text("/propagationPolicy").or_else(|| in_query("propagationPolicy"));
        check(said.as_deref(), orphan, &body["dryRun"])?;
        let implied = orphan.map(|orphan| if orphan { "Orphan" } else { "Background" }.to_owned());
        let propagation = said.or(implied);
        Ok(Self {
            grace,
            uid: text("/preconditions/uid"),
            revision: text("/preconditions/resourceVersion"),
            propagation,
            dry_run: is_dry_run(&body) || query.dry_run()?,
            body,
        })
    }
}

/// Whether options ask for a dry run.
fn is_dry_run(options: &Value) -> bool {
    options["dryRun"].as_array().is_some_and(|list| !list.is_empty())
}

/// Validates delete options.
fn check(propagation: Option<&str>, orphan: Option<bool>, dry_run: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    if let (Some(policy), Some(_)) = (propagation, orphan) {
        let rule = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid("propagationPolicy", policy, rule));
    }
    let known = ["Foreground", "Background", "Orphan", "nil"];
    if let Some(policy) = propagation.filter(|policy| !known[..3].contains(policy)) {
        errors.push(FieldError::not_supported("propagationPolicy", policy, &known));
    }
    let tries = dry_run.as_array().map_or(&[][..], Vec::as_slice);
    if tries.iter().any(|one| one != "All") {
        let shown = BadValue::Bare(dry_run.to_string());
        errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
}

/// The effect of a deletion on an object.
pub(crate) enum Deletion {
    /// It is removed from the store.
    Removed,
    /// It is terminating: it is removed after its grace period, once its finalizers are removed.
    Terminating(Value),
    /// It was terminating already.
    Unchanged,
}

/// The finalizer of an object whose dependents the garbage collector orphans.
const ORPHAN: &str = "orphan";
/// The finalizer of an object whose blocking dependents the garbage collector deletes first.
const FOREGROUND: &str = "foregroundDeletion";

/// Deletes one object.
pub(crate) async fn delete(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = DeleteOptions::of(&call.http, &call.query, call.cluster().rules())?;
    let (bytes, deleted) = remove(call, &options, call.key()?, call.info.name()).await?;
    if !deleted {
        let cascades = options.body["orphanDependents"] == false;
        let status = if cascades { StatusCode::ACCEPTED } else { StatusCode::OK };
        return show_stored(call, status, &bytes).await;
    }
    let object = decode(&bytes)?;
    let (row, name) = (&call.scope.row, call.info.name());
    let strategy = row.strategy();
    if strategy.returns_deleted_object() {
        let mut object = object;
        if strategy.is_deleted_gracefully() && !is_deleting(&object) {
            set_deletion_timestamp(call.context(), &mut object, 0);
        }
        return show_value(call, StatusCode::OK, object);
    }
    let mut details = json!({ "name": name, "kind": row.plural(), "uid": meta(&object, "uid") });
    if !row.group().is_empty() {
        details["group"] = json!(row.group());
    }
    let mut status = success();
    status["details"] = details;
    Ok(answer_value(StatusCode::OK, &status))
}

/// Deletes the objects that a list with the same options has: all that are selected, or a page of them. The response is
/// that list, with the objects as they were before.
pub(crate) async fn delete_collection(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = DeleteOptions::of(&call.http, &call.query, call.cluster().rules())?;
    let list = ListOptions::of(&call.query)?;
    let selection = Selection::of(&call.scope, &call.query, call.info.name())?;
    bring_up_to_date(call, list.needed_revision()).await?;
    let page = page(call, &list, &selection).await?;
    for object in &page.objects {
        let name = object.key.segments().last().unwrap_or_default();
        match remove(call, &options, object.key.clone(), name).await {
            // Another client deleted it first.
            Err(error) if error.code == StatusCode::NOT_FOUND => {}
            outcome => _ = outcome?,
        }
    }
    show_page(call, &page, &selection).await
}

/// Deletes the object at a key. Returns the object as it is now, or was last, and whether it is removed.
async fn remove(
    call: &Call,
    options: &DeleteOptions,
    key: Key,
    name: &str,
) -> Result<(Bytes, bool), ApiError> {
    let mut attempts = Attempts::new(call, key);
    loop {
        match try_remove(call, options, name, &mut attempts).await {
            Ok(None) => {}
            Ok(Some(removed)) => return attempts.once_durable(Ok(removed)).await,
            Err(_) if attempts.is_outdated().await? => {}
            Err(error) => return attempts.once_durable(Err(error)).await,
        }
    }
}

async fn try_remove(
    call: &Call,
    options: &DeleteOptions,
    name: &str,
    attempts: &mut Attempts<'_>,
) -> Result<Option<(Bytes, bool)>, ApiError> {
    let row = &call.scope.row;
    let current = attempts.begin()?.ok_or_else(|| row.not_found(name))?;
    let old = presented_value(row, &in_version(row, &current.value).await?)?;
    preconditions(row, options, &old, &current)?;
    let (chain, mut nothing) = (call.server.admission(), Value::Null);
    let attributes = Attributes {
        // As upstream, a deletecollection request names no object.
        options: admission::Options::Delete(&options.body),
        ..call.attributes(Operation::Delete, &old, options.dry_run)
    };
    chain.mutate(&attributes, &mut nothing).await?;
    chain.validate(&attributes, &nothing).await?;
    let left = match deletion(call.context(), options, &old) {
        Deletion::Unchanged => return Ok(Some((current.value.clone(), false))),
        Deletion::Terminating(object) if options.dry_run => {
            return Ok(Some((object.to_string().into(), false)));
        }
        Deletion::Removed if options.dry_run => return Ok(Some((current.value.clone(), true))),
        Deletion::Removed => None,
        Deletion::Terminating(object) => Some(object),
    };
    let charge = || chain.charge(&attributes, &nothing);
    let event = attempts.commit(Some(&current), left.as_ref(), charge).await?;
    Ok(event.map(|event| match event.current() {
        Some(object) => (object.value.clone(), false),
        None => (current.value.clone(), true),
    }))
}

/// Decides the effect of a deletion on an object.
pub(crate) fn deletion(cx: Context<'_>, options: &DeleteOptions, old: &Value) -> Deletion {
    // As upstream: while a graceful deletion is pending, another one changes nothing, finalizers neither, unless it
    // shortens the grace period.
    let strategy = cx.row.strategy();
    let Some(grace) = grace(strategy, options, old) else { return Deletion::Unchanged };
    let mut object = old.clone();
    set_dependents_finalizer(strategy, options, &mut object);
    strategy.prepare_for_delete(cx, &mut object);
    let waits = grace > 0 || !finalizers(&object).is_empty() || strategy.has_spec_finalizers(&object);
    if !waits {
        return Deletion::Removed;
    }
    let earlier = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    if !is_deleting(&object) || earlier.is_some_and(|earlier| grace < earlier) {
        set_deletion_timestamp(cx, &mut object, grace);
    }
    strategy.set_terminating(&mut object);
    if object == *old { Deletion::Unchanged } else { Deletion::Terminating(object) }
}

/// Sets the deletion timestamp and grace period of an object, or shortens them.
fn set_deletion_timestamp(cx: Context<'_>, object: &mut Value, mut grace: i64) {
    let now = cx.now();
    let earlier = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let was_to_go = meta(object, "deletionTimestamp").parse::<jiff::Timestamp>().ok();
    let began = was_to_go.map_or(Some(now), |at| at.checked_sub(seconds(earlier.unwrap_or_default())).ok());
    // A timestamp beyond the largest one is the largest one.
    let mut at =
        began.and_then(|began| began.checked_add(seconds(grace)).ok()).unwrap_or(jiff::Timestamp::MAX);
    if at < now {
        // An expired grace period does not remove the object: the component that terminates it does.
        (at, grace) = (now, grace.min(1));
    }
    let fields = metadata(object);
    fields.insert("deletionTimestamp".into(), json!(moment(at)));
    if cx.row.strategy().sets_deletion_grace_period() {
        fields.insert("deletionGracePeriodSeconds".into(), json!(grace));
    }
    let generation = fields.get("generation").and_then(Value::as_i64).filter(|_| was_to_go.is_none());
    if let Some(generation) = generation {
        fields.insert("generation".into(), json!(generation.saturating_add(1)));
    }
}

fn seconds(seconds: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(seconds)
}

/// The grace period of a deletion; none if a graceful one is pending already and ends no later.
fn grace(strategy: &dyn Strategy, options: &DeleteOptions, object: &Value) -> Option<i64> {
    if strategy.is_deleted_gracefully() { strategy.grace_period(options.grace, object) } else { Some(0) }
}

/// Adds or removes the finalizers `orphan` and `foregroundDeletion`, as the propagation policy says.
fn set_dependents_finalizer(strategy: &dyn Strategy, options: &DeleteOptions, object: &mut Value) {
    let held = finalizers(object);
    let is_held = |finalizer: &str| held.contains(&finalizer);
    let policy = strategy.default_garbage_collection_policy();
    let wanted = match options.propagation.as_deref() {
        _ if policy == GarbageCollectionPolicy::Unsupported => None,
        Some("Orphan") => Some(ORPHAN),
        Some("Foreground") => Some(FOREGROUND),
        Some(_) => None,
        None if is_held(ORPHAN) => Some(ORPHAN),
        None if is_held(FOREGROUND) => Some(FOREGROUND),
        None => (policy == GarbageCollectionPolicy::OrphanDependents).then_some(ORPHAN),
    };
    let is_so =
        is_held(ORPHAN) == (wanted == Some(ORPHAN)) && is_held(FOREGROUND) == (wanted == Some(FOREGROUND));
    if is_so {
        return;
    }
    let others = held.iter().filter(|one| ![ORPHAN, FOREGROUND].contains(one)).map(|one| json!(one));
    let list: Vec<Value> = others.chain(wanted.map(|finalizer| json!(finalizer))).collect();
    if list.is_empty() {
        metadata(object).remove("finalizers");
    } else {
        metadata(object).insert("finalizers".into(), json!(list));
    }
}

/// Rejects a deletion whose preconditions on uid and resource version fail.
pub(crate) fn preconditions(
    row: &Row,
    options: &DeleteOptions,
    object: &Value,
    stored: &Object,
) -> Result<(), ApiError> {
    let refuse = |what: &str, wanted: &str, found: &str| {
        let become_of = if what == "UID" { "deleted and then recreated" } else { "modified" };
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
             The object might have been {become_of}"
        );
        // SPEC: upstream names the kind here, and not the resource.
        Err(ApiError::conflict(row.group(), row.kind(), meta(object, "name"), &why))
    };
    let found = meta(object, "uid");
    if let Some(wanted) = options.uid.as_deref().filter(|uid| *uid != found) {
        return refuse("UID", wanted, found);
    }
    let found = stored.mod_revision.to_string();
    if let Some(wanted) = options.revision.as_deref().filter(|revision| *revision != found) {
        return refuse("ResourceVersion", wanted, &found);
    }
    Ok(())
}
