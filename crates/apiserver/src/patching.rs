//! Patches: changes of an object that do not name all of it.

use std::fmt::Display;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use plumb_apischema::json::{self, DecodeError, Decoded};
use plumb_apischema::{Schema, patch};
use plumb_resize::field::FieldError;
use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::alpha;
use crate::error::ApiError;
use crate::exchange::{media_type, of_another_kind, unreadable};
use crate::go;
use crate::readable::Readable;

/// The formats that patches of custom kinds are read in.
const CUSTOM_FORMATS: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// A change of an object.
pub(crate) enum Patch {
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
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            _ => return Err(ApiError::unknown_patch()),
        };
        let mut parsed = json::parse(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if alpha::may_concern(body, rules) {
            alpha::translate(&mut parsed.value, rules);
        }
        Ok(make(parsed.value))
    }

    /// Applies it to an object of a kind. What comes out is an object of that kind again.
    pub(crate) fn apply(&self, kind: &impl Readable, object: &Value) -> Result<Decoded, ApiError> {
        let patched = match self {
            Self::Json(patch) => patch::json::apply(object.clone(), patch.clone())
                .map_err(|error| refused(error.status(), &error))?,
            Self::Merge(patch) => patch::merge(object.clone(), patch.clone()),
            Self::Strategic(patch) => {
                // What was defined later has no merge keys.
                let kind = kind.builtin().ok_or_else(|| ApiError::unsupported_media_type(CUSTOM_FORMATS))?;
                patch::strategic::apply(Schema::builtin(), kind, object.clone(), patch.clone())
                    .map_err(|error| refused(error.status(), &error))?
            }
        };
        if kind.builtin().is_none() {
            return kind.decode_value(patched).map_err(|error| unreadable(kind, error));
        }
        let shown = patched.to_string();
        if !matches!(self, Self::Strategic(_))
            && let Some(refusal) = of_another_kind(kind, &patched)
        {
            return Err(self.refuse_shown(shown, &refusal.message));
        }
        kind.decode_value(patched).map_err(|error| match (self, error) {
            // SPEC: upstream has an object by then, and takes this for its own failure.
            (Self::Strategic(_), DecodeError::Unstorable(why)) => ApiError::unexplained(why),
            (_, error) => self.refuse_shown(shown, &error),
        })
    }

    /// The refusal of a patch that makes no object of its kind of one.
    pub(crate) fn refuse(&self, patched: &Value, why: &dyn Display) -> ApiError {
        self.refuse_shown(patched.to_string(), why)
    }

    /// What is shown is what upstream shows: the patch, or what came of it.
    fn refuse_shown(&self, patched: String, why: &dyn Display) -> ApiError {
        let shown = match self {
            Self::Strategic(patch) => go::shown(patch),
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
