//! The errors of JSON patches, with upstream's messages.

use super::{MAX_COPIED, MAX_MOVED, MAX_OPERATIONS};

/// Why a patch was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPatchError {
    /// The patch is not a list of operations.
    #[error("json: cannot unmarshal {0} into Go value of type jsonpatch.Patch")]
    NotAPatch(&'static str),
    /// The patch has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// An operation cannot be applied.
    #[error(transparent)]
    DoesNotApply(#[from] OperationError),
    /// An operation `test` found another value at this path.
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
}

impl JsonPatchError {
    /// The HTTP status code with which upstream rejects the patch.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotAPatch(_) => 400,
            Self::TooManyOperations(_) => 413,
            Self::DoesNotApply(_) | Self::TestFailed(_) => 422,
        }
    }
}

/// Why an operation cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// RFC 6902 has no operation of this name.
    #[error("Unexpected kind: {0}")]
    UnexpectedKind(String),
    /// `path` or `from` of an operation cannot be decoded.
    #[error("{operation} operation failed to decode {field}: {cause}")]
    Decode {
        /// The operation.
        operation: &'static str,
        /// The field.
        field: &'static str,
        /// Why.
        cause: FieldError,
    },
    /// A path does not exist in the document.
    #[error("{operation} operation does not apply: {missing}: {path}: missing value")]
    Missing {
        /// The operation.
        operation: &'static str,
        /// The part of the message that says what is missing.
        missing: &'static str,
        /// The path, in quotes for some operations.
        path: String,
    },
    /// The value at the last element of a path cannot be read or written.
    #[error("error in {step} path: '{path}': {cause}")]
    AtPath {
        /// The step of the operation.
        step: &'static str,
        /// The path.
        path: String,
        /// Why.
        cause: PositionError,
    },
    /// The source of a copy cannot be read.
    #[error("error in copy for from: '{from}': {cause}")]
    CopySource {
        /// The path.
        from: String,
        /// Why.
        cause: PositionError,
    },
    /// The target of a copy cannot be written.
    #[error("error while adding value during copy: {0}")]
    CopyTarget(PositionError),
    /// The whole document can be replaced by an object or a list only. Go's message has a formatting error.
    #[error("replace operation value must be object or array: %!w(<nil>)")]
    ReplacedDocument,
    /// The copies of a patch are too large.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED}"
    )]
    CopiedTooMuch(usize),
    /// The insertions and removals of a patch are too expensive.
    #[error("the patch moves more than {MAX_MOVED} elements of lists")]
    MovedTooMuch,
}

/// Why a field of an operation cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The field is missing or invalid; upstream's message does not distinguish.
    #[error("missing value")]
    Missing,
    /// The operation has no `path`.
    #[error("operation missing path field: missing value")]
    MissingPath,
    /// The operation has no `from`.
    #[error("operation, missing from field: missing value")]
    MissingFrom,
    /// The field is not a string.
    #[error("json: cannot unmarshal {0} into Go value of type string")]
    NotAString(&'static str),
}

/// Why the value at the last element of a path cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// The element is not an index of a list.
    #[error(transparent)]
    Number(#[from] IndexError),
    /// The element is not an index of the list to which a value is added.
    #[error("value was not a proper array index: '{key}': {cause}")]
    NotAnIndex {
        /// The element.
        key: String,
        /// Why.
        cause: IndexError,
    },
    /// The index is outside of the list.
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    InvalidIndex(i64),
    /// The object has no such field.
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    NonexistentKey(String),
    /// The document would be nested more deeply than a request body may be.
    #[error("exceeded max depth")]
    TooDeep,
}

/// Why an element of a path is not an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It has characters that are not digits.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Syntax(String),
    /// It does not fit 64 bits.
    #[error("strconv.Atoi: parsing {0:?}: value out of range")]
    Range(String),
}
