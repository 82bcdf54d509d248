//! Writes, and the reasons why the store rejects them.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{Attributes, Key, Object, Revision};

/// The maximum size of a value in bytes.
pub const MAX_VALUE: usize = 16 << 20;

/// The maximum number of bytes of a transaction.
pub const MAX_TRANSACTION: usize = 64 << 20;

/// A requested change of one key.
#[derive(Debug)]
pub struct Write {
    pub(crate) key: Key,
    pub(crate) precondition: Precondition,
    pub(crate) edit: Edit,
    pub(crate) limit: Limit,
}

/// Which quota limits a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// None.
    None,
    /// The quota.
    Quota,
    /// The quota and a margin.
    Margin,
}

/// A condition on the key for a write to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Always true.
    Anything,
    /// The key has no object.
    Absent,
    /// The key has an object.
    Present,
    /// The object has this `mod_revision`.
    Revision(Revision),
}

impl Precondition {
    pub(crate) fn holds(self, current: Option<&Object>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::Revision(revision) => current.is_some_and(|object| object.mod_revision == revision),
        }
    }
}

/// The change of a key.
#[derive(Debug)]
pub enum Edit {
    /// Store a new version.
    Put {
        /// The encoded object.
        value: Value,
        /// The attributes by which watchers may select the object.
        attributes: Attributes,
    },
    /// Delete the object.
    Delete,
}

impl Edit {
    /// A new version without attributes.
    pub fn put(value: impl Into<Value>) -> Self {
        Self::Put { value: value.into(), attributes: Attributes::none() }
    }
}

/// The encoded object of a write.
pub enum Value {
    /// Bytes that are stored unchanged.
    Plain(Bytes),
    /// Bytes that contain the revision of the write, encoded when it is assigned.
    ///
    /// The function runs under the writers' lock, so it should do no more than splice a number into a copy.
    Stamped(Box<dyn FnOnce(Revision) -> Bytes + Send>),
}

impl Value {
    /// Creates a value that contains the revision of its write; see [`Value::Stamped`].
    pub fn stamped(encode: impl FnOnce(Revision) -> Bytes + Send + 'static) -> Self {
        Self::Stamped(Box::new(encode))
    }

    /// The bytes, with this revision if they contain one.
    pub fn encode(self, revision: Revision) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Stamped(encode) => encode(revision),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(bytes) => f.debug_tuple("Plain").field(bytes).finish(),
            Self::Stamped(_) => f.write_str("Stamped"),
        }
    }
}

impl<B: Into<Bytes>> From<B> for Value {
    fn from(bytes: B) -> Self {
        Self::Plain(bytes.into())
    }
}

impl Write {
    /// Creates or replaces an object.
    pub fn put(key: Key, value: impl Into<Value>) -> Self {
        Self { key, precondition: Precondition::Anything, edit: Edit::put(value), limit: Limit::None }
    }

    /// Creates an object. It is a conflict if the object exists.
    pub fn create(key: Key, value: impl Into<Value>) -> Self {
        Self::put(key, value).precondition(Precondition::Absent)
    }

    /// Deletes an object. It is a conflict if the object does not exist.
    pub fn delete(key: Key) -> Self {
        Self { key, precondition: Precondition::Present, edit: Edit::Delete, limit: Limit::None }
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The key, the precondition and the change, for a [`crate::Remote`].
    pub fn into_parts(self) -> (Key, Precondition, Edit) {
        (self.key, self.precondition, self.edit)
    }

    /// Sets the precondition.
    #[must_use]
    pub fn precondition(mut self, precondition: Precondition) -> Self {
        self.precondition = precondition;
        self
    }

    /// Rejects the write if it makes the objects larger than the [`crate::Quota`] allows. Other writes are counted, but not
    /// rejected: those that the system depends on, and those that free space.
    #[must_use]
    pub fn limited(mut self) -> Self {
        self.limit = Limit::Quota;
        self
    }

    /// Rejects the write if it makes the objects larger than nine eighths of the [`crate::Quota`]: for writes that must succeed
    /// in a full store, within a limit.
    #[must_use]
    pub fn limited_with_margin(mut self) -> Self {
        self.limit = Limit::Margin;
        self
    }

    /// Sets the attributes by which watchers may select the object; ignored by a deletion.
    #[must_use]
    pub fn attributes(mut self, given: Attributes) -> Self {
        if let Edit::Put { attributes, .. } = &mut self.edit {
            *attributes = given;
        }
        self
    }
}

/// The key did not meet the precondition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} is not as expected ({expected:?}): it is {}", Found(.current.as_deref()))]
pub struct Conflict {
    /// The key.
    pub key: Key,
    /// The precondition.
    pub expected: Precondition,
    /// The current object.
    pub current: Option<Arc<Object>>,
}

struct Found<'a>(Option<&'a Object>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("absent"),
            Some(object) => write!(f, "at revision {}", object.mod_revision),
        }
    }
}

/// Why a write failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The key did not meet the precondition.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The value is larger than [`MAX_VALUE`].
    #[error("value of {size} bytes for {key} is larger than {MAX_VALUE}")]
    TooLarge {
        /// The key.
        key: Key,
        /// The size of its value.
        size: usize,
    },
    /// The transaction writes more than [`MAX_TRANSACTION`].
    #[error("transaction of {0} bytes is larger than {MAX_TRANSACTION}")]
    TransactionTooLarge(usize),
    /// The attributes exceed their limits.
    #[error("attributes of {0} are too many or too long")]
    Attributes(Key),
    /// All objects together would be larger than [`crate::Quota::bytes`].
    #[error("objects have {used} of {quota} bytes, {requested} more do not fit")]
    QuotaExceeded {
        /// The bytes that the write adds.
        requested: u64,
        /// The bytes of all objects.
        used: u64,
        /// The maximum bytes of all objects.
        quota: u64,
    },
    /// The objects of the namespace would be larger than [`crate::Quota::namespace_bytes`].
    #[error("objects of namespace {namespace:?} have {used} of {quota} bytes, {requested} more do not fit")]
    NamespaceQuotaExceeded {
        /// The namespace.
        namespace: Arc<str>,
        /// The bytes that the write adds.
        requested: u64,
        /// The bytes of the objects of the namespace.
        used: u64,
        /// The maximum bytes of the objects of one namespace.
        quota: u64,
    },
    /// All attempts of the update conflicted with other writers.
    #[error("too many conflicts: {0} keeps being modified concurrently")]
    Contended(Key),
    /// Too many bytes are pending.
    #[error("too many writes are waiting for the disk")]
    Busy,
    /// No space is left on the disk. Nothing was written, and later writes may succeed.
    #[error("no space left for the write: {0}")]
    Full(Arc<str>),
    /// A value of the batch cannot be transformed for the disk. Nothing was written, and later writes may succeed.
    #[error("{0}")]
    Transform(Arc<str>),
    /// The disk failed, so the store serves reads only until it is reopened.
    ///
    /// The outcome of the write is unknown: it may exist after the next start.
    #[error("store is read-only since its journal failed: {0}")]
    ReadOnly(Arc<str>),
    /// The store elsewhere cannot be reached. Nothing was written, and later writes may succeed.
    #[error("store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The store elsewhere has rejected the write, for example because it has no space. Nothing was written.
    #[error("{0}")]
    Rejected(Arc<str>),
    /// The outcome of the write is unknown: it may have succeeded, and may become visible later.
    #[error("outcome of the write is unknown: {0}")]
    Unknown(Arc<str>),
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}

/// Why an update failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpdateError<E> {
    /// The store rejected the write.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The caller's function returned an error.
    #[error("{0}")]
    Refused(E),
}
