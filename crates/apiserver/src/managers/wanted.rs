use std::borrow::Cow;

use bytes::Bytes;
use plumb_apischema::apply::{ApplyError, Tracker, conflict_message};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::{manager, with_tracker};
use crate::alpha;
use crate::custom::whole_numbers;
use crate::error::{ApiError, Cause};
use crate::exchange::{FieldValidation, media_type};
use crate::object::{meta, metadata};
use crate::readable::Readable as _;
use crate::server::Call;
use crate::yaml;

/// The format of what is applied.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// What somebody applies.
pub(crate) struct Wanted {
    object: Value,
    manager: String,
    force: bool,
    /// What is said of fields that come twice, if any do.
    twice: Option<String>,
}

impl Wanted {
    /// Whether a request applies.
    pub(crate) fn is_asked(call: &Call) -> bool {
        media_type(&call.head.headers) == APPLY
    }

    /// Reads what is applied.
    pub(crate) fn read(call: &Call) -> Result<Self, ApiError> {
        let force = call.query.is_on("force")?;
        let (object, twice) = read(&call.body, call.server.rules())?;
        Ok(Self { object, manager: manager(call), force, twice })
    }

    /// Applies it to an object, or to none. What comes out is an object of its kind with managers, and without
    /// defaults.
    pub(crate) fn apply(&self, call: &Call, live: Option<&Value>) -> Result<Value, ApiError> {
        let live = live.map(|live| call.as_served(live));
        let mut applied = with_tracker(call, |tracker| self.decide(tracker, live.as_deref()))?;
        self.judge(call)?;
        if call.row.custom().is_some() {
            self.drop_unreadable(call, &mut applied);
        }
        let kind = call.body_kind();
        let decoded = kind.decode_value(applied);
        Ok(call.to_stored(decoded.map_err(|error| self.unstorable(call, &error))?.value))
    }

    /// Drops what only the server says of an object, where nobody can read it.
    ///
    /// SPEC: upstream reads an object of a custom kind field by field, and takes for missing what it cannot read.
    fn drop_unreadable(&self, call: &Call, applied: &mut Value) {
        let kind = call.body_kind();
        for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            let Some(said) = self.object["metadata"].get(field) else { continue };
            let (version, name) = (kind.api_version(), kind.kind());
            let alone = json!({ "apiVersion": version, "kind": name, "metadata": { field: said } });
            if kind.decode_value(alone).is_err() {
                metadata(applied).remove(field);
            }
        }
    }

    /// The refusal of what makes no object of its kind.
    ///
    /// SPEC: upstream finds out only once it has applied it, and takes it for a failure of its own.
    fn unstorable(&self, call: &Call, error: &dyn std::fmt::Display) -> ApiError {
        let (kind, version) = (call.body_kind().name(), call.body_kind().api_version());
        let version = if version.contains('/') { version } else { format!("/{version}") };
        let (namespace, name) = (meta(&self.object, "namespace"), meta(&self.object, "name"));
        ApiError::unexplained(format!(
            "failed to convert new object ({namespace}/{name}; {version}, Kind={kind}) to proper version: \
             unable to convert unstructured object to {version}, Kind={kind}: {error}"
        ))
    }

    /// Applies it by a tracker.
    pub(crate) fn decide(&self, tracker: &Tracker<'_>, live: Option<&Value>) -> Result<Value, ApiError> {
        let live = live.map_or_else(|| Cow::Owned(tracker.versions.empty()), Cow::Borrowed);
        tracker.apply(&live, &self.object, &self.manager, self.force).map_err(refused)
    }

    /// Tells of fields that come twice, or refuses them.
    pub(crate) fn judge(&self, call: &Call) -> Result<(), ApiError> {
        let validation = FieldValidation::of(&call.query)?;
        if validation == FieldValidation::Ignore {
            return Ok(());
        }
        let Some(twice) = self.twice.clone() else { return Ok(()) };
        if validation == FieldValidation::Strict {
            return Err(ApiError::bad_request(format!("error strict decoding YAML: {twice}")));
        }
        call.warn(vec![twice]);
        Ok(())
    }
}

/// Reads YAML, of which JSON is a part.
fn read(body: &Bytes, rules: &Rules) -> Result<(Value, Option<String>), ApiError> {
    let refuse = |why: String| ApiError::bad_request(format!("error decoding YAML: {why}"));
    // Most is JSON, which is read faster as such; only what comes twice is told as YAML.
    let parsed = match plumb_apischema::json::parse(body) {
        Ok(parsed) if parsed.strict.is_empty() => parsed,
        _ => yaml::parse(body).map_err(|error| {
            // Upstream's reader says what is wrong and not where.
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

/// The refusal of an apply.
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
