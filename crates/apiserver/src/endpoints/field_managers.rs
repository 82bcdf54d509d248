//! `managedFields`: every write updates them, and server-side apply reads them.
//!
//! The rules are those of [`plumb_apischema::apply`]; this module supplies the field manager, the subresource of a write, and the
//! fields that a write to that subresource resets.

mod apply_patch;

use std::borrow::Cow;

use plumb_apischema::Schema;
use plumb_apischema::apply::{
    self, CustomVersions, Ignored, ManagersError, OneVersion, Replicas, Scale, Tracker, Type, Types, Versions,
};
use plumb_apischema::schema::Kind;
use serde_json::{Map, Value};

pub(crate) use apply_patch::ApplyPatch;

use crate::endpoints::write_options::WriteOptions;
use crate::error::ApiError;
use crate::kinds::{Context, Form, Row, rest};
use crate::object::moment;
use crate::request::{Call, RequestScope};

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
struct BuiltinVersions<'a> {
    scope: &'a RequestScope,
    /// The version of the request, and the stored one.
    kinds: (&'static Kind, &'static Kind),
    api_version: String,
    ignored: &'a Ignored,
}

impl Versions for BuiltinVersions<'_> {
    fn in_version<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<(Type<'v>, Cow<'v, Value>)> {
        let (own, stored) = self.kinds;
        let is_own = object.get("apiVersion").is_none_or(|version| *version == *self.api_version);
        if api_version == self.api_version {
            let object = if is_own { Cow::Borrowed(object) } else { self.scope.to_served_version(object) };
            return Some((Types::for_kind(own), object));
        }
        let row = &self.scope.row;
        let served = self.scope.served.as_ref().filter(|_| api_version == row.api_version())?;
        let object =
            if is_own { Cow::Owned(served.store(row, object.clone())) } else { Cow::Borrowed(object) };
        Some((Types::for_kind(stored), object))
    }

    fn ignored(&self, _: &str) -> &Ignored {
        self.ignored
    }

    fn empty(&self) -> Value {
        apply::empty(Schema::builtin(), self.kinds.0)
    }
}

/// Updates the managed fields of the object that a request writes, as upstream's `FieldManager`.
pub(crate) struct FieldManager<'a> {
    cx: Context<'a>,
    scope: &'a RequestScope,
    subresource: &'a str,
    /// The name of the field manager.
    name: &'a str,
}

impl<'a> FieldManager<'a> {
    /// The field manager of a request.
    pub(crate) fn of(call: &'a Call, options: &'a WriteOptions) -> Self {
        Self {
            cx: call.context(),
            scope: &call.scope,
            subresource: call.info.subresource(),
            name: &options.field_manager,
        }
    }

    /// Sets the managed fields of a new object.
    pub(crate) fn track_new(&self, new: &mut Value) {
        self.in_served_version(new, |new| self.with_tracker(|tracker| tracker.create(new, self.name)));
    }

    /// Updates the managed fields of an object that is written.
    pub(crate) fn track(&self, old: &Value, new: &mut Value) {
        let old = self.scope.to_served_version(old);
        self.in_served_version(new, |new| {
            self.with_tracker(|tracker| tracker.update(&old, new, self.name));
        });
    }

    /// Applies a configuration to a stored object, or to none. The result is in the version of the request, and has no
    /// defaults yet.
    fn apply(&self, patch: &ApplyPatch, live: Option<&Value>) -> Result<Value, ApiError> {
        let live = live.map(|live| self.scope.to_served_version(live));
        self.with_tracker(|tracker| patch.decide(tracker, live.as_deref()))
    }

    /// Calls a function with the tracker of the subresource of a request, in the version of the request.
    fn with_tracker<T>(&self, work: impl FnOnce(&Tracker<'_>) -> T) -> T {
        let Self { cx, scope, subresource, .. } = *self;
        let row = scope.request_row();
        let (api_version, now) = (row.api_version(), moment(cx.now()));
        let ignored = &reset_fields(&scope.row, subresource);
        let work = |versions: &dyn Versions| {
            work(&Tracker { versions, api_version: &api_version, kind: row.kind(), subresource, now: &now })
        };
        match (&row.body, &scope.row.body) {
            (Form::Builtin(own), Form::Builtin(stored)) => work(&BuiltinVersions {
                scope,
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

    /// Updates the managed fields of an object in the version of the request.
    fn in_served_version(&self, object: &mut Value, work: impl FnOnce(&mut Value)) {
        let scope = self.scope;
        if scope.served.is_none() && rest::is_canonical(&scope.row, object) {
            return work(object);
        }
        let mut served = scope.to_served_version(object).into_owned();
        // An empty field has no manager.
        rest::canonicalize(scope.request_row(), &mut served);
        work(&mut served);
        put(object, take(&mut served));
    }
}

/// The managed fields of an object's Scale, which are those of its field for replicas.
pub(crate) struct ScaleFields<'a> {
    cx: Context<'a>,
    kind: &'a Kind,
    api_version: String,
    /// The name of the field manager.
    manager: &'a str,
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

impl<'a> ScaleFields<'a> {
    /// The managed fields of Scales, of which this is the kind.
    pub(crate) fn new(cx: Context<'a>, kind: &'a Kind, manager: &'a str) -> Self {
        Self { cx, kind, api_version: cx.row.api_version(), manager }
    }

    /// Sets the managed fields of a Scale.
    pub(crate) fn begin(&self, object: &Value, scale: &mut Value) -> Result<(), ApiError> {
        let replicas = ReplicasPath { row: self.cx.row, api_version: &self.api_version };
        let handler = Scale { api_version: &self.api_version, replicas: &replicas };
        put(scale, handler.down(object.pointer("/metadata/managedFields")).map_err(unreadable)?);
        Ok(())
    }

    /// Updates the managed fields of a Scale that is written.
    pub(crate) fn track(&self, old: &Value, new: &mut Value) {
        self.with_tracker(|tracker| tracker.update(old, new, self.manager));
    }

    /// Applies a configuration to a Scale.
    pub(crate) fn apply(&self, patch: &ApplyPatch, old: &Value) -> Result<Value, ApiError> {
        self.with_tracker(|tracker| patch.decide(tracker, Some(old)))
    }

    /// Updates the managed fields of the object after a write to its Scale.
    pub(crate) fn end(&self, scale: &Value, object: &mut Value) -> Result<(), ApiError> {
        let replicas = ReplicasPath { row: self.cx.row, api_version: &self.api_version };
        let handler = Scale { api_version: &self.api_version, replicas: &replicas };
        let known = take(object);
        let scaled = scale.pointer("/metadata/managedFields");
        put(object, handler.up(known.as_ref(), scaled).map_err(unreadable)?);
        Ok(())
    }

    fn with_tracker<T>(&self, work: impl FnOnce(&Tracker<'_>) -> T) -> T {
        let now = moment(self.cx.now());
        let api_version = "autoscaling/v1";
        let versions = OneVersion { kind: self.kind, api_version, ignored: &Ignored::Nothing };
        work(&Tracker { versions: &versions, api_version, kind: "Scale", subresource: "scale", now: &now })
    }
}

fn unreadable(error: ManagersError) -> ApiError {
    ApiError::failed(error.to_string())
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
