use std::borrow::Cow;

use bytes::Bytes;
use plumb_apischema::apply::{ApplyError, Tracker, conflict_message};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::FieldManager;
use crate::alpha;
use crate::codec::FieldValidation;
use crate::endpoints::write_options::WriteOptions;
use crate::error::{ApiError, Cause};
use crate::kinds::{Readable as _, Row, whole_numbers};
use crate::object::{meta, metadata};
use crate::url::Query;
use crate::warnings::Warnings;
use crate::yaml;

/// The applied configuration of a request.
pub(crate) struct ApplyPatch {
    object: Value,
    manager: String,
    force: bool,
    field_validation: FieldValidation,
    /// The error of duplicate fields, if there are any.
    twice: Option<String>,
}

impl ApplyPatch {
    /// Reads the configuration.
    pub(crate) fn read(
        body: &Bytes,
        query: &Query,
        options: &WriteOptions,
        rules: &Rules,
    ) -> Result<Self, ApiError> {
        let force = query.is_on("force");
        let (object, twice) = read(body, rules)?;
        let WriteOptions { field_manager, field_validation, .. } = options;
        let (manager, field_validation) = (field_manager.clone(), *field_validation);
        Ok(Self { object, manager, force, field_validation, twice })
    }

    /// Applies it to an object, or creates one. The result has managed fields, and no defaults yet.
    pub(crate) fn apply(
        &self,
        fields: &FieldManager<'_>,
        warnings: &Warnings,
        live: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let mut applied = fields.apply(self, live)?;
        self.judge(warnings)?;
        let FieldManager { cx, scope, .. } = fields;
        let kind = scope.request_row();
        if scope.row.custom().is_some() {
            self.drop_unreadable(kind, &mut applied);
        }
        let decoded = kind.decode_value(applied);
        let decoded = decoded.map_err(|error| self.unstorable(kind, &error))?;
        Ok(scope.to_storage_version(decoded.value, cx.rules))
    }

    /// Drops metadata fields of a custom resource that only the server sets and that cannot be decoded.
    ///
    /// SPEC: upstream decodes these field by field, and treats those that fail as missing.
    fn drop_unreadable(&self, kind: &Row, applied: &mut Value) {
        for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            let Some(said) = self.object["metadata"].get(field) else { continue };
            let (version, name) = (kind.api_version(), kind.kind());
            let alone = json!({ "apiVersion": version, "kind": name, "metadata": { field: said } });
            if kind.decode_value(alone).is_err() {
                metadata(applied).remove(field);
            }
        }
    }

    /// The error of a configuration that cannot be decoded as its kind.
    ///
    /// SPEC: upstream decodes it after the apply, and reports an internal error.
    fn unstorable(&self, kind: &Row, error: &dyn std::fmt::Display) -> ApiError {
        let (kind, version) = (kind.name(), kind.api_version());
        let version = if version.contains('/') { version } else { format!("/{version}") };
        let (namespace, name) = (meta(&self.object, "namespace"), meta(&self.object, "name"));
        ApiError::unexplained(format!(
            "failed to convert new object ({namespace}/{name}; {version}, Kind={kind}) to proper version: \
             unable to convert unstructured object to {version}, Kind={kind}: {error}"
        ))
    }

    /// Applies it with a tracker.
    pub(crate) fn decide(&self, tracker: &Tracker<'_>, live: Option<&Value>) -> Result<Value, ApiError> {
        let live = live.map_or_else(|| Cow::Owned(tracker.versions.empty()), Cow::Borrowed);
        tracker.apply(&live, &self.object, &self.manager, self.force).map_err(refused)
    }

    /// Warns of duplicate fields, or rejects them.
    pub(crate) fn judge(&self, warnings: &Warnings) -> Result<(), ApiError> {
        let Some(twice) = &self.twice else { return Ok(()) };
        match self.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.add(twice.as_str()),
            FieldValidation::Strict => {
                return Err(ApiError::bad_request(format!("error strict decoding YAML: {twice}")));
            }
        }
        Ok(())
    }
}

/// Reads YAML, of which JSON is a part.
fn read(body: &Bytes, rules: &Rules) -> Result<(Value, Option<String>), ApiError> {
    let refuse = |why: String| ApiError::bad_request(format!("error decoding YAML: {why}"));
    // Most configurations are JSON, which parses faster; duplicate fields are reported as those of YAML.
    let parsed = match plumb_apischema::json::parse(body) {
        Ok(parsed) if parsed.strict.is_empty() => parsed,
        _ => yaml::parse(body).map_err(|error| {
            // Upstream's parser does not report the position.
            refuse(format!("error converting YAML to JSON: {}", error.without_location()))
        })?,
    };
    let twice = parsed.strict.first().map(|twice| format!("error converting YAML to JSON: {twice}"));
    let mut object = parsed.value;
    if object.is_null() {
        object = Value::Object(serde_json::Map::new());
    }
    if !object.is_object() {
        let sort = match object {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            _ => "bool",
        };
        return Err(refuse(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {sort} into Go value of type map[string]interface {{}}"
        )));
    }
    // YAML is turned into JSON upstream, where `2.0` becomes `2`.
    whole_numbers(&mut object);
    if alpha::may_concern(body, rules) {
        alpha::translate(&mut object, rules);
    }
    Ok((object, twice))
}

/// The error of an apply.
fn refused(error: ApplyError) -> ApiError {
    match error {
        ApplyError::BadRequest(why) => ApiError::bad_request(why),
        ApplyError::Failed(why) => ApiError::failed(why),
        ApplyError::Conflicts(conflicts) => {
            let mut refusal = ApiError::apply_conflict(conflict_message(&conflicts));
            for conflict in conflicts {
                refusal = refusal.because(Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.field,
                });
            }
            refusal
        }
    }
}
