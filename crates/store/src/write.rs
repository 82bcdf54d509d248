//! What a writer asks for, and how it may be refused.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{Attributes, Key, Object, Revision};

/// The largest value in bytes.
pub const MAX_VALUE: usize = 16 << 20;

/// The most bytes that one transaction may write.
pub const MAX_TRANSACTION: usize = 64 << 20;

/// One change that a writer asks for.
#[derive(Debug)]
pub struct Write {
    pub(crate) key: Key,
    pub(crate) expect: Expect,
    pub(crate) edit: Edit,
}

/// What must be true of the key for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there.
    Anything,
    /// No object.
    Absent,
    /// Some object.
    Present,
    /// Exactly the version with this `mod_revision`.
    Revision(Revision),
}

impl Expect {
    pub(crate) fn holds(self, current: Option<&Object>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::Revision(revision) => current.is_some_and(|object| object.mod_revision == revision),
        }
    }
}

/// What becomes of a key.
#[derive(Debug)]
pub enum Edit {
    /// It gets a new version.
    Put {
        /// The encoded object.
        value: Value,
        /// What watchers may be indexed by.
        attributes: Attributes,
    },
    /// Its object goes.
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
    /// These bytes.
    Plain(Bytes),
    /// Bytes that carry their own revision, made when it is known.
    ///
    /// The function runs while other writers wait, so it should do no more than splice a number into a copy.
    Stamped(Box<dyn FnOnce(Revision) -> Bytes + Send>),
}

impl Value {
    /// Bytes that carry their own revision; see [`Value::Stamped`].
    pub fn stamped(encode: impl FnOnce(Revision) -> Bytes + Send + 'static) -> Self {
        Self::Stamped(Box::new(encode))
    }

    pub(crate) fn encode(self, revision: Revision) -> Bytes {
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
    /// Puts an object, whether there is one or not.
    pub fn put(key: Key, value: impl Into<Value>) -> Self {
        Self { key, expect: Expect::Anything, edit: Edit::put(value) }
    }

    /// Puts an object where there is none.
    pub fn create(key: Key, value: impl Into<Value>) -> Self {
        Self::put(key, value).expect(Expect::Absent)
    }

    /// Deletes an object; refused as a conflict where there is none.
    pub fn delete(key: Key) -> Self {
        Self { key, expect: Expect::Present, edit: Edit::Delete }
    }

    /// What must be true of the key.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// What watchers may be indexed by; nothing to a deletion.
    #[must_use]
    pub fn attributes(mut self, given: Attributes) -> Self {
        if let Edit::Put { attributes, .. } = &mut self.edit {
            *attributes = given;
        }
        self
    }
}

/// The key was not as the writer expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} is not as expected ({expected:?}): it is {}", Found(.current.as_deref()))]
pub struct Conflict {
    /// The key.
    pub key: Key,
    /// What was expected.
    pub expected: Expect,
    /// What is there; durable.
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

/// Why a write did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The key was not as expected.
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
    /// Other writers changed the key each time before this one was done.
    #[error("gave up on {0}: other writers were faster each time")]
    Contended(Key),
    /// Too many bytes wait to become durable.
    #[error("too many writes wait for the disk")]
    Busy,
    /// There is no room on the disk. Nothing was written; later writes may succeed.
    #[error("no room for the write: {0}")]
    Full(Arc<str>),
    /// The disk failed, so the store serves reads only until it is opened anew.
    ///
    /// Whether the write happened is open: it may be there after the next start.
    #[error("store is read-only since its journal failed: {0}")]
    ReadOnly(Arc<str>),
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}

/// Why an update did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpdateError<E> {
    /// The store refused the write.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The caller's function refused.
    #[error("{0}")]
    Refused(E),
}
