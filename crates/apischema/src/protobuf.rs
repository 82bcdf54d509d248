//! Bodies of type `application/vnd.kubernetes.protobuf`, from and to JSON values.
//!
//! kubectl and client-go send built-in kinds in this form. A body is four bytes of magic and an envelope that
//! names the kind; what is inside follows the field numbers of the table.
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

/// How deep messages may lie in one another: deeper than any object that can be read from JSON.
pub const MAX_DEPTH: usize = 160;

/// Why a body could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is empty.
    #[error("empty data")]
    Empty,
    /// The magic is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// The envelope says that what it holds is compressed or otherwise wrapped.
    #[error("unsupported content encoding {0:?} in the protobuf envelope")]
    Encoded(String),
    /// The table has no such kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// As the envelope has it.
        api_version: String,
        /// As the envelope has it.
        kind: String,
    },
    /// A field does not decode.
    #[error("protobuf: {at}: {cause}")]
    Malformed {
        /// Struct and field: `PodSpec.containers`.
        at: String,
        /// What was wrong.
        cause: Cause,
    },
    /// Messages lie too deep in one another.
    #[error("protobuf: messages are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// The object would be too large.
    #[error("protobuf: {0}")]
    TooLarge(String),
    /// A JSON value does not have the type its field has.
    #[error("cannot write {at} as protobuf: not a {expected}")]
    Mismatch {
        /// Struct and field.
        at: String,
        /// The Go name of the type.
        expected: &'static str,
    },
}

/// What was wrong at some place of a protobuf body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// It ends in the middle.
    #[error("unexpected end of input")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("integer overflow")]
    Overflow,
    /// A field number that cannot be.
    #[error("illegal field number")]
    FieldNumber,
    /// Not the wire type that the field has.
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

/// Reads a body: the object in the form Go's JSON encoder would give it, `apiVersion` and `kind` included.
///
/// Where the envelope names no kind, the object is of the `expected` one.
pub fn decode(schema: &Schema, body: &[u8], expected: Option<&Kind>) -> Result<Value, ProtobufError> {
    let envelope = Envelope::open(body)?;
    decode::enveloped(schema, &envelope, expected, MAX_DEPTH)
}

/// Reads a bare message of a kind.
pub fn decode_message(schema: &Schema, kind: &Kind, message: &[u8]) -> Result<Value, ProtobufError> {
    decode::object(schema, kind, message, MAX_DEPTH)
}

/// Writes an object of a known kind as a body.
///
/// What the object leaves out is written as zero where Go would write it.
pub fn encode(schema: &Schema, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let found = schema.kind_of(api_version, kind).ok_or_else(|| ProtobufError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })?;
    let message = encode_message(schema, found, object)?;
    Ok(Envelope { api_version, kind, raw: &message }.seal())
}

/// Writes an object as a bare message of a kind.
pub fn encode_message(schema: &Schema, kind: &Kind, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    encode::message(schema, kind.body, object)
}
