//! JSON patches (RFC 6902), as upstream applies them.
//!
//! Upstream differs from the RFC in a few points, and this module follows upstream: `replace` adds a missing field, `test` of a
//! missing field against null passes, and negative indexes count from the end.

mod error;

use serde_json::{Map, Value};

use crate::json::MAX_DEPTH;

pub use error::{FieldError, IndexError, JsonPatchError, OperationError, PositionError};

/// The maximum number of operations of a patch (`maxJSONPatchOperations`).
pub const MAX_OPERATIONS: usize = 10_000;

/// The maximum number of bytes that all `copy` operations of a patch may add together: the limit of a request body.
pub const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The maximum number of list elements that all operations of a patch may move together.
///
/// An insertion at the front of a list moves all its elements: ten thousand insertions into a long list would take minutes.
const MAX_MOVED: usize = 50_000_000;

/// Applies a patch to a document.
///
/// ```
/// use plumb_apischema::patch::json;
/// use serde_json::json;
///
/// let patch = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/b/-", "value": 3}]);
/// assert_eq!(json::apply(json!({"a": 1, "b": [2]}), patch)?, json!({"a": 1, "b": [2, 3]}));
/// # Ok::<(), json::JsonPatchError>(())
/// ```
pub fn apply(document: Value, patch: Value) -> Result<Value, JsonPatchError> {
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => return Err(JsonPatchError::NotAPatch(found(&other))),
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::TooManyOperations(operations.len()));
    }
    if let Some(wrong) = operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
        return Err(JsonPatchError::NotAPatch(found(wrong)));
    }
    let mut patched = Patched { document, copied: 0, moved: 0 };
    for operation in operations {
        let operation = match operation {
            Value::Object(fields) => Operation { fields },
            _ => Operation { fields: Map::new() },
        };
        patched.perform(operation)?;
    }
    Ok(patched.document)
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct Operation {
    fields: Map<String, Value>,
}

impl Operation {
    fn kind(&self) -> &str {
        self.fields.get("op").and_then(Value::as_str).unwrap_or("unknown")
    }

    fn path(&self) -> Result<String, FieldError> {
        match self.fields.get("path") {
            Some(Value::String(path)) => Ok(path.clone()),
            None | Some(Value::Null) => Err(FieldError::MissingPath),
            Some(other) => Err(FieldError::NotAString(found(other))),
        }
    }

    fn from(&self) -> Result<String, FieldError> {
        match self.fields.get("from") {
            Some(Value::String(path)) => Ok(path.clone()),
            None | Some(Value::Null) => Err(FieldError::MissingFrom),
            Some(other) => Err(FieldError::NotAString(found(other))),
        }
    }

    fn value(&mut self) -> Value {
        self.fields.remove("value").unwrap_or(Value::Null)
    }
}

/// The error of a field of an operation that cannot be decoded.
fn decode(operation: &'static str, field: &'static str) -> impl Fn(FieldError) -> OperationError {
    move |cause| OperationError::Decode { operation, field, cause }
}

/// The error of a path that cannot be decoded, for operations whose message upstream does not detail.
fn decode_path(operation: &'static str) -> impl Fn(FieldError) -> OperationError {
    move |_| OperationError::Decode { operation, field: "path", cause: FieldError::Missing }
}

/// The error of a path that does not exist in the document.
fn missing(operation: &'static str, missing: &'static str, path: &str) -> OperationError {
    OperationError::Missing { operation, missing, path: path.to_owned() }
}

/// The error of an operation that fails at the last element of a path.
fn at_path(step: &'static str, path: &str) -> impl Fn(PositionError) -> OperationError {
    move |cause| OperationError::AtPath { step, path: path.to_owned(), cause }
}

struct Patched {
    document: Value,
    copied: usize,
    moved: usize,
}

impl Patched {
    /// Counts moved elements against the limit.
    fn count(&mut self, moved: usize) -> Result<(), OperationError> {
        self.moved = self.moved.saturating_add(moved);
        if self.moved > MAX_MOVED { Err(OperationError::MovedTooMuch) } else { Ok(()) }
    }

    fn perform(&mut self, mut operation: Operation) -> Result<(), JsonPatchError> {
        match operation.kind() {
            "add" => self.add(&mut operation)?,
            "remove" => self.remove(&operation)?,
            "replace" => self.replace(&mut operation)?,
            "move" => self.relocate(&operation)?,
            "test" => return self.test(&mut operation),
            "copy" => self.copy(&operation)?,
            other => return Err(OperationError::UnexpectedKind(other.to_owned()).into()),
        }
        Ok(())
    }

    fn add(&mut self, operation: &mut Operation) -> Result<(), OperationError> {
        let path = operation.path().map_err(decode_path("add"))?;
        let location = self
            .location(&path)
            .ok_or_else(|| missing("add", "doc is missing path", &format!("\"{path}\"")))?;
        let moved = location.add(operation.value()).map_err(at_path("add for", &path))?;
        self.count(moved)
    }

    fn remove(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let path = operation.path().map_err(decode_path("remove"))?;
        let location = self
            .location(&path)
            .ok_or_else(|| missing("remove", "doc is missing path", &format!("\"{path}\"")))?;
        let (_, moved) = location.remove().map_err(at_path("remove for", &path))?;
        self.count(moved)
    }

    fn replace(&mut self, operation: &mut Operation) -> Result<(), OperationError> {
        let path = operation.path().map_err(decode("replace", "path"))?;
        let value = operation.value();
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err(OperationError::ReplacedDocument);
            }
            self.document = value;
            return Ok(());
        }
        let location =
            self.location(&path).ok_or_else(|| missing("replace", "doc is missing path", &path))?;
        location.get().map_err(|_| missing("replace", "doc is missing key", &path))?;
        // Upstream's message says `remove` here too.
        location.set(value).map_err(at_path("remove for", &path))
    }

    fn relocate(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let from = operation.from().map_err(decode("move", "from"))?;
        let location =
            self.location(&from).ok_or_else(|| missing("move", "doc is missing from path", &from))?;
        let key = location.key.clone();
        let (value, moved) = location.remove().map_err(at_path("move for", &key))?;
        self.count(moved)?;
        let path = operation.path().map_err(decode("move", "path"))?;
        let location =
            self.location(&path).ok_or_else(|| missing("move", "doc is missing destination path", &path))?;
        let moved = location.add(value).map_err(at_path("move for", &path))?;
        self.count(moved)
    }

    fn test(&mut self, operation: &mut Operation) -> Result<(), JsonPatchError> {
        let path = operation.path().map_err(decode("test", "path"))?;
        let expected = operation.value();
        let passed = if path.is_empty() {
            self.document == expected
        } else {
            let location = self.location(&path).ok_or_else(|| missing("test", "is missing path", &path))?;
            let value = location.get().map_err(at_path("test for", &path))?;
            *value.unwrap_or(&Value::Null) == expected
        };
        if passed { Ok(()) } else { Err(JsonPatchError::TestFailed(path)) }
    }

    fn copy(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let from = operation.from().map_err(decode("copy", "from"))?;
        let location =
            self.location(&from).ok_or_else(|| missing("copy", "doc is missing from path", &from))?;
        let value =
            location.get().map_err(|cause| OperationError::CopySource { from: from.clone(), cause })?;
        let value = value.cloned().unwrap_or(Value::Null);
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED {
            return Err(OperationError::CopiedTooMuch(self.copied));
        }
        let path = operation.path().map_err(decode_path("copy"))?;
        let location =
            self.location(&path).ok_or_else(|| missing("copy", "doc is missing destination path", &path))?;
        let moved = location.add(value).map_err(OperationError::CopyTarget)?;
        self.count(moved)
    }

    /// Resolves a path to the container of its last element.
    fn location(&mut self, path: &str) -> Option<Location<'_>> {
        let mut parts = path.split('/').skip(1);
        let mut key = unescaped(parts.next()?);
        let mut here = &mut self.document;
        let mut depth = 1;
        for next in parts {
            here = match here {
                Value::Object(object) => object.get_mut(&key)?,
                Value::Array(list) => {
                    let index = existing(&key, list.len()).ok()?;
                    list.get_mut(index)?
                }
                _ => return None,
            };
            key = unescaped(next);
            depth += 1;
        }
        (here.is_object() || here.is_array()).then_some(Location { container: here, key, depth })
    }
}

fn unescaped(part: &str) -> String {
    if part.contains('~') { unescape(part) } else { part.to_owned() }
}

/// Unescapes a JSON pointer in one pass, so that `~01` becomes `~1` and not a slash.
fn unescape(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (taken, meant) = match rest.as_bytes().get(at + 1) {
            Some(b'0') => (2, "~"),
            Some(b'1') => (2, "/"),
            _ => (1, "~"),
        };
        out.push_str(meant);
        rest = &rest[at + taken..];
    }
    out + rest
}

/// An object or a list, and a key or an index in it.
struct Location<'d> {
    container: &'d mut Value,
    key: String,
    /// The depth of the value at the key.
    depth: usize,
}

impl Location<'_> {
    fn get(&self) -> Result<Option<&Value>, PositionError> {
        match &*self.container {
            Value::Object(object) => Ok(object.get(&self.key)),
            Value::Array(list) => {
                let index = existing(&self.key, list.len())?;
                Ok(list.get(index))
            }
            _ => Ok(None),
        }
    }

    /// Adds a value. Returns the number of elements that it moved.
    fn add(self, value: Value) -> Result<usize, PositionError> {
        self.fits(&value)?;
        match self.container {
            Value::Object(object) => {
                object.insert(self.key, value);
                Ok(0)
            }
            Value::Array(list) if self.key == "-" => {
                list.push(value);
                Ok(0)
            }
            Value::Array(list) => {
                let location =
                    number(&self.key).map_err(|cause| PositionError::NotAnIndex { key: self.key, cause })?;
                let size = list.len() + 1;
                let index = within(location, size).filter(|index| *index < size);
                let index = index.ok_or(PositionError::InvalidIndex(location))?;
                list.insert(index, value);
                Ok(size - index)
            }
            _ => Ok(0),
        }
    }

    fn set(self, value: Value) -> Result<(), PositionError> {
        self.fits(&value)?;
        match self.container {
            Value::Object(object) => {
                object.insert(self.key, value);
            }
            Value::Array(list) => {
                let index = existing(&self.key, list.len())?;
                if let Some(element) = list.get_mut(index) {
                    *element = value;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes a value. Returns the value, and the number of elements that moved up.
    fn remove(self) -> Result<(Value, usize), PositionError> {
        match self.container {
            Value::Object(object) => object
                .remove(&self.key)
                .map(|value| (value, 0))
                .ok_or(PositionError::NonexistentKey(self.key)),
            Value::Array(list) => {
                let index = existing(&self.key, list.len())?;
                Ok((list.remove(index), list.len() - index))
            }
            _ => Ok((Value::Null, 0)),
        }
    }

    /// Checks the depth of a value at this location: a sequence of operations could otherwise nest deeper than a request body
    /// may.
    fn fits(&self, value: &Value) -> Result<(), PositionError> {
        if self.depth + depth(value) > MAX_DEPTH { Err(PositionError::TooDeep) } else { Ok(()) }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn number(key: &str) -> Result<i64, IndexError> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain {
        return Err(IndexError::Syntax(key.to_owned()));
    }
    key.parse().map_err(|_| IndexError::Range(key.to_owned()))
}

/// Converts an index, of which negative ones count from the end, to one from the front.
fn within(location: i64, length: usize) -> Option<usize> {
    match usize::try_from(location) {
        Ok(index) => Some(index),
        Err(_) => usize::try_from(location.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)),
    }
}

fn existing(key: &str, length: usize) -> Result<usize, PositionError> {
    let location = number(key)?;
    let index = within(location, length).filter(|index| *index < length);
    index.ok_or(PositionError::InvalidIndex(location))
}
