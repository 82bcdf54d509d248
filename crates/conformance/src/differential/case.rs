//! What is asked, written so that it can be read and asked again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The life of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What it is about: `v1/pods`, `apps/v1/deployments`.
    pub kind: String,
    /// What is asked, in order.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What is done.
    pub verb: Verb,
    /// The part of the object it is done to: `status`, `resize`; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// The parameters, as they stand in the address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// A field that is written twice, as a JSON pointer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub twice: String,
    /// Whether the body is sent as protobuf, where it can be written so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protobuf: bool,
    /// What is sent. For a replacement: JSON patch operations, which each server's own object gets before it is sent
    /// back, since the two objects differ in what nobody can foresee.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// POST of a new object.
    Create,
    /// PUT of the object with changes.
    Replace,
    /// PATCH with operations.
    Json,
    /// PATCH with an object that is laid over.
    Merge,
    /// The same, with lists merged by their keys.
    Strategic,
    /// PATCH with what somebody wants in it, who manages that from then on.
    Apply,
    /// DELETE.
    Delete,
}

impl Verb {
    /// The HTTP method.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Create => "POST",
            Self::Replace => "PUT",
            Self::Json | Self::Merge | Self::Strategic | Self::Apply => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The media type of the body.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Create | Self::Replace | Self::Delete => "application/json",
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    /// Its name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Json => "json",
            Self::Merge => "merge",
            Self::Strategic => "strategic",
            Self::Apply => "apply",
            Self::Delete => "delete",
        }
    }
}

impl Step {
    /// A request without parameters to the object itself.
    pub(super) fn new(verb: Verb, body: Value) -> Self {
        Self { verb, part: String::new(), query: String::new(), twice: String::new(), protobuf: false, body }
    }

    /// What it is, in a word or two: `create`, `merge status`.
    pub(super) fn label(&self) -> String {
        let label = format!("{} {}", self.verb.name(), self.part);
        label.trim_end().to_owned()
    }

    /// Whether nothing is to come of it.
    pub(super) fn is_dry(&self) -> bool {
        let told = self.body["dryRun"].as_array().is_some_and(|stages| !stages.is_empty());
        self.query.contains("dryRun") || (self.verb == Verb::Delete && told)
    }
}
