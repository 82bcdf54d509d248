//! Patches: JSON patch, merge patch and strategic merge patch.

use std::fmt::Display;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use plumb_apischema::json::{self, DecodeError, Decoded, StrictError, strict_error};
use plumb_apischema::{Schema, patch};
use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::{Value, json};

use crate::alpha;
use crate::codec::{media_type, naming, of_another_kind};
use crate::error::ApiError;
use crate::go;
use crate::kinds::Readable;

/// The patch formats of custom resources.
const CUSTOM_FORMATS: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// A patch, and the duplicate fields in its body.
pub(crate) struct Patch {
    change: Change,
    /// The duplicate fields.
    twice: Vec<StrictError>,
}

/// A change of an object.
enum Change {
    /// A list of operations (RFC 6902).
    Json(Value),
    /// A merge patch (RFC 7396).
    Merge(Value),
    /// A strategic merge patch: lists are merged by the keys of the schema.
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

    /// Refuses a patch in a format that custom resources and their scales do not take.
    pub(crate) fn check_custom_format(&self) -> Result<(), ApiError> {
        match self.change {
            Change::Json(_) | Change::Merge(_) => Ok(()),
            Change::Strategic(_) => Err(ApiError::unsupported_media_type(CUSTOM_FORMATS)),
        }
    }

    /// Applies the patch to an object of a kind, and decodes the result as that kind. With `strictly`, an unknown or duplicate
    /// field is an error.
    pub(crate) fn apply(
        &self,
        kind: &impl Readable,
        object: &Value,
        strictly: bool,
    ) -> Result<Decoded, ApiError> {
        let mut decoded = self.decoded(kind, object)?;
        decoded.strict.splice(0..0, self.twice.iter().cloned());
        if strictly && !decoded.strict.is_empty() {
            return Err(self.refuse(kind, object, &strict_error(&decoded.strict)));
        }
        Ok(decoded)
    }

    /// The patched object.
    fn patched(&self, kind: &impl Readable, object: &Value) -> Result<Value, ApiError> {
        match &self.change {
            Change::Json(patch) => patch::json::apply(object.clone(), patch.clone())
                .map_err(|error| refused(error.status(), &error)),
            Change::Merge(patch) => Ok(patch::merge(object.clone(), patch.clone())),
            Change::Strategic(patch) => {
                // Custom resources have no merge keys.
                let kind = kind.builtin().ok_or_else(|| ApiError::unsupported_media_type(CUSTOM_FORMATS))?;
                patch::strategic::apply(Schema::builtin(), kind, object.clone(), patch.clone())
                    .map_err(|error| refused(error.status(), &error))
            }
        }
    }

    /// The patched object, decoded.
    fn decoded(&self, kind: &impl Readable, object: &Value) -> Result<Decoded, ApiError> {
        let patched = self.patched(kind, object)?;
        let refuse = |why: &dyn Display| Err(self.refuse(kind, object, why));
        if kind.builtin().is_none() {
            if let Err(why) = naming::is_named(&patched, &patched) {
                return refuse(&why);
            }
            if let Some(refusal) = naming::patched_to_another(kind, &patched) {
                return Err(refusal);
            }
            return match kind.decode_value(patched) {
                // The fields of another kind are unknown.
                Ok(decoded) if decoded.value["kind"] != kind.name() => {
                    Ok(Decoded { strict: Vec::new(), ..decoded })
                }
                Ok(decoded) => Ok(decoded),
                Err(error) => refuse(&error),
            };
        }
        // SPEC: upstream decodes an object without a version as its internal type, which has none of these fields.
        let lays_over = !matches!(self.change, Change::Strategic(_));
        let version = &patched["apiVersion"];
        if lays_over && (version.is_null() || *version == "" || *version == "/") {
            let fields = patched.as_object().into_iter().flat_map(|fields| fields.keys());
            let strict = fields.filter(|field| !["apiVersion", "kind"].contains(&field.as_str()));
            let strict = strict.cloned().map(StrictError::Unknown).collect();
            return Ok(Decoded { value: json!({ "metadata": {} }), strict });
        }
        if lays_over && let Err(why) = naming::is_legible(&patched) {
            return refuse(&why);
        }
        if lays_over && let Some(refusal) = of_another_kind(kind, &patched) {
            return refuse(&refusal.message);
        }
        match (&self.change, kind.decode_value(patched)) {
            (_, Ok(decoded)) => Ok(decoded),
            // SPEC: upstream has decoded the object by then, and reports an internal error.
            (Change::Strategic(_), Err(DecodeError::Unstorable(why))) => Err(ApiError::unexplained(why)),
            (_, Err(error)) => refuse(&error),
        }
    }

    /// The error of a patch whose result cannot be decoded as its kind. The message has the patch or the patched object, as
    /// upstream's has.
    fn refuse(&self, kind: &impl Readable, object: &Value, why: &dyn Display) -> ApiError {
        let shown = match (&self.change, self.patched(kind, object)) {
            (Change::Strategic(patch), _) => go::shown(patch),
            (_, Ok(patched)) => patched.to_string(),
            (_, Err(error)) => return error,
        };
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, why.to_string())])
    }
}

/// The error of a patch, with upstream's code.
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
