//! `managedFields`: every write updates them, and server-side apply reads them.
//!
//! The rules are those of [`plumb_apischema::apply`]; this module supplies the field manager, the subresource of a write, and the
//! fields that a write to that subresource resets.

mod apply_patch;

use std::borrow::Cow;

use http::header::USER_AGENT;
use plumb_apischema::Schema;
use plumb_apischema::apply::{
    self, CustomVersions, Ignored, ManagersError, OneVersion, Replicas, Scale, Tracker, Type, Types, Versions,
};
use plumb_apischema::schema::Kind;
use plumb_validation::field::{BadValue, FieldError};
use serde_json::{Map, Value};

pub(crate) use apply_patch::ApplyPatch;

use crate::call::Call;
use crate::error::ApiError;
use crate::kinds::{Form, Row, rest};
use crate::object::moment;
use crate::target::{Query, Verb};

/// The longest name of a field manager.
const LONGEST_NAME: usize = 128;

/// The fields that a write to a subresource resets, so that its field manager does not own them.
fn reset_fields(row: &Row, subresource: &str) -> Ignored {
    let strategy = row.strategy();
    let fields = match subresource {
        "" => strategy.reset_fields(row),
        "status" => strategy.status_reset_fields(),
        name => match strategy.subresource(name) {
            Some(subresource) => subresource.reset_fields(),
            None => &[],
        },
    };
    Ignored::fields(fields)
}

/// The versions of a built-in kind, for a request in one of them.
struct BuiltinVersions<'c> {
    call: &'c Call,
    /// The version of the request, and the stored one.
    kinds: (&'static Kind, &'static Kind),
    api_version: String,
    ignored: &'c Ignored,
}

impl Versions for BuiltinVersions<'_> {
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)> {
        let (own, stored) = self.kinds;
        let is_own = object.get("apiVersion").is_none_or(|version| *version == *self.api_version);
        if api_version == self.api_version {
            let object = if is_own { Cow::Borrowed(object) } else { self.call.to_served_version(object) };
            return Some((Types::of_kind(own), object));
        }
        let served = self.call.served.as_ref().filter(|_| api_version == self.call.row.api_version())?;
        let object = if is_own {
            Cow::Owned(served.store(&self.call.row, object.clone()))
        } else {
            Cow::Borrowed(object)
        };
        Some((Types::of_kind(stored), object))
    }

    fn ignored(&self, _: &str) -> &Ignored {
        self.ignored
    }

    fn empty(&self) -> Value {
        apply::empty(Schema::builtin(), self.kinds.0)
    }
}

/// Calls a function with the tracker of the subresource of a request, in the version of the request.
fn with_tracker<T>(call: &Call, work: impl FnOnce(&Tracker<'_>) -> T) -> T {
    let row = call.body_kind();
    let (api_version, now) = (row.api_version(), moment(call.cluster().now()));
    let subresource = call.target.subresource.as_deref().unwrap_or_default();
    let ignored = &reset_fields(&call.row, subresource);
    let work = |versions: &dyn Versions| {
        work(&Tracker { versions, api_version: &api_version, kind: row.kind(), subresource, now: &now })
    };
    match (&row.body, &call.row.body) {
        (Form::Builtin(own), Form::Builtin(stored)) => work(&BuiltinVersions {
            call,
            kinds: (own.kind, stored.kind),
            api_version: api_version.clone(),
            ignored,
        }),
        (Form::Custom(custom), _) | (_, Form::Custom(custom)) => work(&CustomVersions {
            kind: row.kind(),
            api_version: &api_version,
            types: &custom.types,
            ignored,
            ignored_in_all: subresource == "status",
        }),
    }
}

/// Sets the managed fields of a new object.
pub(crate) fn track_new(call: &Call, new: &mut Value) {
    in_served_version(call, new, |new| with_tracker(call, |tracker| tracker.create(new, &manager(call))));
}

/// Updates the managed fields of an object that is written.
pub(crate) fn track(call: &Call, old: &Value, new: &mut Value) {
    let old = call.to_served_version(old);
    in_served_version(call, new, |new| {
        with_tracker(call, |tracker| tracker.update(&old, new, &manager(call)));
    });
}

/// Updates the managed fields of an object in the version of a request.
fn in_served_version(call: &Call, object: &mut Value, work: impl FnOnce(&mut Value)) {
    if call.served.is_none() && rest::is_canonical(&call.row, object) {
        return work(object);
    }
    let mut served = call.to_served_version(object).into_owned();
    // An empty field has no manager.
    rest::canonicalize(call.body_kind(), &mut served);
    work(&mut served);
    put(object, take(&mut served));
}

/// The managed fields of an object's Scale, which are those of its field for replicas.
pub(crate) struct Scaling<'c> {
    call: &'c Call,
    kind: &'c Kind,
    api_version: String,
}

/// The path of the replicas of a kind.
#[derive(Debug)]
struct ReplicasPath<'a> {
    row: &'a Row,
    api_version: &'a str,
}

impl Replicas for ReplicasPath<'_> {
    fn path(&self, api_version: &str) -> Option<Vec<&str>> {
        let Some(custom) = self.row.custom() else {
            return (api_version == self.api_version).then(|| vec!["spec", "replicas"]);
        };
        let (_, path) = custom.replicas.iter().find(|(version, _)| version == api_version)?;
        Some(path.iter().map(String::as_str).collect())
    }
}

impl<'c> Scaling<'c> {
    /// The tracker of Scales.
    pub(crate) fn new(call: &'c Call, kind: &'c Kind) -> Self {
        Self { call, kind, api_version: call.row.api_version() }
    }

    /// Sets the managed fields of a Scale.
    pub(crate) fn begin(&self, object: &Value, scale: &mut Value) -> Result<(), ApiError> {
        let replicas = ReplicasPath { row: &self.call.row, api_version: &self.api_version };
        let handler = Scale { api_version: &self.api_version, replicas: &replicas };
        put(scale, handler.down(object.pointer("/metadata/managedFields")).map_err(unreadable)?);
        Ok(())
    }

    /// Updates the managed fields of a Scale that is written.
    pub(crate) fn track(&self, old: &Value, new: &mut Value) {
        self.with_tracker(|tracker| tracker.update(old, new, &manager(self.call)));
    }

    /// Applies a configuration to a Scale.
    pub(crate) fn apply(&self, patch: &ApplyPatch, old: &Value) -> Result<Value, ApiError> {
        self.with_tracker(|tracker| patch.decide(tracker, Some(old)))
    }

    /// Updates the managed fields of the object after a write to its Scale.
    pub(crate) fn end(&self, scale: &Value, object: &mut Value) -> Result<(), ApiError> {
        let replicas = ReplicasPath { row: &self.call.row, api_version: &self.api_version };
        let handler = Scale { api_version: &self.api_version, replicas: &replicas };
        let known = take(object);
        let scaled = scale.pointer("/metadata/managedFields");
        put(object, handler.up(known.as_ref(), scaled).map_err(unreadable)?);
        Ok(())
    }

    fn with_tracker<T>(&self, work: impl FnOnce(&Tracker<'_>) -> T) -> T {
        let now = moment(self.call.cluster().now());
        let api_version = "autoscaling/v1";
        let versions = OneVersion { kind: self.kind, api_version, ignored: &Ignored::Nothing };
        work(&Tracker { versions: &versions, api_version, kind: "Scale", subresource: "scale", now: &now })
    }
}

fn unreadable(error: ManagersError) -> ApiError {
    ApiError::failed(error.to_string())
}

/// The field manager of a request: the parameter `fieldManager`, else the name in its user agent.
fn manager(call: &Call) -> String {
    match call.query.get("fieldManager") {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => {
            let agent = call.head.headers.get(USER_AGENT);
            let agent = agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()));
            named_after(agent.as_deref().unwrap_or_default())
        }
    }
}

/// The user agent up to its first slash, without unprintable characters, and cut to the longest name.
fn named_after(agent: &str) -> String {
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|letter| is_printed(*letter)) {
        if name.len() + letter.len_utf8() > LONGEST_NAME {
            break;
        }
        name.push(letter);
    }
    name
}

/// Whether a character is printable; of white space, only the plain space.
fn is_printed(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace() || letter == '\u{fffd}')
}

/// Validates the parameters of a write.
pub(crate) fn check_options(verb: Verb, query: &Query, applies: bool) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let name = query.get("fieldManager").unwrap_or_default();
    if applies && name.is_empty() {
        errors.push(FieldError::required("fieldManager", "is required for apply patch"));
    }
    if !applies && verb == Verb::Patch && query.get("force").is_some() {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if name.len() > LONGEST_NAME {
        errors.push(FieldError::too_long("fieldManager", LONGEST_NAME));
    }
    for (place, letter) in name.char_indices().filter(|(_, letter)| !is_printed(*letter)) {
        let why = format!("invalid character U+{:04X} (at position {place})", u32::from(letter));
        errors.push(FieldError::invalid("fieldManager", name, why));
    }
    if let Some(dry_run) = query.get("dryRun").filter(|value| *value != "All") {
        errors.push(FieldError::not_supported("dryRun", BadValue::Bare(format!("[{dry_run:?}]")), &["All"]));
    }
    if let Some(validation) = query.get("fieldValidation") {
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&validation) {
            errors.push(FieldError::not_supported("fieldValidation", validation, &known));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = match verb {
        Verb::Create => "CreateOptions",
        Verb::Patch => "PatchOptions",
        _ => "UpdateOptions",
    };
    Err(ApiError::invalid("meta.k8s.io", kind, "", &errors))
}

/// Removes the managed fields of an object while it is prepared for the store.
pub(crate) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Restores the managed fields.
pub(crate) fn put(object: &mut Value, managers: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match managers {
        Some(managers) => metadata.insert("managedFields".to_owned(), managers),
        None => metadata.remove("managedFields"),
    };
}

/// Restores the timestamps of the managed fields if nothing else has changed: a write without changes is not stored.
pub(crate) fn settle(old: &Value, new: &mut Value) {
    if !differs_in_moments_only(old, new) {
        return;
    }
    if let Some(managers) = old.pointer("/metadata/managedFields") {
        put(new, Some(managers.clone()));
    }
}

fn differs_in_moments_only(old: &Value, new: &Value) -> bool {
    let (Some(was), Some(is)) = (managers_of(old), managers_of(new)) else { return false };
    if was.is_empty() || was.len() != is.len() || was == is {
        return false;
    }
    was.iter().zip(is).all(|(was, is)| same_but(was, is, "time", |_, _| true))
        && same_but(old, new, "metadata", |was, is| same_but(was, is, "managedFields", |_, _| true))
}

fn managers_of(object: &Value) -> Option<&[Value]> {
    object.get("metadata")?.get("managedFields")?.as_array().map(Vec::as_slice)
}

/// Whether two objects are equal in all fields but one, for which a function decides.
fn same_but(one: &Value, other: &Value, field: &str, judge: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let counted = |object: &Map<String, Value>| object.len() - usize::from(object.contains_key(field));
    counted(one) == counted(other)
        && one.iter().all(|(name, value)| match other.get(name) {
            Some(other) if name == field => judge(value, other),
            Some(other) => value == other,
            None => name == field,
        })
}
