//! JSON patches (RFC 6902), as upstream applies them.
//!
//! Upstream and the RFC part in a few places, and upstream is followed: `replace` of a field that is not there
//! adds it, `test` of an absent field for null passes, and negative indexes count from the end.

use serde_json::{Map, Value};

use crate::json::MAX_DEPTH;

/// How many operations a patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes the `copy` operations of a patch may add, all together.
pub const MAX_COPIED: usize = 3 * 1024 * 1024;

/// How many elements the operations of a patch may push aside, all together.
///
/// Each insertion at the front of a list moves all of it: ten thousand of them into a long one would take
/// minutes.
const MAX_MOVED: usize = 50_000_000;

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
    #[error("{0}")]
    DoesNotApply(String),
    /// An operation `test` did not find the value that it names.
    #[error("{0}")]
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

type Outcome<T> = Result<T, String>;

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
    let mut patched = Patched { document, copied: 0, moved: 0, failed_test: false };
    for operation in operations {
        let operation = match operation {
            Value::Object(fields) => Operation { fields },
            _ => Operation { fields: Map::new() },
        };
        if let Err(why) = patched.perform(operation) {
            let failed = patched.failed_test;
            return Err(if failed {
                JsonPatchError::TestFailed(why)
            } else {
                JsonPatchError::DoesNotApply(why)
            });
        }
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

    fn path(&self) -> Outcome<String> {
        match self.fields.get("path") {
            Some(Value::String(path)) => Ok(path.clone()),
            None | Some(Value::Null) => Err("operation missing path field: missing value".to_owned()),
            Some(other) => Err(not_text(other)),
        }
    }

    fn from(&self) -> Outcome<String> {
        match self.fields.get("from") {
            Some(Value::String(path)) => Ok(path.clone()),
            None | Some(Value::Null) => Err("operation, missing from field: missing value".to_owned()),
            Some(other) => Err(not_text(other)),
        }
    }

    fn value(&mut self) -> Value {
        self.fields.remove("value").unwrap_or(Value::Null)
    }
}

fn not_text(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type string", found(value))
}

struct Patched {
    document: Value,
    copied: usize,
    moved: usize,
    /// Whether the operation that could not be performed is a test.
    failed_test: bool,
}

impl Patched {
    /// Counts elements that were pushed aside.
    fn count(&mut self, moved: usize) -> Outcome<()> {
        self.moved = self.moved.saturating_add(moved);
        if self.moved > MAX_MOVED {
            return Err(format!("the patch moves more than {MAX_MOVED} elements of lists"));
        }
        Ok(())
    }

    fn perform(&mut self, mut operation: Operation) -> Outcome<()> {
        match operation.kind() {
            "add" => {
                let missing = |_| "add operation failed to decode path: missing value".to_owned();
                let path = operation.path().map_err(missing)?;
                let place = self.place(&path).ok_or_else(|| {
                    format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
                })?;
                let moved = place
                    .add(operation.value())
                    .map_err(|why| format!("error in add for path: '{path}': {why}"))?;
                self.count(moved)
            }
            "remove" => {
                let missing = |_| "remove operation failed to decode path: missing value".to_owned();
                let path = operation.path().map_err(missing)?;
                let place = self.place(&path).ok_or_else(|| {
                    format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
                })?;
                let (_, moved) =
                    place.remove().map_err(|why| format!("error in remove for path: '{path}': {why}"))?;
                self.count(moved)
            }
            "replace" => self.replace(&mut operation),
            "move" => self.relocate(&operation),
            "test" => self.test(&mut operation),
            "copy" => self.copy(&operation),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn replace(&mut self, operation: &mut Operation) -> Outcome<()> {
        let path =
            operation.path().map_err(|why| format!("replace operation failed to decode path: {why}"))?;
        let value = operation.value();
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            self.document = value;
            return Ok(());
        }
        let place = self.place(&path).ok_or_else(|| {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        })?;
        place.get().map_err(|_| {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        })?;
        place.set(value).map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn relocate(&mut self, operation: &Operation) -> Outcome<()> {
        let from = operation.from().map_err(|why| format!("move operation failed to decode from: {why}"))?;
        let place = self.place(&from).ok_or_else(|| {
            format!("move operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let key = place.key.clone();
        let (value, moved) =
            place.remove().map_err(|why| format!("error in move for path: '{key}': {why}"))?;
        self.count(moved)?;
        let path = operation.path().map_err(|why| format!("move operation failed to decode path: {why}"))?;
        let place = self.place(&path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        let moved = place.add(value).map_err(|why| format!("error in move for path: '{path}': {why}"))?;
        self.count(moved)
    }

    fn test(&mut self, operation: &mut Operation) -> Outcome<()> {
        let path = operation.path().map_err(|why| format!("test operation failed to decode path: {why}"))?;
        let expected = operation.value();
        let passed = if path.is_empty() {
            self.document == expected
        } else {
            let place = self.place(&path).ok_or_else(|| {
                format!("test operation does not apply: is missing path: {path}: missing value")
            })?;
            let value = place.get().map_err(|why| format!("error in test for path: '{path}': {why}"))?;
            *value.unwrap_or(&Value::Null) == expected
        };
        self.failed_test = !passed;
        if passed { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
    }

    fn copy(&mut self, operation: &Operation) -> Outcome<()> {
        let from = operation.from().map_err(|why| format!("copy operation failed to decode from: {why}"))?;
        let place = self.place(&from).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let value = place.get().map_err(|why| format!("error in copy for from: '{from}': {why}"))?.cloned();
        let value = value.unwrap_or(Value::Null);
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
                self.copied
            ));
        }
        let missing = |_| "copy operation failed to decode path: missing value".to_owned();
        let path = operation.path().map_err(missing)?;
        let place = self.place(&path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        let moved = place.add(value).map_err(|why| format!("error while adding value during copy: {why}"))?;
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
    fn get(&self) -> Outcome<Option<&Value>> {
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
    fn add(self, value: Value) -> Outcome<usize> {
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
                let place = number(&self.key)
                    .map_err(|why| format!("value was not a proper array index: '{}': {why}", self.key))?;
                let size = list.len() + 1;
                let index =
                    within(place, size).filter(|index| *index < size).ok_or_else(|| invalid(place))?;
                list.insert(index, value);
                Ok(size - index)
            }
            _ => Ok(0),
        }
    }

    fn set(self, value: Value) -> Outcome<()> {
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
    fn remove(self) -> Outcome<(Value, usize)> {
        match self.container {
            Value::Object(object) => object
                .remove(&self.key)
                .map(|value| (value, 0))
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: missing value", self.key)),
            Value::Array(list) => {
                let index = existing(&self.key, list.len())?;
                Ok((list.remove(index), list.len() - index))
            }
            _ => Ok((Value::Null, 0)),
        }
    }

    /// A patch of many small steps must not dig deeper than one that is read at once.
    fn fits(&self, value: &Value) -> Outcome<()> {
        if self.depth + depth(value) > MAX_DEPTH { Err("exceeded max depth".to_owned()) } else { Ok(()) }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn number(key: &str) -> Outcome<i64> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain {
        return Err(format!("strconv.Atoi: parsing {key:?}: invalid syntax"));
    }
    key.parse().map_err(|_| format!("strconv.Atoi: parsing {key:?}: value out of range"))
}

/// An index from the front; one below zero counts from the end.
fn within(place: i64, length: usize) -> Option<usize> {
    match usize::try_from(place) {
        Ok(index) => Some(index),
        Err(_) => usize::try_from(place.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)),
    }
}

fn invalid(place: i64) -> String {
    format!("Unable to access invalid index: {place}: invalid index referenced")
}

fn existing(key: &str, length: usize) -> Outcome<usize> {
    let place = number(key)?;
    within(place, length).filter(|index| *index < length).ok_or_else(|| invalid(place))
}
