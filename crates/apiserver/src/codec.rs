//! Bodies of requests and responses, and their formats.

pub(crate) mod naming;

use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plumb_apischema::Schema;
use plumb_apischema::json::{self, Decoded, StrictError};
use plumb_apischema::protobuf::{self, Cause, ProtobufError};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};
use std::fmt::Display;

use crate::alpha;
use crate::error::ApiError;
use crate::kinds::Readable;
use crate::ordered::encode_ordered;
use crate::response_body::Body;
use crate::url::Query;
use crate::yaml;
use naming::{Unnamed, is_legible, is_named};

/// A response in JSON.
pub(crate) fn answer(status: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response with an object in JSON and a newline, as Go's encoder writes it.
pub(crate) fn answer_object(status: StatusCode, mut bytes: Bytes) -> Response<Body> {
    // Stored objects have theirs already, and are sent without being copied.
    if !bytes.ends_with(b"\n") {
        let mut copy = BytesMut::with_capacity(bytes.len() + 1);
        copy.extend_from_slice(&bytes);
        copy.extend_from_slice(b"\n");
        bytes = copy.freeze();
    }
    answer(status, bytes)
}

/// A response with a value in JSON.
pub(crate) fn answer_value(status: StatusCode, value: &Value) -> Response<Body> {
    let mut bytes = Vec::with_capacity(256);
    encode_ordered(value, &mut bytes);
    bytes.push(b'\n');
    answer(status, bytes)
}

/// The `Status` of a successful request that has no object.
pub(crate) fn success() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" })
}

/// The response of an error.
pub(crate) fn refuse(error: &ApiError) -> Response<Body> {
    error.to_response().map(Body::from)
}

/// Adds warning headers, which `kubectl` prints.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - {warning:?}");
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The formats of objects in request bodies.
pub(crate) const OBJECT_FORMATS: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The formats of custom resources in request bodies.
pub(crate) const CUSTOM_FORMATS: &[&str] = &["application/json", "application/yaml"];

/// The media type of a body, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// How unknown and duplicate fields are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client gets warnings.
    Warn,
    /// The request is rejected.
    Strict,
}

impl FieldValidation {
    /// Reads the parameter of a request.
    pub(crate) fn of(query: &Query) -> Result<Self, ApiError> {
        match query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(ApiError::bad_request(format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }

    /// The warnings, or the error.
    pub(crate) fn judge(self, kind: &impl Readable, decoded: &Decoded) -> Result<Vec<String>, ApiError> {
        let Decoded { value, strict } = decoded;
        match self {
            _ if strict.is_empty() => Ok(Vec::new()),
            Self::Ignore => Ok(Vec::new()),
            Self::Warn => Ok(strict.iter().flat_map(warnings_of).collect()),
            Self::Strict => {
                let said = |field: &str| value.get(field).and_then(Value::as_str);
                let why = json::strict_error(strict);
                Err(match (kind.builtin(), said("kind"), said("apiVersion")) {
                    // The message names a custom resource by the kind in the body, even if that is another.
                    (None, Some(name), Some(version)) => {
                        handled_as(name, version.rsplit('/').next().unwrap_or_default(), why)
                    }
                    _ => unreadable(kind, why),
                })
            }
        }
    }
}

/// The warnings of an error, one for each field.
fn warnings_of(error: &StrictError) -> Vec<String> {
    match error {
        StrictError::Yaml(text) => text.lines().skip(1).map(|line| line.trim().to_owned()).collect(),
        other => vec![other.to_string()],
    }
}

/// The error of a body that is not YAML, with its first bytes.
fn unrecognized(kind: &impl Readable, body: &[u8], why: impl Display) -> ApiError {
    const SHOWN: usize = 30;
    let more = if body.len() > SHOWN { " ..." } else { "" };
    let begins = HEXLOWER.encode(&body[..body.len().min(SHOWN)]);
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({begins}{more})",
        kind.name()
    ))
}

/// The error of a body without a kind.
fn unnamed(kind: &impl Readable, body: &[u8], why: &Unnamed) -> ApiError {
    const SHOWN: usize = 30;
    let name = kind.name();
    if let Unnamed::Unreadable(why) = why {
        return ApiError::bad_request(format!("{name} in version \"\" cannot be handled as a {name}: {why}"));
    }
    let text = String::from_utf8_lossy(body);
    let begins: String = text.chars().take(SHOWN).collect();
    let more = if text.len() > SHOWN { " ..." } else { "" };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {name}): {why} ({begins}{more})"
    ))
}

/// The error of a body that cannot be decoded as an object of its kind.
pub(crate) fn unreadable(kind: &impl Readable, why: impl Display) -> ApiError {
    handled_as(kind.name(), kind.version(), why)
}

fn handled_as(name: &str, version: &str, why: impl Display) -> ApiError {
    ApiError::bad_request(format!("{name} in version {version:?} cannot be handled as a {name}: {why}"))
}

/// Reads an object of a kind from a body.
pub(crate) fn object(
    headers: &HeaderMap,
    body: &[u8],
    kind: &impl Readable,
    rules: &Rules,
) -> Result<Decoded, ApiError> {
    let decoded = match media_type(headers) {
        "" | "application/json" | "text/plain" if kind.builtin().is_none() => {
            let parsed = json::parse(body).map_err(|error| unreadable(kind, error))?;
            custom(kind, parsed, body, rules)?
        }
        "" | "application/json" | "text/plain" if alpha::may_concern(body, rules) => {
            let mut parsed = json::parse(body).map_err(|error| unreadable(kind, error))?;
            alpha::translate(&mut parsed.value, rules);
            let decoded = kind.decode_value(parsed.value);
            let mut decoded = decoded.map_err(|error| unreadable(kind, error))?;
            decoded.strict.extend(parsed.strict);
            decoded
        }
        "" | "application/json" | "text/plain" => kind.decode(body).map_err(|error| {
            let parsed = json::parse(body).map(|parsed| parsed.value);
            let other = parsed.ok().and_then(|value| misnamed(kind, &value, body));
            other.unwrap_or_else(|| unreadable(kind, error))
        })?,
        "application/yaml" if kind.builtin().is_none() => {
            let parsed = yaml::parse(body).map_err(|error| unrecognized(kind, body, error))?;
            custom(kind, parsed, body, rules)?
        }
        "application/yaml" => {
            let mut parsed = yaml::parse(body).map_err(|error| unrecognized(kind, body, error))?;
            alpha::translate(&mut parsed.value, rules);
            let decoded = kind.decode_value(parsed.value);
            let decoded = decoded.map_err(|error| unreadable(kind, error))?;
            Decoded { value: decoded.value, strict: [parsed.strict, decoded.strict].concat() }
        }
        "application/vnd.kubernetes.protobuf" if kind.builtin().is_some() => {
            let value = protobuf::decode(Schema::builtin(), body, kind.builtin());
            kind.decode_value(value.map_err(|error| unreadable(kind, in_words(error)))?)
                .map_err(|error| unreadable(kind, error))?
        }
        _ if kind.builtin().is_none() => return Err(ApiError::unsupported_media_type(CUSTOM_FORMATS)),
        _ => return Err(ApiError::unsupported_media_type(OBJECT_FORMATS)),
    };
    if kind.builtin().is_none() {
        return Ok(decoded);
    }
    match misnamed(kind, &decoded.value, body) {
        Some(refusal) => Err(refusal),
        None => Ok(decoded),
    }
}

/// The error of an object whose kind or version cannot be read, or is not that of the path.
fn misnamed(kind: &impl Readable, object: &Value, body: &[u8]) -> Option<ApiError> {
    let illegible = is_legible(object).err().map(|why| unnamed(kind, body, &why));
    illegible.or_else(|| of_another_kind(kind, object))
}

/// Reads a custom resource. Its body must have a kind and a version.
fn custom(
    kind: &impl Readable,
    mut parsed: Decoded,
    body: &[u8],
    rules: &Rules,
) -> Result<Decoded, ApiError> {
    is_named(&parsed.value, &String::from_utf8_lossy(body)).map_err(|why| unnamed(kind, body, &why))?;
    if alpha::may_concern(body, rules) {
        alpha::translate(&mut parsed.value, rules);
    }
    // An object of another version is rejected, but only after its metadata was decoded and duplicate fields were found.
    if of_another_kind(kind, &parsed.value).is_some() {
        if let Some(metadata) = parsed.value.get("metadata") {
            let alone = kind.decode_value(json!({ "metadata": metadata }));
            parsed.strict.extend(alone.map_err(|error| unreadable(kind, error))?.strict);
        }
        return Ok(parsed);
    }
    let mut decoded = kind.decode_value(parsed.value).map_err(|error| unreadable(kind, error))?;
    if decoded.value["kind"] != kind.name() {
        // The fields of another kind are unknown.
        decoded.strict.clear();
    }
    decoded.strict.splice(0..0, parsed.strict);
    Ok(decoded)
}

/// The message of a protobuf error. Errors of quantities read as in JSON.
fn in_words(error: ProtobufError) -> String {
    match error {
        ProtobufError::Malformed { cause: Cause::Quantity(why), .. } => why,
        other => other.to_string(),
    }
}

/// The error of an object of another kind or version than that of the path.
pub(crate) fn of_another_kind(kind: &impl Readable, object: &Value) -> Option<ApiError> {
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.name().to_owned())] {
        let given = object[field].as_str().unwrap_or_default();
        // SPEC: a slash alone names neither a group nor a version, and options are of every version.
        let any = field == "apiVersion" && (given == "/" || kind.name() == "DeleteOptions");
        // A custom resource must have a version; validation checks its kind later.
        let unsaid = given.is_empty() && kind.builtin().is_some();
        let asked_later = field == "kind" && kind.builtin().is_none();
        if unsaid || given == expected || any || asked_later {
            continue;
        }
        let what = if field == "kind" { "kind" } else { "API version" };
        return Some(ApiError::bad_request(format!(
            "the {what} in the data ({given}) does not match the expected {what} ({expected})"
        )));
    }
    None
}
