//! Bodies of type `application/vnd.kubernetes.protobuf`, from and to JSON values.
//!
//! kubectl and client-go can send built-in kinds in this form. A body is four magic bytes and an envelope (`runtime.Unknown`)
//! that names the kind and contains its message, whose field numbers the table has.
//!
//! Generated code such as that of `prost` would need a type for each of the 900 structs, and a second pass to JSON values,
//! which the table already describes.
//!
//! ```
//! use plumb_apischema::{Schema, protobuf};
//! use serde_json::json;
//!
//! let schema = Schema::builtin();
//! let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
//! let body = protobuf::encode(schema, &options)?;
//!
//! assert!(body.starts_with(b"k8s\0"));
//! assert_eq!(protobuf::decode(schema, &body, None)?, options);
//! # Ok::<(), protobuf::ProtobufError>(())
//! ```

mod decode;
mod encode;
mod envelope;
mod openapi;
mod wire;

use serde_json::Value;

use crate::schema::{Kind, Schema};

pub use envelope::{Envelope, MAGIC};
pub use openapi::openapi_v2;

/// The maximum nesting depth of messages. It is larger than that of JSON, since some JSON values are wrapped in a message.
pub const MAX_DEPTH: usize = 160;

/// Why a body could not be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is empty.
    #[error("empty data")]
    Empty,
    /// The magic is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// The envelope declares a content encoding.
    #[error("unsupported content encoding {0:?} in the protobuf envelope")]
    Encoded(String),
    /// The table has no such kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The API version in the envelope.
        api_version: String,
        /// The kind in the envelope.
        kind: String,
    },
    /// A field does not decode.
    #[error("protobuf: {at}: {cause}")]
    Malformed {
        /// Struct and field: `PodSpec.containers`.
        at: String,
        /// The cause.
        cause: Cause,
    },
    /// Messages are nested too deeply.
    #[error("protobuf: messages are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// The object would be too large.
    #[error("protobuf: {0}")]
    TooLarge(String),
    /// A JSON value does not have the type of its field.
    #[error("cannot write {at} as protobuf: not a {expected}")]
    Mismatch {
        /// Struct and field.
        at: String,
        /// The Go name of the type.
        expected: &'static str,
    },
}

/// Why a field of a protobuf body does not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The input ends within a field.
    #[error("unexpected end of input")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("integer overflow")]
    Overflow,
    /// A field number is zero or too large.
    #[error("illegal field number")]
    FieldNumber,
    /// The wire type is not that of the field.
    #[error("wrong wire type {0}")]
    WireType(u8),
    /// Text that is not UTF-8.
    #[error("text is not valid UTF-8")]
    Utf8,
    /// A timestamp that JSON cannot represent.
    #[error("time out of range")]
    Time,
    /// A number that JSON cannot represent.
    #[error("number is not finite")]
    NotFinite,
    /// An invalid quantity.
    #[error("{0}")]
    Quantity(String),
    /// Invalid embedded JSON.
    #[error("embedded object: {0}")]
    Embedded(String),
}

/// Decodes a body to an object in the form that Go's JSON encoder would give it, `apiVersion` and `kind` included.
///
/// If the envelope names no kind, the object has the `expected` one.
pub fn decode(schema: &Schema, body: &[u8], expected: Option<&Kind>) -> Result<Value, ProtobufError> {
    let envelope = Envelope::open(body)?;
    decode::enveloped(schema, &envelope, expected, MAX_DEPTH)
}

/// Decodes the message of a kind, without an envelope.
pub fn decode_message(schema: &Schema, kind: &Kind, message: &[u8]) -> Result<Value, ProtobufError> {
    decode::object(schema, kind, message, MAX_DEPTH)
}

/// Encodes an object of a known kind as a body.
///
/// Missing fields are encoded as zero values where Go would encode them.
pub fn encode(schema: &Schema, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let kind = text("kind");
    let found = schema.kind_of(api_version, kind).ok_or_else(|| ProtobufError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })?;
    let message = encode_message(schema, found, object)?;
    Ok(Envelope { api_version, kind, raw: &message }.seal())
}

/// Encodes an object as the message of a kind, without an envelope.
pub fn encode_message(schema: &Schema, kind: &Kind, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    encode::message(schema, kind.body, object)
}
