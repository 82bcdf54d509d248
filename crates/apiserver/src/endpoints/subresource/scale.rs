//! `/scale`: the replicas of an object, of a built-in or a custom kind.

mod columns;

use http::{Response, StatusCode};
use plumb_apischema::schema::Kind;
use plumb_apischema::{Schema, json as body};
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::codec::FieldValidation;
use crate::custom::{self, in_version, is_stored_as, presented_value};
use crate::endpoints::field_managers::{self, ApplyPatch, ScaleFields};
use crate::endpoints::patching::Patch;
use crate::endpoints::response::show_other;
use crate::endpoints::write::{Attempts, check_url};
use crate::endpoints::write_options::WriteOptions;
use crate::error::ApiError;
use crate::kinds::{Row, rest};
use crate::object::meta;
use crate::request::Call;
use crate::response_body::Body;
use crate::url::Verb;
use columns::PRINT_COLUMNS;

fn kind() -> Result<&'static Kind, ApiError> {
    Schema::builtin().kind("autoscaling", "v1", "Scale").ok_or_else(ApiError::no_such_path)
}

/// Responds with the Scale of an object.
pub(super) async fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    let row = &call.scope.row;
    let stored = call.stored()?;
    show(call, &presented_value(row, &in_version(row, &stored.value).await?)?)
}

/// The response with the Scale of an object.
fn show(call: &Call, object: &Value) -> Result<Response<Body>, ApiError> {
    show_other(call, &PRINT_COLUMNS, StatusCode::OK, current_scale(&call.scope.row, object)?)
}

/// Updates or patches the Scale of an object.
pub(super) async fn change(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = WriteOptions::of(call.info.verb, &call.query, call.http.headers())?;
    let mut attempts = Attempts::new(call, call.key()?);
    loop {
        match try_change(call, &options, &mut attempts).await {
            Ok(None) => {}
            Ok(Some(object)) => return attempts.once_durable(show(call, &object)).await,
            Err(error) => return attempts.once_durable(Err(error)).await,
        }
    }
}

/// The object with its new Scale; none after a conflict with another writer.
async fn try_change(
    call: &Call,
    options: &WriteOptions,
    attempts: &mut Attempts<'_>,
) -> Result<Option<Value>, ApiError> {
    let (cx, row, state) = (call.context(), &call.scope.row, &call.state);
    let current = attempts.begin()?.ok_or_else(|| row.not_found(call.info.name()))?;
    let old = presented_value(row, &in_version(row, &current.value).await?)?;
    let fields = ScaleFields::new(cx, kind()?, &options.field_manager);
    let mut old_scale = current_scale(row, &old)?;
    fields.begin(&old, &mut old_scale)?;
    let mut scale = requested(call, options, &fields, &old_scale)?;
    check_url(&call.info, &mut scale)?;
    let given = meta(&scale, "resourceVersion");
    if !given.is_empty() && given != current.mod_revision.to_string() {
        return Err(row.modified(call.info.name()));
    }
    let chain = call.server.admission();
    let attributes = call.attributes(Operation::Update, &old_scale, options.dry_run);
    chain.mutate(&attributes, &mut scale).await?;
    let mut new = old.clone();
    let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
    match row.custom().and_then(|custom| custom.version.scale.as_ref()) {
        Some(paths) => custom::set_replicas(&mut new, paths, replicas),
        None => new["spec"]["replicas"] = replicas,
    }
    fields.end(&scale, &mut new)?;
    field_managers::settle(&old, &mut new);
    rest::count_generation(row, &old, &mut new);
    row.strategy().validate_object_update(cx, &old, &new, &state.warnings)?;
    chain.validate(&attributes, &scale).await?;
    if attributes.dry_run || (new == old && is_stored_as(row, &current, &new, &state.called_webhooks).await?)
    {
        return Ok(Some(new));
    }
    let charge = || chain.charge(&attributes, &scale);
    match attempts.commit(Some(&current), Some(&new), charge).await? {
        None => Ok(None),
        Some(event) => match event.current() {
            Some(object) => {
                let stored = in_version(row, &object.value).await?;
                presented_value(row, &stored).map(Some)
            }
            None => Ok(None),
        },
    }
}

/// The Scale that a client requests.
fn requested(
    call: &Call,
    options: &WriteOptions,
    fields: &ScaleFields<'_>,
    current: &Value,
) -> Result<Value, ApiError> {
    let (http, rules, warnings) = (&call.http, call.cluster().rules(), &call.state.warnings);
    if options.is_apply {
        let patch = ApplyPatch::read(&http.body, &call.query, options, rules)?;
        let applied = fields.apply(&patch, current)?;
        patch.judge(warnings)?;
        let decoded = body::decode_value(Schema::builtin(), kind()?, applied);
        return Ok(decoded.map_err(|error| ApiError::bad_request(error.to_string()))?.value);
    }
    let validation = options.field_validation;
    let mut decoded = if call.info.verb == Verb::Update {
        http.decode(kind()?, rules)?
    } else {
        let patch = Patch::read(http.headers(), &http.body, rules)?;
        if call.scope.row.custom().is_some() {
            patch.check_custom_format()?;
        }
        patch.apply(kind()?, current, validation == FieldValidation::Strict)?
    };
    warnings.extend(validation.judge(kind()?, &decoded)?);
    fields.track(current, &mut decoded.value);
    Ok(decoded.value)
}

/// The Scale of an object. As in any object, empty fields are left out: zero replicas, an empty selector.
fn current_scale(row: &Row, object: &Value) -> Result<Value, ApiError> {
    let scale = match row.custom().and_then(|custom| custom.version.scale.as_ref()) {
        Some(paths) => custom::scale_of(object, paths)?,
        None => scale_of(row, object),
    };
    let decoded = body::decode_value(Schema::builtin(), kind()?, scale);
    Ok(decoded.map_err(|error| ApiError::unexplained(error.to_string()))?.value)
}

/// The Scale of an object of a built-in kind.
fn scale_of(row: &Row, object: &Value) -> Value {
    let selector = row.strategy().scale_selector(object);
    let selector = requirements(&selector["matchLabels"], &selector["matchExpressions"]);
    let replicas = |pointer: &str| object.pointer(pointer).cloned().unwrap_or(json!(0));
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta(object, "name"), "namespace": meta(object, "namespace"), "uid": meta(object, "uid"),
            "resourceVersion": meta(object, "resourceVersion"),
            "creationTimestamp": meta(object, "creationTimestamp"),
        },
        "spec": { "replicas": replicas("/spec/replicas") },
        "status": { "replicas": replicas("/status/replicas"), "selector": selector },
    })
}

/// A label selector as a string, ordered by key: `app=web,tier in (api,db),!canary`.
fn requirements(labels: &Value, expressions: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let mut all: Vec<(&str, String)> = labels
        .filter_map(|(key, value)| Some((key.as_str(), format!("{key}={}", value.as_str()?))))
        .collect();
    for expression in expressions.as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut values: Vec<&str> = values.collect();
        values.sort_unstable();
        let values = values.join(",");
        all.push(match expression["operator"].as_str() {
            Some("In") => (key, format!("{key} in ({values})")),
            Some("NotIn") => (key, format!("{key} notin ({values})")),
            Some("Exists") => (key, key.to_owned()),
            Some("DoesNotExist") => (key, format!("!{key}")),
            _ => continue,
        });
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}
