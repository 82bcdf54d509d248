//! The decoding of request bodies: as built-in kinds by their schema, and as custom kinds by their definition.

use plumb_apischema::Schema;
use plumb_apischema::json::{self, DecodeError, Decoded};
use plumb_apischema::schema::Kind;
use serde_json::Value;

use super::{Builtin, Form, Row};

/// A kind that a body can be decoded as.
pub(crate) trait Readable {
    /// The kind's name.
    fn name(&self) -> &str;

    /// `v1`, `apps/v1`.
    fn api_version(&self) -> String;

    /// `v1`.
    fn version(&self) -> &str;

    /// Decodes JSON.
    fn decode(&self, body: &[u8]) -> Result<Decoded, DecodeError>;

    /// Decodes an object that was parsed as JSON before.
    fn decode_value(&self, value: Value) -> Result<Decoded, DecodeError>;

    /// The schema, if it is a built-in kind.
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
        json::decode(Schema::builtin(), self, body)
    }

    fn decode_value(&self, value: Value) -> Result<Decoded, DecodeError> {
        json::decode_value(Schema::builtin(), self, value)
    }

    fn builtin(&self) -> Option<&Kind> {
        Some(self)
    }
}

impl Builtin {
    /// A decoded object, unless the strategy of its kind rejects it.
    fn check(&self, decoded: Decoded) -> Result<Decoded, DecodeError> {
        self.strategy.check_decoded(&decoded.value)?;
        Ok(decoded)
    }
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
            Form::Builtin(builtin) => builtin.check(builtin.kind.decode(body)?),
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
            Form::Builtin(builtin) => builtin.check(builtin.kind.decode_value(value)?),
            Form::Custom(custom) => custom.decode(value),
        }
    }

    fn builtin(&self) -> Option<&Kind> {
        Self::builtin(self)
    }
}
