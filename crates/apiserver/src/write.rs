//! Writing objects: new ones, other versions of them, and changes.
//!
//! A write is a pure decision over the object as it stands, carried out by the store if nobody came between;
//! if somebody did, it is decided again. So two patches of one object never lose each other's work.

mod part;

use http::{Response, StatusCode};
use parking_lot::Mutex;
use plumb_store::{Attributes, Edit, Key, Object, UpdateError, Updated, Write, WriteError};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

pub(crate) use part::Part;

use crate::error::{ApiError, Cause};
use crate::exchange::{Body, FieldValidation, answer_value, object, warn};
use crate::kinds::Row;
use crate::object::{decode, encode, finalizers, is_deleting, meta, metadata, moment};
use crate::patching::Patch;
use crate::read::show;
use crate::server::{ApiServer, Call};
use crate::strategy;
use crate::target::Verb;

/// Stores a new object.
pub(crate) async fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    let decoded = object(&call.head.headers, &call.body, call.row.body, call.server.rules())?;
    let warnings = FieldValidation::of(&call.query)?.judge(call.row.body, &decoded.strict)?;
    let mut new = decoded.value;
    set_namespace(call, &mut new)?;
    let dry_run = call.query.dry_run()?;
    let server = &call.server;
    begin(server, &call.row, &mut new);
    strategy::prepare_create(&call.row, &mut new, server)?;
    strategy::validate_create(&call.row, &new, server)?;
    if let Some(namespace) = call.namespace() {
        accepts_new(server, namespace, &call.row, meta(&new, "name"))?;
    }
    let name = meta(&new, "name").to_owned();
    let key = call.row.key(call.namespace(), &name)?;
    let exists = || ApiError::already_exists(call.row.group(), call.row.plural(), &name);
    let mut response = if dry_run {
        if server.store().get(&key).is_some() {
            return Err(exists());
        }
        answer_value(StatusCode::CREATED, &new)
    } else {
        let write = Write::create(key, encode(&call.row, &new)?).attributes(attributes(&call.row, &new));
        let event = server.store().write(write).await.map_err(|error| match error {
            WriteError::Conflict(_) => exists(),
            other => store_failed(&other),
        })?;
        let stored = event.current().ok_or_else(|| ApiError::internal("a create stored nothing"))?;
        show(call, StatusCode::CREATED, &stored.value)?
    };
    warn(&mut response, &warnings);
    Ok(response)
}

/// Stores another version of an object, or of a part of it.
pub(crate) async fn change(call: &Call, part: Part) -> Result<Response<Body>, ApiError> {
    let validation = FieldValidation::of(&call.query)?;
    let warnings = Mutex::new(Vec::new());
    let asked = Asked::read(call, validation, &warnings)?;
    let key = call.row.key(call.namespace(), call.name())?;
    let decide = |current: Option<&Arc<Object>>| -> Result<Option<(Value, Edit)>, ApiError> {
        let current = current.ok_or_else(|| call.row.not_found(call.name()))?;
        let old = decode(&current.value)?;
        let mut new = asked.apply(call, &old, validation, &warnings)?;
        let revision = current.mod_revision.to_string();
        same_object(call, &old, &mut new, &revision)?;
        part.prepare_update(call, &old, &mut new)?;
        part.validate_update(call, &old, &new)?;
        // Both carry the resource version of the stored object by now.
        if new == old {
            return Ok(None);
        }
        if released(&new) {
            return Ok(Some((new, Edit::Delete)));
        }
        let edit = Edit::Put { value: encode(&call.row, &new)?, attributes: attributes(&call.row, &new) };
        Ok(Some((new, edit)))
    };
    let store = call.server.store();
    let mut response = if call.query.dry_run()? {
        let current = store.get(&key);
        match decide(current.as_ref())? {
            Some((new, _)) => answer_value(StatusCode::OK, &new),
            None => {
                show(call, StatusCode::OK, &current.ok_or_else(|| call.row.not_found(call.name()))?.value)?
            }
        }
    } else {
        let edit =
            |current: Option<&Arc<Object>>| decide(current).map(|decided| decided.map(|(_, edit)| edit));
        let bytes = match store.update(&key, edit).await {
            Ok(Updated::Changed(event)) => {
                let shown = event.current().or_else(|| event.previous());
                shown.map(|object| object.value.clone())
            }
            Ok(Updated::Kept(current)) => current.map(|object| object.value.clone()),
            Err(UpdateError::Refused(error)) => return Err(error),
            Err(UpdateError::Write(WriteError::Conflict(_))) => return Err(call.row.modified(call.name())),
            Err(UpdateError::Write(error)) => return Err(store_failed(&error)),
        };
        show(call, StatusCode::OK, &bytes.ok_or_else(|| call.row.not_found(call.name()))?)?
    };
    let warnings = warnings.into_inner();
    warn(&mut response, &warnings);
    Ok(response)
}

/// What a client wants an object to become.
enum Asked {
    /// This.
    Whole(Value),
    /// Itself, with changes.
    Patched(Patch),
}

impl Asked {
    fn read(
        call: &Call,
        validation: FieldValidation,
        warnings: &Mutex<Vec<String>>,
    ) -> Result<Self, ApiError> {
        if call.verb != Verb::Update {
            return Patch::read(&call.head.headers, &call.body, call.server.rules()).map(Self::Patched);
        }
        let decoded = object(&call.head.headers, &call.body, call.row.body, call.server.rules())?;
        *warnings.lock() = validation.judge(call.row.body, &decoded.strict)?;
        Ok(Self::Whole(decoded.value))
    }

    fn apply(
        &self,
        call: &Call,
        old: &Value,
        validation: FieldValidation,
        warnings: &Mutex<Vec<String>>,
    ) -> Result<Value, ApiError> {
        match self {
            Self::Whole(new) => Ok(new.clone()),
            Self::Patched(patch) => {
                let decoded = patch.apply(call.row.body, old)?;
                *warnings.lock() = validation.judge(call.row.body, &decoded.strict)?;
                Ok(decoded.value)
            }
        }
    }
}

/// What every new object gets.
fn begin(server: &ApiServer, row: &Row, new: &mut Value) {
    let now = moment(server.now());
    new["kind"] = json!(row.kind());
    new["apiVersion"] = json!(row.api_version());
    let fields = metadata(new);
    for cleared in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        fields.remove(cleared);
    }
    let prefix = fields.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let named = fields.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !named && !prefix.is_empty() {
        fields.insert("name".into(), json!(generate_name(&prefix)));
    }
    fields.insert("uid".into(), json!(Uuid::new_v4().to_string()));
    fields.insert("creationTimestamp".into(), json!(now));
}

/// A name that nobody has, as likely as not, after a prefix: five letters that make no words.
fn generate_name(prefix: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_PREFIX: usize = 63 - 5;
    let random = Uuid::new_v4();
    let suffix =
        random.as_bytes()[..5].iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    prefix.chars().take(LONGEST_PREFIX).chain(suffix).collect()
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

/// A namespace takes new objects if it exists and is not on its way out.
fn accepts_new(server: &ApiServer, namespace: &str, row: &Row, name: &str) -> Result<(), ApiError> {
    let missing = || ApiError::not_found("", "namespaces", namespace);
    let namespaces = server.kinds().find("", "namespaces").ok_or_else(missing)?;
    let object = server.store().get(&namespaces.key(None, namespace)?).ok_or_else(missing)?;
    let object = decode(&object.value)?;
    if object["status"]["phase"] != "Terminating" && !is_deleting(&object) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    };
    Err(ApiError::forbidden(row.group(), row.plural(), name, &why).because(cause))
}

/// Whether the new version is of the same object and of the version that the client saw; and what no client
/// changes stays.
fn same_object(call: &Call, old: &Value, new: &mut Value, revision: &str) -> Result<(), ApiError> {
    let (row, name) = (&call.row, call.name());
    let given = meta(new, "resourceVersion");
    if !given.is_empty() && given != revision {
        return Err(row.modified(name));
    }
    let (uid, own) = (meta(new, "uid"), meta(old, "uid"));
    if !uid.is_empty() && uid != own {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(ApiError::conflict(row.group(), row.plural(), name, &why));
    }
    let given = meta(new, "name");
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    set_namespace(call, new)?;
    new["kind"] = json!(row.kind());
    new["apiVersion"] = json!(row.api_version());
    let kept = old["metadata"].clone();
    let fields = metadata(new);
    for field in [
        "name",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ] {
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

/// What watchers of a kind are indexed by.
pub(crate) fn attributes(row: &Row, object: &Value) -> Attributes {
    let node = object.pointer("/spec/nodeName").and_then(Value::as_str);
    match node {
        Some(node) if row.group().is_empty() && row.kind() == "Pod" => Attributes::one("spec.nodeName", node),
        _ => Attributes::none(),
    }
}

/// The refusal of a write that the store could not take.
pub(crate) fn store_failed(error: &WriteError) -> ApiError {
    match error {
        WriteError::ReadOnly { .. } | WriteError::Full { .. } => ApiError::unavailable(error.to_string()),
        other => ApiError::internal(other.to_string()),
    }
}

/// Makes the namespaces that every cluster has.
pub(crate) fn make_first_namespaces(server: &ApiServer) -> Result<(), ApiError> {
    let Some(row) = server.kinds().find("", "namespaces") else { return Ok(()) };
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let key: Key = row.key(None, name)?;
        if server.store().get(&key).is_some() {
            continue;
        }
        let mut namespace = json!({ "metadata": { "name": name } });
        begin(server, &row, &mut namespace);
        strategy::prepare_create(&row, &mut namespace, server)?;
        let write = Write::create(key, encode(&row, &namespace)?);
        match server.store().write(write).wait() {
            Ok(_) | Err(WriteError::Conflict(_)) => {}
            Err(error) => return Err(store_failed(&error)),
        }
    }
    Ok(())
}
