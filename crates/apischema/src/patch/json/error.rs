//! Why a JSON patch was refused, in upstream's words.

use super::{MAX_COPIED, MAX_MOVED, MAX_OPERATIONS};

/// Why a patch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPatchError {
    /// It is not a list of operations.
    #[error("json: cannot unmarshal {0} into Go value of type jsonpatch.Patch")]
    NotAPatch(&'static str),
    /// It has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// An operation cannot be applied.
    #[error(transparent)]
    DoesNotApply(#[from] OperationError),
    /// An operation `test` did not find the value that it names at this path.
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
}

impl JsonPatchError {
    /// The HTTP status upstream answers with.
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
    /// Its `path` or `from` cannot be read.
    #[error("{operation} operation failed to decode {field}: {cause}")]
    Decode {
        /// The operation.
        operation: &'static str,
        /// The field.
        field: &'static str,
        /// Why.
        cause: FieldError,
    },
    /// A path leads nowhere.
    #[error("{operation} operation does not apply: {missing}: {path}: missing value")]
    Missing {
        /// The operation.
        operation: &'static str,
        /// What of the document is missing.
        missing: &'static str,
        /// The path, in quotes for some operations.
        path: String,
    },
    /// The last element of a path cannot be read or written.
    #[error("error in {step} path: '{path}': {cause}")]
    AtPath {
        /// The step of the operation.
        step: &'static str,
        /// The path.
        path: String,
        /// Why.
        cause: PositionError,
    },
    /// The same, of the source of a copy.
    #[error("error in copy for from: '{from}': {cause}")]
    CopySource {
        /// The path.
        from: String,
        /// Why.
        cause: PositionError,
    },
    /// The same, of the target of a copy.
    #[error("error while adding value during copy: {0}")]
    CopyTarget(PositionError),
    /// A document can be replaced by an object or a list only.
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

/// Why a field of an operation cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Upstream does not name the field of this operation.
    #[error("missing value")]
    Missing,
    /// There is no path.
    #[error("operation missing path field: missing value")]
    MissingPath,
    /// There is no path to copy or move from.
    #[error("operation, missing from field: missing value")]
    MissingFrom,
    /// It is not a string.
    #[error("json: cannot unmarshal {0} into Go value of type string")]
    NotAString(&'static str),
}

/// Why the last element of a path cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// It is not a number, in a list.
    #[error(transparent)]
    Number(#[from] IndexError),
    /// The same where a value is added.
    #[error("value was not a proper array index: '{key}': {cause}")]
    NotAnIndex {
        /// The element.
        key: String,
        /// Why.
        cause: IndexError,
    },
    /// It is outside of the list.
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    InvalidIndex(i64),
    /// The object has no such field.
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    NonexistentKey(String),
    /// The document would be deeper than one that is read at once.
    #[error("exceeded max depth")]
    TooDeep,
}

/// Why an element of a path is not a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It does not have digits alone.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Syntax(String),
    /// It does not fit 64 bits.
    #[error("strconv.Atoi: parsing {0:?}: value out of range")]
    Range(String),
}
