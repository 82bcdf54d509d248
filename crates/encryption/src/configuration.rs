//! `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`).

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::cipher::RandomBytes;
use crate::error::ConfigurationError;
use crate::non_empty::NonEmpty;
use crate::provider::Provider;
use crate::resource::GroupResource;
use crate::transformers::{Rules, Transformers};
use crate::validation;

/// A valid configuration, with its keys.
pub struct EncryptionConfiguration(Rules);

impl EncryptionConfiguration {
    /// Parses and validates a file. Also the version `v1` and the kind `EncryptionConfig` are read, as upstream reads them.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        // The parser's messages may contain a part of the text, and so a secret; only the position is passed on.
        let options = serde_saphyr::options! { with_snippet: false };
        let document: Value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ConfigurationError::Syntax { line: error.location().map(|at| at.line()) })?;
        check_type(&document)?;
        let file = File::deserialize(document)
            .map_err(|error| ConfigurationError::Structure(without_values(&error.to_string())))?;
        let entries =
            validation::validate(file.resources.unwrap_or_default()).map_err(ConfigurationError::Invalid)?;
        let mut rules = Rules::new();
        for entry in entries {
            for resource in entry.resources {
                rules.add(resource, entry.providers.clone())?;
            }
        }
        Ok(Self(rules))
    }

    /// The transformers of the resources, with a source of random bytes for nonces.
    pub fn transformers(&self, random: impl RandomBytes + 'static) -> Transformers {
        self.0.transformers(random)
    }
}

impl fmt::Debug for EncryptionConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionConfiguration").finish_non_exhaustive()
    }
}

/// A valid entry of the list `resources`.
pub(crate) struct Entry {
    pub(crate) resources: Vec<GroupResource>,
    pub(crate) providers: NonEmpty<Arc<Provider>>,
}

/// The file. No type here has `Debug`, which would display secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    resources: Option<Vec<ResourceConfiguration>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceConfiguration {
    pub(crate) resources: Option<Vec<String>>,
    pub(crate) providers: Option<Vec<ProviderConfiguration>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderConfiguration {
    pub(crate) aesgcm: Option<Keys>,
    pub(crate) aescbc: Option<Keys>,
    pub(crate) secretbox: Option<Keys>,
    pub(crate) identity: Option<Identity>,
    pub(crate) kms: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keys {
    pub(crate) keys: Option<Vec<Key>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) secret: String,
}

fn check_type(document: &Value) -> Result<(), ConfigurationError> {
    let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
    match (field("apiVersion"), field("kind")) {
        ("apiserver.config.k8s.io/v1", "EncryptionConfiguration") | ("v1", "EncryptionConfig") => Ok(()),
        _ => Err(ConfigurationError::Structure(
            "no EncryptionConfiguration of apiserver.config.k8s.io/v1: see its fields apiVersion and kind"
                .to_owned(),
        )),
    }
}

/// A message of the deserializer without the value that it is about, which may be a secret at a wrong place. The names of
/// fields are left.
fn without_values(message: &str) -> String {
    if message.starts_with("unknown field") || message.starts_with("missing field") {
        return message.to_owned();
    }
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("a field has a value of the wrong type, expected {expected}"),
        None => "a field has a value of the wrong type".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_deserializer_has_no_value() {
        let cases = [
            (
                "unknown field `aes`, expected one of `a`, `b`",
                "unknown field `aes`, expected one of `a`, `b`",
            ),
            (
                "invalid type: string \"hunter2, expected nothing\", expected a sequence",
                "a field has a value of the wrong type, expected a sequence",
            ),
            ("hunter2", "a field has a value of the wrong type"),
        ];
        for (message, expected) in cases {
            assert_eq!(without_values(message), expected);
        }
    }
}
