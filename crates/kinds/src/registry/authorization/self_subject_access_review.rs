//! `SelfSubjectAccessReviews`.

use serde_json::Value;

use super::access;
use crate::registry::{ReviewContext, Storage, Strategy};
use plumb_apiserver::error::ApiError;

/// The strategy of `SelfSubjectAccessReviews`.
#[derive(Debug)]
pub(in crate::registry) struct SelfSubjectAccessReviewStrategy;

impl Strategy for SelfSubjectAccessReviewStrategy {
    fn storage(&self) -> Storage {
        Storage::Review(review)
    }
}

/// Decides whether the user of the request may do what the review asks about.
fn review(cx: ReviewContext<'_>, mut review: Value) -> Result<Value, ApiError> {
    let mut errors = access::attributes_errors(&review["spec"]);
    errors.extend(access::selector_errors(&review["spec"]["resourceAttributes"]));
    errors.extend(access::metadata_error(&review, "must be empty"));
    access::reject(cx.row, &errors)?;
    access::decide(cx.authorizer, cx.user, &mut review);
    Ok(review)
}
