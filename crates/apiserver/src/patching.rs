//! Patches: changes of an object that do not name all of it.

use std::fmt::Display;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use plumb_apischema::json::{self, DecodeError, Decoded, StrictError, strict_error};
use plumb_apischema::{Schema, patch};
use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::{Value, json};

use crate::alpha;
use crate::custom::naming;
use crate::error::ApiError;
use crate::exchange::{media_type, of_another_kind};
use crate::go;
use crate::readable::Readable;

/// The formats that patches of custom kinds are read in.
const CUSTOM_FORMATS: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// A change of an object, and what is wrong with how it was written.
pub(crate) struct Patch {
    change: Change,
    /// The fields that it has twice.
    twice: Vec<StrictError>,
}

/// A change of an object.
enum Change {
    /// A list of operations (RFC 6902).
    Json(Value),
    /// An object to be laid over (RFC 7396).
    Merge(Value),
    /// The same, with lists merged by the keys of the schema.
    Strategic(Value),
}

impl Patch {
    /// Reads a patch in the format that the request names.
    pub(crate) fn read(headers: &HeaderMap, body: &Bytes, rules: &Rules) -> Result<Self, ApiError> {
        let make = match media_type(headers) {
            "application/json-patch+json" => Change::Json,
            "application/merge-patch+json" => Change::Merge,
            "application/strategic-merge-patch+json" => Change::Strategic,
            _ => return Err(ApiError::unknown_patch()),
        };
        let mut parsed = json::parse(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if alpha::may_concern(body, rules) {
            alpha::translate(&mut parsed.value, rules);
        }
        Ok(Self { change: make(parsed.value), twice: parsed.strict })
    }

    /// Applies it to an object of a kind. What comes out is an object of that kind again, and if `strictly` is said,
    /// one of which nothing had to be dropped.
    pub(crate) fn apply(
        &self,
        kind: &impl Readable,
        object: &Value,
        strictly: bool,
    ) -> Result<Decoded, ApiError> {
        let (mut decoded, shown) = self.applied(kind, object)?;
        decoded.strict.splice(0..0, self.twice.iter().cloned());
        if strictly && !decoded.strict.is_empty() {
            return Err(self.refuse(shown, &strict_error(&decoded.strict)));
        }
        Ok(decoded)
    }

    /// What comes of it, and the same as it is shown.
    fn applied(&self, kind: &impl Readable, object: &Value) -> Result<(Decoded, String), ApiError> {
        let patched = match &self.change {
            Change::Json(patch) => patch::json::apply(object.clone(), patch.clone())
                .map_err(|error| refused(error.status(), &error))?,
            Change::Merge(patch) => patch::merge(object.clone(), patch.clone()),
            Change::Strategic(patch) => {
                // What was defined later has no merge keys.
                let kind = kind.builtin().ok_or_else(|| ApiError::unsupported_media_type(CUSTOM_FORMATS))?;
                patch::strategic::apply(Schema::builtin(), kind, object.clone(), patch.clone())
                    .map_err(|error| refused(error.status(), &error))?
            }
        };
        let shown = patched.to_string();
        if kind.builtin().is_none() {
            if let Err(why) = naming::is_named(&patched, &shown) {
                return Err(self.refuse(shown, &why));
            }
            if let Some(refusal) = naming::patched_to_another(kind, &patched) {
                return Err(refusal);
            }
            return match kind.decode_value(patched) {
                // Of another kind nobody knows the fields.
                Ok(decoded) if decoded.value["kind"] != kind.name() => {
                    Ok((Decoded { strict: Vec::new(), ..decoded }, shown))
                }
                Ok(decoded) => Ok((decoded, shown)),
                Err(error) => Err(self.refuse(shown, &error)),
            };
        }
        // SPEC: what says no version is read as the server's own type, which has none of these fields.
        let lays_over = !matches!(self.change, Change::Strategic(_));
        let version = &patched["apiVersion"];
        if lays_over && (version.is_null() || *version == "" || *version == "/") {
            let fields = patched.as_object().into_iter().flat_map(|fields| fields.keys());
            let strict = fields.filter(|field| !["apiVersion", "kind"].contains(&field.as_str()));
            let strict = strict.cloned().map(StrictError::Unknown).collect();
            return Ok((Decoded { value: json!({ "metadata": {} }), strict }, shown));
        }
        if lays_over && let Err(why) = naming::is_legible(&patched) {
            return Err(self.refuse(shown, &why));
        }
        if lays_over && let Some(refusal) = of_another_kind(kind, &patched) {
            return Err(self.refuse(shown, &refusal.message));
        }
        match (&self.change, kind.decode_value(patched)) {
            (_, Ok(decoded)) => Ok((decoded, shown)),
            // SPEC: upstream has an object by then, and takes this for its own failure.
            (Change::Strategic(_), Err(DecodeError::Unstorable(why))) => Err(ApiError::unexplained(why)),
            (_, Err(error)) => Err(self.refuse(shown, &error)),
        }
    }

    /// The refusal of a patch that makes no object of its kind of one.
    ///
    /// What is shown is what upstream shows: the patch, or what came of it.
    fn refuse(&self, patched: String, why: &dyn Display) -> ApiError {
        let shown = match &self.change {
            Change::Strategic(patch) => go::shown(patch),
            _ => patched,
        };
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, why.to_string())])
    }
}

/// The refusal of a patch, with the code that upstream answers with.
fn refused(status: u16, error: &dyn Display) -> ApiError {
    let mut refusal = ApiError::bad_request(error.to_string());
    (refusal.code, refusal.reason) = match status {
        413 => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        422 => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        500 => (StatusCode::INTERNAL_SERVER_ERROR, ""),
        _ => (refusal.code, refusal.reason),
    };
    refusal
}
