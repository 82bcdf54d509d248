//! Transformation of values on their way to the disk and back, for example encryption.

use std::{borrow::Cow, error::Error, fmt};

use bytes::Bytes;

use crate::{Key, Object};

/// The maximum number of bytes by which a transformed value may be longer than the value.
pub const MAX_OVERHEAD: usize = 4 << 10;

/// Transforms values between memory and the files of a store: the log, checkpoints and backups.
///
/// Objects in memory have the original values. Keys and attributes are not transformed. The store calls it on the thread that
/// commits batches, so that a slow transformer delays all writes.
pub trait Transformer: fmt::Debug + Send + Sync + 'static {
    /// The bytes that are stored for a value; at most [`MAX_OVERHEAD`] longer than the value.
    fn transform_to_storage<'v>(&self, key: &Key, value: &'v [u8])
    -> Result<Cow<'v, [u8]>, TransformerError>;

    /// The value for stored bytes.
    fn transform_from_storage<'s>(
        &self,
        key: &Key,
        stored: &'s [u8],
    ) -> Result<FromStorage<'s>, TransformerError>;
}

/// Why a transformer fails.
pub type TransformerError = Box<dyn Error + Send + Sync>;

/// A value from the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromStorage<'s> {
    /// The value.
    pub value: Cow<'s, [u8]>,
    /// Whether the transformer would store the value otherwise now, for example with another key. A store that finds such a
    /// value rewrites its files when it is opened.
    pub is_stale: bool,
}

/// The value of an object cannot be transformed.
#[derive(Debug, thiserror::Error)]
#[error("unable to transform key {key:?}")]
pub struct TransformError {
    /// The key of the object.
    pub key: Key,
    /// Why.
    pub source: TransformerError,
}

/// The bytes that are stored for the value of an object.
pub(crate) fn to_storage<'o>(
    transformer: Option<&dyn Transformer>,
    object: &'o Object,
) -> Result<Cow<'o, [u8]>, TransformError> {
    let Some(transformer) = transformer else { return Ok(Cow::Borrowed(&object.value)) };
    let failed = |source| TransformError { key: object.key.clone(), source };
    let stored = transformer.transform_to_storage(&object.key, &object.value).map_err(failed)?;
    // A longer one could not be read back.
    if stored.len() > object.value.len() + MAX_OVERHEAD {
        return Err(failed(format!("the transformed value is more than {MAX_OVERHEAD} bytes longer").into()));
    }
    Ok(stored)
}

/// Reads the values of one file after the other.
pub(crate) struct ValueReader<'t> {
    transformer: Option<&'t dyn Transformer>,
    /// Whether any of the values was stale, also one that was replaced later.
    pub(crate) is_stale: bool,
}

impl<'t> ValueReader<'t> {
    pub(crate) fn new(transformer: Option<&'t dyn Transformer>) -> Self {
        Self { transformer, is_stale: false }
    }

    /// The value for stored bytes. It is a copy, so that an object does not retain the buffer of its neighbours.
    pub(crate) fn read(&mut self, key: &Key, stored: &[u8]) -> Result<Bytes, TransformError> {
        let Some(transformer) = self.transformer else { return Ok(Bytes::copy_from_slice(stored)) };
        let read = transformer
            .transform_from_storage(key, stored)
            .map_err(|source| TransformError { key: key.clone(), source })?;
        self.is_stale |= read.is_stale;
        Ok(match read.value {
            Cow::Borrowed(value) => Bytes::copy_from_slice(value),
            Cow::Owned(value) => value.into(),
        })
    }
}
