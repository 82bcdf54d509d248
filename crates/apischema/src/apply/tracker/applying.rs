use std::borrow::Cow;

use serde_json::Value;

use super::{Tracker, managed, put_managed, take_managed, unmanaged};
use crate::apply::conflict::{self, Conflict, annotation};
use crate::apply::managers::{Manager, Managers, Operation};
use crate::apply::set::FieldSet;
use crate::apply::types::Type;
use crate::apply::value::equal;
use crate::apply::walk::{TypeErrors, collect, compare, merge, validate};
use crate::patch::go_format::go_type;

/// The manager that migrates from client-side to server-side apply.
const KUBECTL: &str = "kubectl";
/// The annotation in which client-side apply stores the last applied configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of the fields that existed before the first apply.
const BEFORE: &str = "before-first-apply";
/// The maximum total size of annotations, as `TotalAnnotationSizeLimitB`.
const ANNOTATIONS: usize = 256 << 10;

/// Why an object could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The apply conflicts with other managers.
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// The object does not match its type, or cannot be merged.
    #[error("{0}")]
    Failed(String),
}

impl Tracker<'_> {
    /// Merges an applied configuration into an object, prunes fields that the manager no longer applies, and records
    /// the fields of the manager. A different value for a field of another manager is a conflict unless `force` is set.
    ///
    /// Returns the object with `managedFields`, before defaulting of the applied fields.
    pub fn apply(
        &self,
        live: &Value,
        wanted: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let known = Managers::read(managed(live))
            .map_err(|error| ApplyError::Failed(format!("failed to decode managed fields: {error}")))?;
        let api_version = text(wanted, "apiVersion");
        let kind = text(wanted, "kind");
        if (api_version, kind) != (self.api_version, self.kind) {
            // Upstream displays neither version nor kind if the API version has more than two parts.
            let ((group, version), kind) = match api_version.matches('/').count() {
                0 | 1 => (split(api_version), kind),
                _ => (("", ""), ""),
            };
            let why = format!("invalid object type: {group}/{version}, Kind={kind}");
            return Err(ApplyError::BadRequest(why));
        }
        if managed(wanted).is_some_and(|list| !list.is_null()) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        let mut bare = live.clone();
        take_managed(&mut bare);
        let empty = if known.0.is_empty() { self.versions.empty() } else { Value::Null };
        let known = self.before_first(&empty, &bare, known)?;
        let mut answer = self.applied(&bare, wanted, known.clone(), manager, force);
        // `kubectl apply --server-side` takes over the fields of an earlier client-side apply without a conflict.
        if manager == KUBECTL
            && let Err(ApplyError::Conflicts(conflicts)) = &answer
            && let Some(last_applied) = self.last_applied(&bare)
        {
            let others: Vec<Conflict> =
                conflicts.iter().filter(|conflict| !last_applied.has(&conflict.path)).cloned().collect();
            answer = if others.is_empty() {
                self.applied(&bare, wanted, known, manager, true)
            } else {
                Err(ApplyError::Conflicts(others))
            };
        }
        let mut object = answer?;
        if manager == KUBECTL && !annotation(&object, LAST_APPLIED).is_empty() {
            remember(&mut object, wanted);
        }
        Ok(object)
    }

    /// Adds the manager `before-first-apply`, which owns all fields, to an object without managers.
    fn before_first<'a>(
        &'a self,
        empty: &'a Value,
        live: &'a Value,
        managers: Managers<'a>,
    ) -> Result<Managers<'a>, ApplyError> {
        if !managers.0.is_empty() {
            return Ok(managers);
        }
        let Some((ty, _)) = self.versions.in_version(live, self.api_version) else { return Ok(managers) };
        self.tracked(ty, empty, live, managers, BEFORE).map_err(|errors| {
            ApplyError::Failed(format!(
                "failed to create manager for existing fields: failed to convert new object ({}) to smd typed: {errors}",
                self.name_of(live)
            ))
        })
    }

    fn applied<'a>(
        &'a self,
        live: &'a Value,
        wanted: &'a Value,
        managers: Managers<'a>,
        manager: &'a str,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let failed =
            |what: &'static str| move |errors: TypeErrors| ApplyError::Failed(format!("{what}: {errors}"));
        let Some((ty, _)) = self.versions.in_version(live, self.api_version) else {
            return Err(ApplyError::Failed(format!("no corresponding type for {}", self.name_of(wanted))));
        };
        validate(ty, wanted, false).map_err(|errors| {
            let name = self.name_of(wanted);
            ApplyError::Failed(format!("failed to create typed patch object ({name}): {errors}"))
        })?;
        let mut managers = self.reconciled(live, managers);
        let merged = merge(ty, live, wanted).map_err(failed("failed to merge config"))?;
        let set = self.wanted(ty, wanted).map_err(failed("failed to get field set"))?;
        let mut applier = Manager::new(manager, Operation::Apply, self.api_version, self.subresource, set);
        let last = managers.0.iter().find(|known| known.is(&applier)).cloned();
        applier.time = last.as_ref().and_then(|last| last.time.clone());
        managers.put(applier.clone());
        let pruned =
            self.pruned(merged, &managers, last.as_ref()).map_err(failed("failed to prune fields"))?;
        let (mut managers, conflicts) = {
            let mut found = compare(ty, live, &pruned).map_err(failed("failed to compare objects"))?;
            self.narrow(&mut found, self.api_version);
            (self.contested(&found, live, &pruned, managers, Some(&applier)))
                .map_err(failed("failed to compare objects"))?
        };
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflict::ordered(conflicts)));
        }
        let same = equal(live, &pruned);
        if let Some(index) = managers.0.iter().position(|known| known.is(&applier)) {
            let applier = &mut managers.0[index];
            let mut set = std::mem::take(&mut applier.set);
            set.subtract(&unmanaged());
            applier.change(set);
            if !same {
                applier.stamp(self.now);
            }
            if applier.set.is_empty() {
                managers.0.remove(index);
            }
        }
        let entries = managers.to_value();
        let mut object = if same { live.clone() } else { pruned };
        if !object.is_object() {
            let sort = go_type(&object);
            return Err(ApplyError::Failed(format!(
                "failed to convert value to unstructured for type {sort}"
            )));
        }
        put_managed(&mut object, entries);
        Ok(object)
    }

    /// The fields of an applied configuration.
    fn wanted<'a>(&self, ty: Type<'a>, wanted: &'a Value) -> Result<FieldSet<'a>, TypeErrors> {
        let mut set = collect(ty, wanted)?;
        self.versions.ignored(self.api_version).filter(&mut set);
        Ok(set)
    }

    /// The fields of the last client-side apply that are unchanged since.
    fn last_applied(&self, live: &Value) -> Option<FieldSet<'static>> {
        let last: Value = serde_json::from_str(annotation(live, LAST_APPLIED)).ok()?;
        if text(&last, "apiVersion") != self.api_version || text(&last, "kind") != self.kind {
            return None;
        }
        let (ty, _) = self.versions.in_version(live, self.api_version)?;
        validate(ty, live, false).ok()?;
        validate(ty, &last, false).ok()?;
        let mut set = collect(ty, &last).ok()?;
        let found = compare(ty, &last, live).ok()?;
        for changed in [&found.modified, &found.added, &found.removed] {
            set.subtract(changed);
        }
        Some(set.into_owned())
    }

    /// The name of an object in error messages: `default/web; apps/v1, Kind=Deployment`.
    fn name_of(&self, object: &Value) -> String {
        let meta = |field: &str| {
            let metadata = object.get("metadata");
            metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
        };
        let (group, version) = split(self.api_version);
        format!("{}/{}; {group}/{version}, Kind={}", meta("namespace"), meta("name"), self.kind)
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Updates the last-applied annotation of client-side apply, unless it would exceed the size limit.
fn remember(object: &mut Value, wanted: &Value) {
    let mut wanted = Cow::Borrowed(wanted);
    if !annotation(&wanted, LAST_APPLIED).is_empty() {
        let own = wanted.to_mut().pointer_mut("/metadata/annotations");
        if let Some(annotations) = own.and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    let mut text = escaped(&wanted.to_string());
    text.push('\n');
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
    let size: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

/// JSON with HTML escapes, as Go's encoder writes it.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}
