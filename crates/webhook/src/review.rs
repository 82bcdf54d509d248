//! `AdmissionReview` of `admission.k8s.io/v1`, as far as webhooks read and write it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plumb_validation::field::{FieldError, aggregate_message};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::patch::Operation;

/// What the API server asks.
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
    /// What the answer has to repeat.
    pub uid: String,
    /// The resource that the object is of.
    pub resource: GroupResource,
    /// A subresource, if it is about one.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// The kind that the client used.
    #[serde(default)]
    pub request_kind: Option<Kind>,
    /// Name of the object; none yet if it is to be generated.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// What is done to it.
    pub operation: String,
    /// The object.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as it was.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
}

/// A resource, whichever version.
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

/// Just the `uid`, of a question that cannot be read otherwise.
#[derive(Deserialize)]
struct Uid {
    request: UidOfRequest,
}

#[derive(Deserialize)]
struct UidOfRequest {
    uid: String,
}

/// The `uid` of a question that may not be readable otherwise.
pub fn uid_of(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Uid>(body).ok().map(|read| read.request.uid)
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// Why the object is refused, if it is.
    pub refused: Option<Refusal>,
    /// How the object is changed.
    pub operations: Vec<Operation>,
    /// What the client shows to its user.
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
    /// What is wrong with it.
    pub errors: Vec<FieldError>,
}

/// The longest warning that API servers pass on whole, and how much they pass on altogether.
const MAX_WARNING: usize = 256;

impl Response {
    /// The answer as the API server reads it.
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
            // Operations consist of text.
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
