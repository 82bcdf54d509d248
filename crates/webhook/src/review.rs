//! `AdmissionReview` of `admission.k8s.io/v1`, as far as webhooks read and write it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plumb_validation::field::{FieldError, aggregate_message};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::patch::Operation;

/// The review that the API server sends.
#[derive(Debug, Deserialize)]
pub struct Review<'a> {
    /// The question.
    #[serde(borrow)]
    pub request: Request<'a>,
}

/// The question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// The identifier that the response has to repeat.
    pub uid: String,
    /// The resource of the object.
    pub resource: GroupResource,
    /// The subresource, if the request is for one.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// The kind of the request.
    #[serde(default)]
    pub request_kind: Option<Kind>,
    /// The name of the object; empty if the server will generate it.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// The operation.
    pub operation: String,
    /// The object.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The stored object.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// Whether it is a dry run.
    #[serde(default)]
    pub dry_run: Option<bool>,
}

/// A resource, without its version.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
pub struct GroupResource {
    /// The API group.
    #[serde(default)]
    pub group: String,
    /// The name of the resource.
    pub resource: String,
}

/// A kind.
#[derive(Debug, Default, Deserialize)]
pub struct Kind {
    /// Its name.
    pub kind: String,
}

/// A review of which only the `uid` is decoded.
#[derive(Deserialize)]
struct Uid {
    request: UidOfRequest,
}

#[derive(Deserialize)]
struct UidOfRequest {
    uid: String,
}

/// Reads the `uid` of a review that may be invalid otherwise.
pub fn uid_of(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Uid>(body).ok().map(|read| read.request.uid)
}

/// The response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// Why the object is refused, if it is.
    pub refused: Option<Refusal>,
    /// The patch of the object.
    pub operations: Vec<Operation>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Why an object is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The kind of the object, with its group.
    pub kind: String,
    /// The group of the kind.
    pub group: String,
    /// The name of the object.
    pub name: String,
    /// Why the object is invalid.
    pub errors: Vec<FieldError>,
}

/// The length at which API servers truncate warnings, one and all together.
const MAX_WARNING: usize = 256;

impl Response {
    /// Encodes the response as an `AdmissionReview`.
    pub fn to_body(&self, uid: &str) -> Vec<u8> {
        #[derive(Serialize)]
        struct Written<'a> {
            #[serde(rename = "apiVersion")]
            api_version: &'a str,
            kind: &'a str,
            response: Value,
        }
        let mut response = json!({ "uid": uid, "allowed": self.refused.is_none() });
        if let Some(refused) = &self.refused {
            response["status"] = refused.status();
        } else if !self.operations.is_empty() {
            // Operations serialize without errors: they consist of text.
            let patch = serde_json::to_vec(&self.operations).unwrap_or_default();
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(BASE64_STANDARD.encode(patch));
        }
        if !self.warnings.is_empty() {
            let warnings: Vec<&str> = self.warnings.iter().map(|warning| shortened(warning)).collect();
            response["warnings"] = json!(warnings);
        }
        let written = Written { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", response };
        serde_json::to_vec(&written).unwrap_or_default()
    }
}

fn shortened(text: &str) -> &str {
    let end =
        (0..=text.len().min(MAX_WARNING)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

impl Refusal {
    /// The `Status` that the API server passes on.
    fn status(&self) -> Value {
        let cause = |error: &FieldError| json!({ "reason": error.kind.reason(), "message": error.body(), "field": error.path });
        let causes: Vec<Value> = self.errors.iter().map(cause).collect();
        let errors = aggregate_message(&self.errors);
        let Self { kind, group, name, .. } = self;
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": format!("{kind}.{group} {name:?} is invalid: {errors}"),
            "details": { "name": name, "group": group, "kind": kind, "causes": causes },
        })
    }
}
