//! `SubjectAccessReviews`.

use serde_json::Value;

use super::access;
use crate::registry::{ReviewContext, Storage, Strategy};
use plumb_apiserver::error::ApiError;

/// The strategy of `SubjectAccessReviews`.
#[derive(Debug)]
pub(in crate::registry) struct SubjectAccessReviewStrategy;

impl Strategy for SubjectAccessReviewStrategy {
    fn storage(&self) -> Storage {
        Storage::Review(review)
    }
}

/// Decides whether the user of the review may do what it asks about.
fn review(cx: ReviewContext<'_>, mut review: Value) -> Result<Value, ApiError> {
    let mut errors = access::spec_errors(&review["spec"]);
    errors.extend(access::metadata_error(&review, "must be empty"));
    access::reject(cx.row, &errors)?;
    let user = access::user_of(&review["spec"]);
    access::decide(cx.authorizer, &user, &mut review);
    Ok(review)
}
