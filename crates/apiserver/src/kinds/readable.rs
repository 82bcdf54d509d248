//! What bodies can be read as: kinds of the table, and kinds that were defined later.

use plumb_apischema::Schema;
use plumb_apischema::json::{self, DecodeError, Decoded};
use plumb_apischema::schema::Kind;
use serde_json::Value;
use std::num::IntErrorKind;

use super::{Form, Row};
use crate::registry::TEMPLATE_GENERATION;

/// A kind that a body can be read as.
pub(crate) trait Readable {
    /// The kind's name.
    fn name(&self) -> &str;

    /// `v1`, `apps/v1`.
    fn api_version(&self) -> String;

    /// `v1`.
    fn version(&self) -> &str;

    /// Reads JSON.
    fn decode(&self, body: &[u8]) -> Result<Decoded, DecodeError>;

    /// Reads what was read as JSON before.
    fn decode_value(&self, value: Value) -> Result<Decoded, DecodeError>;

    /// The kind of the table, if it is one.
    fn builtin(&self) -> Option<&Kind>;
}

impl Readable for Kind {
    fn name(&self) -> &str {
        self.name
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn version(&self) -> &str {
        self.version
    }

    fn decode(&self, body: &[u8]) -> Result<Decoded, DecodeError> {
        json::decode(Schema::builtin(), self, body).and_then(|decoded| storable(self, decoded))
    }

    fn decode_value(&self, value: Value) -> Result<Decoded, DecodeError> {
        json::decode_value(Schema::builtin(), self, value).and_then(|decoded| storable(self, decoded))
    }

    fn builtin(&self) -> Option<&Kind> {
        Some(self)
    }
}

/// An object that can be stored: upstream keeps some annotations as fields of their own, which are numbers.
fn storable(kind: &Kind, decoded: Decoded) -> Result<Decoded, DecodeError> {
    if (kind.group, kind.name) == ("apps", "DaemonSet")
        && let Some(count) =
            decoded.value["metadata"]["annotations"].get(TEMPLATE_GENERATION).and_then(Value::as_str)
        && let Err(error) = count.parse::<i64>()
    {
        let overflows = matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let why = if overflows { "value out of range" } else { "invalid syntax" };
        return Err(DecodeError::Unstorable(format!("strconv.ParseInt: parsing {count:?}: {why}")));
    }
    Ok(decoded)
}

impl Readable for Row {
    fn name(&self) -> &str {
        self.kind()
    }

    fn api_version(&self) -> String {
        Self::api_version(self)
    }

    fn version(&self) -> &str {
        Self::version(self)
    }

    fn decode(&self, body: &[u8]) -> Result<Decoded, DecodeError> {
        match &self.body {
            Form::Builtin(kind) => kind.decode(body),
            Form::Custom(custom) => {
                let parsed = json::parse(body)?;
                let mut decoded = custom.decode(parsed.value)?;
                decoded.strict.splice(0..0, parsed.strict);
                Ok(decoded)
            }
        }
    }

    fn decode_value(&self, value: Value) -> Result<Decoded, DecodeError> {
        match &self.body {
            Form::Builtin(kind) => kind.decode_value(value),
            Form::Custom(custom) => custom.decode(value),
        }
    }

    fn builtin(&self) -> Option<&Kind> {
        match &self.body {
            Form::Builtin(kind) => Some(kind),
            Form::Custom(_) => None,
        }
    }
}
