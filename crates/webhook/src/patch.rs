//! JSON patches (RFC 6902), as webhooks answer with them.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Adds a value, or replaces what is there.
    Add {
        /// Where, as a JSON pointer.
        path: String,
        /// What.
        value: Value,
    },
    /// Removes a value.
    Remove {
        /// Where, as a JSON pointer.
        path: String,
    },
}

impl Operation {
    /// Adds a value.
    pub fn add(path: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self::Add { path: path.to_string(), value: value.into() }
    }

    /// Adds an annotation, where there are annotations.
    pub fn add_annotation(name: &str, value: impl Into<Value>) -> Self {
        Self::add(annotation(name), value)
    }

    /// Removes an annotation that is there.
    pub fn remove_annotation(name: &str) -> Self {
        Self::Remove { path: annotation(name) }
    }
}

fn annotation(name: &str) -> String {
    format!("/metadata/annotations/{}", escape(name))
}

/// A name as part of a JSON pointer.
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
