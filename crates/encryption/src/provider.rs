//! A provider with its keys.

use std::borrow::Cow;

use crate::cipher::{Cipher, RandomBytes, aes_cbc, aes_gcm, secretbox};
use crate::error::{Origin, Rejection, TransformError};
use crate::non_empty::NonEmpty;

/// The kind of a provider that has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    AesGcm,
    AesCbc,
    Secretbox,
}

impl Scheme {
    /// The name of the provider in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AesGcm => "aesgcm",
            Self::AesCbc => "aescbc",
            Self::Secretbox => "secretbox",
        }
    }

    /// What its values begin with, before the name of the key.
    const fn prefix(self) -> &'static str {
        match self {
            Self::AesGcm => "k8s:enc:aesgcm:v1:",
            Self::AesCbc => "k8s:enc:aescbc:v1:",
            Self::Secretbox => "k8s:enc:secretbox:v1:",
        }
    }

    /// The lengths of its keys in bytes.
    pub(crate) const fn key_lengths(self) -> &'static [usize] {
        match self {
            Self::AesGcm | Self::AesCbc => &[16, 24, 32],
            Self::Secretbox => &[32],
        }
    }

    /// What upstream's error calls its cipher.
    const fn transformer(self) -> &'static str {
        match self {
            Self::AesGcm | Self::AesCbc => "AES",
            Self::Secretbox => "Secretbox",
        }
    }

    fn cipher(self, key: &[u8]) -> Option<Box<dyn Cipher>> {
        match self {
            Self::AesGcm => aes_gcm(key),
            Self::AesCbc => aes_cbc(key),
            Self::Secretbox => secretbox(key),
        }
    }
}

/// A key with its name.
pub(crate) struct NamedKey {
    name: String,
    cipher: Box<dyn Cipher>,
}

impl NamedKey {
    /// A key of a provider; `None` if it has a wrong length.
    pub(crate) fn new(scheme: Scheme, name: String, key: &[u8]) -> Option<Self> {
        Some(Self { name, cipher: scheme.cipher(key)? })
    }
}

/// A value that a provider has decrypted.
pub(crate) struct Decrypted<'s> {
    pub(crate) value: Cow<'s, [u8]>,
    /// The position of the key in the list of the provider.
    pub(crate) key: usize,
}

/// A provider: it writes values if it is the first of a resource, and reads those with its prefix.
pub(crate) enum Provider {
    /// Values are stored as they are.
    Identity,
    /// Values are encrypted with the first key, and decrypted with any of them.
    Keys(Scheme, NonEmpty<NamedKey>),
}

impl Provider {
    /// The prefix of its values, as metrics name it.
    pub(crate) fn prefix(&self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Keys(scheme, _) => scheme.prefix(),
        }
    }

    /// The stored form of a value.
    pub(crate) fn encrypt<'v>(
        &self,
        value: &'v [u8],
        authenticated: &[u8],
        random: &dyn RandomBytes,
    ) -> Result<Cow<'v, [u8]>, TransformError> {
        let Self::Keys(scheme, keys) = self else { return Ok(Cow::Borrowed(value)) };
        let key = keys.first();
        let mut stored = format!("{}{}:", scheme.prefix(), key.name).into_bytes();
        key.cipher.encrypt(value, authenticated, random, &mut stored)?;
        Ok(Cow::Owned(stored))
    }

    /// The value of stored bytes; `None` if they are not of this provider.
    pub(crate) fn decrypt<'s>(
        &self,
        stored: &'s [u8],
        authenticated: &[u8],
    ) -> Result<Option<Decrypted<'s>>, Vec<Rejection>> {
        let Self::Keys(scheme, keys) = self else {
            // No object begins with the prefix: objects are JSON.
            let is_plain = !stored.starts_with(Origin::ENCRYPTED);
            return Ok(is_plain.then_some(Decrypted { value: Cow::Borrowed(stored), key: 0 }));
        };
        let Some(named) = stored.strip_prefix(scheme.prefix().as_bytes()) else { return Ok(None) };
        let mut rejections = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let rest = named.strip_prefix(key.name.as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
            let Some(encrypted) = rest else { continue };
            match key.cipher.decrypt(encrypted, authenticated) {
                Ok(value) => return Ok(Some(Decrypted { value: Cow::Owned(value), key: position })),
                // Another key may have the same name.
                Err(reason) => rejections.push(Rejection::Failed {
                    provider: scheme.name(),
                    key: key.name.clone(),
                    reason,
                }),
            }
        }
        if rejections.is_empty() {
            let origin = Origin::of_value(stored);
            rejections.push(Rejection::NoMatchingKey { transformer: scheme.transformer(), origin });
        }
        Err(rejections)
    }
}
