//! Conversion of values to JSON, so that the results of expressions can become parts of objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Value as Json, json};

use crate::error::EvalError;
use crate::functions::display;
use crate::value::{Message, Value};

/// The maximum depth of a value.
const MAX_DEPTH: usize = 128;
/// The maximum weight of a value; no object is larger.
const MAX_WEIGHT: usize = 3 << 20;
const TOO_LARGE: &str = "the value is too large";

impl Value<'_> {
    /// Converts the value to JSON. Values of library types cannot be converted.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        let mut remaining = MAX_WEIGHT;
        self.weigh(&mut remaining).ok_or_else(|| EvalError::new(TOO_LARGE))?;
        self.json_at(0)
    }

    fn json_at(&self, depth: usize) -> Result<Json, EvalError> {
        if depth > MAX_DEPTH {
            return Err(EvalError::new("the value is nested too deep"));
        }
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(truth) => json!(truth),
            Self::Int(number) => json!(number),
            Self::Uint(number) => json!(number),
            Self::Double(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::Bytes(bytes) => json!(STANDARD.encode(bytes)),
            Self::Duration(_) | Self::Timestamp(_) => json!(display(self)),
            Self::List(list) => {
                let elements: Result<Vec<Json>, _> =
                    list.iter().map(|element| element.json_at(depth + 1)).collect();
                Json::Array(elements?)
            }
            Self::Map(map) => {
                let mut object = JsonMap::new();
                for (key, value) in map.entries() {
                    let key = key.as_text().ok_or_else(|| {
                        EvalError::new(format!(
                            "map key {} is of type {}, not string",
                            display(&key),
                            key.type_name()
                        ))
                    })?;
                    object.insert(key.to_owned(), value.json_at(depth + 1)?);
                }
                Json::Object(object)
            }
            Self::Message(message) => {
                let mut object = JsonMap::new();
                for (name, value) in &message.fields {
                    object.insert((*name).to_owned(), value.json_at(depth + 1)?);
                }
                Json::Object(object)
            }
            other => return Err(EvalError::new(format!("unsupported type: {}", other.type_name()))),
        })
    }

    /// The messages of kube-apiserver about nested messages whose type name is not that of their field path.
    pub fn misnamed(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut remaining = MAX_WEIGHT;
        if self.weigh(&mut remaining).is_none() {
            return vec![TOO_LARGE.to_owned()];
        }
        if let Self::Message(message) = self {
            message.misnamed(message.name, &mut errors);
        }
        errors
    }

    fn misnamed_at(&self, path: &str, errors: &mut Vec<String>) {
        match self {
            Self::Message(message) => {
                if message.name != path {
                    errors.push(format!(
                        "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                        message.name
                    ));
                }
                message.misnamed(path, errors);
            }
            Self::List(list) => list.iter().for_each(|element| element.misnamed_at(path, errors)),
            Self::Map(map) => map.entries().for_each(|(_, value)| value.misnamed_at(path, errors)),
            _ => {}
        }
    }
}

impl Message<'_> {
    fn misnamed(&self, path: &str, errors: &mut Vec<String>) {
        for (name, value) in &self.fields {
            value.misnamed_at(&format!("{path}.{name}"), errors);
        }
    }
}
