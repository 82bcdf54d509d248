//! `LocalSubjectAccessReviews`.

use plumb_validation::field::FieldError;
use serde_json::{Value, json};

use super::access;
use crate::registry::{ReviewContext, Storage, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::meta;
use plumb_apiserver::validation::json::text;

/// The strategy of `LocalSubjectAccessReviews`.
#[derive(Debug)]
pub(in crate::registry) struct LocalSubjectAccessReviewStrategy;

impl Strategy for LocalSubjectAccessReviewStrategy {
    fn storage(&self) -> Storage {
        Storage::Review(review)
    }
}

/// Decides whether the user of the review may do what it asks about, in the namespace of the URL.
fn review(cx: ReviewContext<'_>, mut review: Value) -> Result<Value, ApiError> {
    let namespace = cx.namespace.unwrap_or_default();
    let given = meta(&review, "namespace");
    if !given.is_empty() && given != namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(why));
    }
    review["metadata"]["namespace"] = json!(namespace);
    let spec = &review["spec"];
    let mut errors = access::spec_errors(spec);
    let mut rest = review.clone();
    rest["metadata"].as_object_mut().map(|fields| fields.remove("namespace"));
    errors.extend(access::metadata_error(&rest, "must be empty except for namespace"));
    let about = &spec["resourceAttributes"];
    if about.is_object() && text(about, "namespace") != namespace {
        let path = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(path, text(about, "namespace"), "must match metadata.namespace"));
    }
    if spec["nonResourceAttributes"].is_object() {
        let shown = access::shown_path(&spec["nonResourceAttributes"]);
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", shown, why));
    }
    access::reject(cx.row, &errors)?;
    let user = access::user_of(spec);
    access::decide(cx.authorizer, &user, &mut review);
    Ok(review)
}
