//! Reviews: kinds whose objects are not stored; the response to a create has the result.
//!
//! A review is a row of the table of kinds like any other, with a handler ([`handler`]) in place of objects in the
//! store.

mod access;
mod rules;
mod subject;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::call::Call;
use crate::error::ApiError;
use crate::exchange::{FieldValidation, answer_value};
use crate::kinds::Row;
use crate::object::metadata;

/// Performs a review: takes the object of the request, and returns that of the response.
pub(crate) type Handler = fn(&Call, Value) -> Result<Value, ApiError>;

/// The handler of a kind; `None` if the kind is not a review.
pub(crate) fn handler(row: &Row) -> Option<Handler> {
    let handler: Handler = match (row.group(), row.kind()) {
        ("authorization.k8s.io", "SubjectAccessReview") => access::subject,
        ("authorization.k8s.io", "LocalSubjectAccessReview") => access::local,
        ("authorization.k8s.io", "SelfSubjectAccessReview") => access::own,
        ("authorization.k8s.io", "SelfSubjectRulesReview") => rules::own,
        ("authentication.k8s.io", "SelfSubjectReview") => subject::own,
        ("authentication.k8s.io", "TokenReview") => subject::of_token,
        _ => return None,
    };
    Some(handler)
}

/// Decodes a review, and performs it.
pub(crate) fn answer(call: &Call, handler: Handler) -> Result<Response<Body>, ApiError> {
    let decoded = call.read_object()?;
    call.warn(FieldValidation::of(&call.query)?.judge(call.body_kind(), &decoded)?);
    let mut review = decoded.value;
    review["kind"] = json!(call.row.kind());
    review["apiVersion"] = json!(call.row.api_version());
    metadata(&mut review);
    Ok(answer_value(StatusCode::CREATED, &handler(call, review)?))
}

/// A string of a review, empty if it is absent.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The strings of a list in a review.
fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
