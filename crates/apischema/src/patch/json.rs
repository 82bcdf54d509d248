//! JSON patches (RFC 6902), as upstream applies them.
//!
//! Upstream and the RFC part in a few places, and upstream is followed: `replace` of a field that is not there
//! adds it, `test` of an absent field for null passes, and negative indexes count from the end.

mod error;

use serde_json::{Map, Value};

use crate::json::MAX_DEPTH;

pub use error::{FieldError, IndexError, JsonPatchError, OperationError, PositionError};

/// How many operations a patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes the `copy` operations of a patch may add, all together.
pub const MAX_COPIED: usize = 3 * 1024 * 1024;

/// How many elements the operations of a patch may push aside, all together.
///
/// Each insertion at the front of a list moves all of it: ten thousand of them into a long one would take
/// minutes.
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

/// A field of an operation that cannot be read.
fn decode(operation: &'static str, field: &'static str) -> impl Fn(FieldError) -> OperationError {
    move |cause| OperationError::Decode { operation, field, cause }
}

/// The same where upstream does not say why.
fn decode_path(operation: &'static str) -> impl Fn(FieldError) -> OperationError {
    move |_| OperationError::Decode { operation, field: "path", cause: FieldError::Missing }
}

/// A path that leads nowhere.
fn missing(operation: &'static str, missing: &'static str, path: &str) -> OperationError {
    OperationError::Missing { operation, missing, path: path.to_owned() }
}

/// A step of an operation that failed at the last element of a path.
fn at_path(step: &'static str, path: &str) -> impl Fn(PositionError) -> OperationError {
    move |cause| OperationError::AtPath { step, path: path.to_owned(), cause }
}

struct Patched {
    document: Value,
    copied: usize,
    moved: usize,
}

impl Patched {
    /// Counts elements that were pushed aside.
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
        let place =
            self.place(&path).ok_or_else(|| missing("add", "doc is missing path", &format!("\"{path}\"")))?;
        let moved = place.add(operation.value()).map_err(at_path("add for", &path))?;
        self.count(moved)
    }

    fn remove(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let path = operation.path().map_err(decode_path("remove"))?;
        let place = self
            .place(&path)
            .ok_or_else(|| missing("remove", "doc is missing path", &format!("\"{path}\"")))?;
        let (_, moved) = place.remove().map_err(at_path("remove for", &path))?;
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
        let place = self.place(&path).ok_or_else(|| missing("replace", "doc is missing path", &path))?;
        place.get().map_err(|_| missing("replace", "doc is missing key", &path))?;
        // Upstream calls it a removal too.
        place.set(value).map_err(at_path("remove for", &path))
    }

    fn relocate(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let from = operation.from().map_err(decode("move", "from"))?;
        let place = self.place(&from).ok_or_else(|| missing("move", "doc is missing from path", &from))?;
        let key = place.key.clone();
        let (value, moved) = place.remove().map_err(at_path("move for", &key))?;
        self.count(moved)?;
        let path = operation.path().map_err(decode("move", "path"))?;
        let place =
            self.place(&path).ok_or_else(|| missing("move", "doc is missing destination path", &path))?;
        let moved = place.add(value).map_err(at_path("move for", &path))?;
        self.count(moved)
    }

    fn test(&mut self, operation: &mut Operation) -> Result<(), JsonPatchError> {
        let path = operation.path().map_err(decode("test", "path"))?;
        let expected = operation.value();
        let passed = if path.is_empty() {
            self.document == expected
        } else {
            let place = self.place(&path).ok_or_else(|| missing("test", "is missing path", &path))?;
            let value = place.get().map_err(at_path("test for", &path))?;
            *value.unwrap_or(&Value::Null) == expected
        };
        if passed { Ok(()) } else { Err(JsonPatchError::TestFailed(path)) }
    }

    fn copy(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let from = operation.from().map_err(decode("copy", "from"))?;
        let place = self.place(&from).ok_or_else(|| missing("copy", "doc is missing from path", &from))?;
        let value = place.get().map_err(|cause| OperationError::CopySource { from: from.clone(), cause })?;
        let value = value.cloned().unwrap_or(Value::Null);
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED {
            return Err(OperationError::CopiedTooMuch(self.copied));
        }
        let path = operation.path().map_err(decode_path("copy"))?;
        let place =
            self.place(&path).ok_or_else(|| missing("copy", "doc is missing destination path", &path))?;
        let moved = place.add(value).map_err(OperationError::CopyTarget)?;
        self.count(moved)
    }

    /// The container a path ends in, and the key within.
    fn place(&mut self, path: &str) -> Option<Place<'_>> {
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
        (here.is_object() || here.is_array()).then_some(Place { container: here, key, depth })
    }
}

fn unescaped(part: &str) -> String {
    if part.contains('~') { unescape(part) } else { part.to_owned() }
}

/// In one pass, so that `~01` is `~1` and not a slash.
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

/// An object or a list, and a key or an index within.
struct Place<'d> {
    container: &'d mut Value,
    key: String,
    /// How deep the value at the key lies.
    depth: usize,
}

impl Place<'_> {
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

    /// Puts a value in its place; the answer is how many others it has pushed aside.
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
                let place =
                    number(&self.key).map_err(|cause| PositionError::NotAnIndex { key: self.key, cause })?;
                let size = list.len() + 1;
                let index = within(place, size).filter(|index| *index < size);
                let index = index.ok_or(PositionError::InvalidIndex(place))?;
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

    /// Takes a value out; the answer says too how many others have moved up.
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

    /// A patch of many small steps must not dig deeper than one that is read at once.
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

/// An index from the front; one below zero counts from the end.
fn within(place: i64, length: usize) -> Option<usize> {
    match usize::try_from(place) {
        Ok(index) => Some(index),
        Err(_) => usize::try_from(place.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)),
    }
}

fn existing(key: &str, length: usize) -> Result<usize, PositionError> {
    let place = number(key)?;
    let index = within(place, length).filter(|index| *index < length);
    index.ok_or(PositionError::InvalidIndex(place))
}
