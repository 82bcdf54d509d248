//! Errors of configurations and of values. None contains a secret.

use std::fmt;

use plumb_validation::field::{FieldError, aggregate_message, aggregate_texts};

use crate::resource::GroupResource;

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// It is no YAML or JSON. The parser's own message could contain a part of the text.
    #[error("not valid YAML{}", Position(*.line))]
    Syntax {
        /// The line, counted from 1, if it is known.
        line: Option<u64>,
    },
    /// It has unknown fields or fields of wrong types, or it is of another kind.
    #[error("{0}")]
    Structure(String),
    /// Fields have invalid values.
    #[error("{}", aggregate_message(.0))]
    Invalid(Vec<FieldError>),
    /// A rule has no effect, because an earlier one covers its resource.
    #[error("resource {:?} is masked by earlier rule {:?}", .resource.to_string(), .rule.to_string())]
    Masked {
        /// The resource.
        resource: GroupResource,
        /// The earlier rule.
        rule: GroupResource,
    },
}

struct Position(Option<u64>);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, " at line {line}"))
    }
}

/// Why a value cannot be encrypted or decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// The resource is not encrypted by the configuration, but the value is encrypted.
    #[error(
        "identity transformer tried to read encrypted data: {0}, and the configuration has no key for the resource"
    )]
    Identity(Origin),
    /// No provider of the resource reads such values.
    #[error("no matching prefix found: {0}, which is no provider of the resource")]
    NoMatchingPrefix(Origin),
    /// No key of the providers decrypts the value.
    #[error("{}", aggregate_texts(&.0.iter().map(Rejection::to_string).collect::<Vec<_>>()))]
    Rejected(Vec<Rejection>),
    /// The value has more bytes than the cipher can encrypt (64 GiB).
    #[error("the value is too large for the cipher")]
    TooLarge,
    /// There are no random bytes for the encryption.
    #[error(transparent)]
    Random(#[from] crate::NoRandomBytes),
}

/// Why one provider does not decrypt a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The provider lacks the key.
    #[error("no matching key was found for the provided {transformer} transformer: {origin}")]
    NoMatchingKey {
        /// The cipher of the provider.
        transformer: &'static str,
        /// What wrote the value.
        origin: Origin,
    },
    /// The key is another one than the one that encrypted the value, or the value was changed.
    #[error("key {key:?} of provider {provider} does not decrypt the value: {reason}")]
    Failed {
        /// The provider.
        provider: &'static str,
        /// The name of the key.
        key: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// What wrote a stored value, by its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(pub(crate) Option<(String, String)>);

impl Origin {
    /// The prefix of all encrypted values.
    pub(crate) const ENCRYPTED: &'static [u8] = b"k8s:enc:";
    /// The most characters of a prefix in a message.
    const LONGEST: usize = 253;

    /// Reads the prefix. A message is never made from bytes after it.
    pub(crate) fn of_value(stored: &[u8]) -> Self {
        let Some(rest) = stored.strip_prefix(Self::ENCRYPTED) else { return Self(None) };
        let mut segments = rest.split(|&byte| byte == b':');
        let mut segment = || {
            let segment = segments.next().unwrap_or_default();
            let segment = &segment[..segment.len().min(Self::LONGEST)];
            str::from_utf8(segment)
                .ok()
                .filter(|text| !text.contains(char::is_control))
                .unwrap_or("?")
                .to_owned()
        };
        let provider = segment();
        let _version = segment();
        Self(Some((provider, segment())))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("the value was written by provider identity"),
            Some((provider, key)) => {
                write!(f, "the value was written with key {key:?} of provider {provider}")
            }
        }
    }
}
