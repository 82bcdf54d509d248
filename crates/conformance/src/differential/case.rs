//! Cases, in a form that can be read and replayed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The lifecycle of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Its resource: `v1/pods`, `apps/v1/deployments`.
    pub kind: String,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The verb.
    pub verb: Verb,
    /// The subresource: `status`, `resize`; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// The query parameters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// A field that is written twice, as a JSON pointer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub twice: String,
    /// Whether the body is sent as protobuf, where it can be written so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protobuf: bool,
    /// The body. For an update: JSON patch operations, which are applied to each server's own object before it is
    /// sent back, since the two objects differ in unpredictable values.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// A verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// POST of a new object.
    Create,
    /// PUT of the object with changes.
    Replace,
    /// PATCH with JSON patch operations.
    Json,
    /// PATCH with a merge patch.
    Merge,
    /// PATCH with a strategic merge patch.
    Strategic,
    /// PATCH with server-side apply.
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

    /// Its label, in a word or two: `create`, `merge status`.
    pub(super) fn label(&self) -> String {
        let label = format!("{} {}", self.verb.name(), self.part);
        label.trim_end().to_owned()
    }

    /// Whether it is a dry run.
    pub(super) fn is_dry(&self) -> bool {
        let by_body = self.body["dryRun"].as_array().is_some_and(|stages| !stages.is_empty());
        self.query.contains("dryRun") || (self.verb == Verb::Delete && by_body)
    }
}
