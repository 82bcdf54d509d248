//! Kinds that are one: the same objects under several addresses, stored in one version and shown in each.
//!
//! A row that is stored as another names that row and how objects go over: by a pair of pure functions, or, for
//! versions that differ in nothing but their name, by that name alone. A request is read in the version of its
//! address and then goes the way of the stored kind; what it is answered with is converted back. A kind that is
//! stored as itself never comes here, and its bytes are copied.

mod autoscaling;
mod events;

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::Row;
use crate::readable::Readable as _;

/// What the objects of a kind are stored as.
#[derive(Clone, Debug)]
pub struct StoredAs {
    /// The group of the stored kind.
    pub group: Cow<'static, str>,
    /// The version that is stored.
    pub version: Cow<'static, str>,
    /// The name of the stored kind in addresses.
    pub plural: Cow<'static, str>,
    /// How objects go over.
    pub conversion: Conversion,
}

/// How objects go from one kind to another.
#[derive(Clone, Copy, Debug)]
pub enum Conversion {
    /// They are the same but for the version that they name.
    Renamed,
    /// Fields differ.
    Between(&'static Pair),
}

/// Two kinds that say the same in different words.
#[derive(Debug)]
pub struct Pair {
    /// From the version of the address to the stored one.
    store: fn(&mut Value),
    /// From the stored version to that of the address.
    serve: fn(&mut Value),
    /// What the stored version calls a field that can be selected by.
    field: fn(&str) -> Option<&'static str>,
    /// Whether the rules are those of the version of the address, and not those of the stored one.
    own_rules: bool,
}

/// The built-in kinds that are stored as another.
pub(crate) fn builtin(group: &str, version: &str, kind: &str) -> Option<StoredAs> {
    let stored = |group, version, plural, pair| StoredAs {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        plural: Cow::Borrowed(plural),
        conversion: Conversion::Between(pair),
    };
    match (group, version, kind) {
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
            Some(stored("autoscaling", "v2", "horizontalpodautoscalers", &autoscaling::V1))
        }
        ("events.k8s.io", "v1", "Event") => Some(stored("", "v1", "events", &events::V1)),
        _ => None,
    }
}

/// A version of a stored kind that a request speaks.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The row of the address.
    pub(crate) row: Row,
    conversion: Conversion,
}

impl Shown {
    pub(crate) fn new(row: Row, conversion: Conversion) -> Self {
        Self { row, conversion }
    }

    /// An object of the address as one of the stored kind.
    pub(crate) fn store(&self, stored: &Row, mut object: Value) -> Value {
        if let Conversion::Between(pair) = self.conversion {
            (pair.store)(&mut object);
        }
        named(stored, object)
    }

    /// A stored object as one of the address.
    pub(crate) fn serve(&self, mut object: Value) -> Value {
        if let Conversion::Between(pair) = self.conversion {
            (pair.serve)(&mut object);
        }
        named(&self.row, object)
    }

    /// What the stored kind calls a field of the address.
    pub(crate) fn field(&self, field: &str) -> Option<&'static str> {
        match self.conversion {
            Conversion::Renamed => None,
            Conversion::Between(pair) => (pair.field)(field),
        }
    }

    /// A refusal with the names that upstream gives it: a broken rule is one of the stored kind, all else is about the
    /// resource of the address.
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

    /// Whether objects are held to the rules of the address's version.
    pub(crate) fn has_own_rules(&self) -> bool {
        matches!(self.conversion, Conversion::Between(pair) if pair.own_rules)
    }
}

/// The object under the name of a row's kind, in the form that the schema gives it.
fn named(row: &Row, mut object: Value) -> Value {
    object["kind"] = json!(row.kind());
    object["apiVersion"] = json!(row.api_version());
    // What was an object of one kind is one of the other; if not, it is shown as it is rather than not at all.
    row.decode_value(object.clone()).map_or(object, |decoded| decoded.value)
}

/// Gives a field another name; an absent one stays absent.
fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}
