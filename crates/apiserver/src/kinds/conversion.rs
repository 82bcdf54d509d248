//! Conversion between built-in versions: the same objects in several groups or versions, stored in one of them.
//!
//! A row that is stored as another refers to that row and to the conversion: a pair of pure functions, or just another
//! `apiVersion` for versions with the same fields. A request is decoded in the version of its URL and then handled in the
//! stored version; the response is converted back. Objects of other kinds are never converted, and their bytes are copied.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::{Readable as _, Row};

/// The kind that objects are stored as.
#[derive(Clone, Debug)]
pub struct StoredAs {
    /// The group of the stored kind.
    pub group: Cow<'static, str>,
    /// The stored version.
    pub version: Cow<'static, str>,
    /// The plural name of the stored kind.
    pub plural: Cow<'static, str>,
    /// The conversion.
    pub conversion: Conversion,
}

/// How objects are converted.
#[derive(Clone, Copy, Debug)]
pub enum Conversion {
    /// Only the `apiVersion` differs.
    Renamed,
    /// Fields differ.
    Between(&'static Pair),
}

/// The conversion between two kinds.
#[derive(Debug)]
pub struct Pair {
    /// From the version of the URL to the stored one.
    pub store: fn(&mut Value),
    /// From the stored version to that of the URL.
    pub serve: fn(&mut Value),
    /// The stored version's name of a field in a field selector.
    pub field: fn(&str) -> Option<&'static str>,
    /// Whether objects are validated in the version of the URL, and not in the stored one.
    pub own_rules: bool,
}

impl StoredAs {
    /// A built-in kind, by its group, version and plural name, and the conversion to it.
    pub fn builtin(
        (group, version, plural): (&'static str, &'static str, &'static str),
        pair: &'static Pair,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            conversion: Conversion::Between(pair),
        }
    }
}

/// The version of a request that is not the stored one.
#[derive(Clone, Debug)]
pub(crate) struct ServedVersion {
    /// The row of the URL.
    pub(crate) row: Row,
    conversion: Conversion,
}

impl ServedVersion {
    pub(crate) fn new(row: Row, conversion: Conversion) -> Self {
        Self { row, conversion }
    }

    /// Converts an object to the stored kind.
    pub(crate) fn store(&self, stored: &Row, mut object: Value) -> Value {
        if let Conversion::Between(pair) = self.conversion {
            (pair.store)(&mut object);
        }
        named(stored, object)
    }

    /// Converts a stored object to the kind of the URL.
    pub(crate) fn serve(&self, mut object: Value) -> Value {
        if let Conversion::Between(pair) = self.conversion {
            (pair.serve)(&mut object);
        }
        named(&self.row, object)
    }

    /// The stored kind's name of a field.
    pub(crate) fn field(&self, field: &str) -> Option<&'static str> {
        match self.conversion {
            Conversion::Renamed => None,
            Conversion::Between(pair) => (pair.field)(field),
        }
    }

    /// An error with upstream's names in it: a validation error names the stored kind, any other error the resource of the
    /// URL.
    pub(crate) fn refusal(&self, stored: &Row, mut error: ApiError) -> ApiError {
        let full = |group: &str, name: &str| {
            if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
        };
        let Some(details) = &mut error.details else { return error };
        let (from, to, name) = if details.kind == stored.kind() {
            (&self.row, stored, stored.kind())
        } else if details.kind == stored.plural() {
            (stored, &self.row, stored.plural())
        } else {
            return error;
        };
        if details.group != from.group() {
            return error;
        }
        to.group().clone_into(&mut details.group);
        error.message = error.message.replacen(&full(from.group(), name), &full(to.group(), name), 1);
        error
    }

    /// Whether objects are validated in the version of the URL.
    pub(crate) fn has_own_rules(&self) -> bool {
        matches!(self.conversion, Conversion::Between(pair) if pair.own_rules)
    }
}

/// The object with the kind and version of a row, decoded by its schema.
fn named(row: &Row, mut object: Value) -> Value {
    object["kind"] = json!(row.kind());
    object["apiVersion"] = json!(row.api_version());
    // An object that cannot be decoded is returned as it is.
    row.decode_value(object.clone()).map_or(object, |decoded| decoded.value)
}
