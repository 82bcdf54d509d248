//! `SelfSubjectReviews`.

use serde_json::{Value, json};

use super::user_info;
use crate::registry::{ReviewContext, Storage, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::moment;

/// The strategy of `SelfSubjectReviews`.
#[derive(Debug)]
pub(in crate::registry) struct SelfSubjectReviewStrategy;

impl Strategy for SelfSubjectReviewStrategy {
    fn storage(&self) -> Storage {
        Storage::Review(review)
    }
}

/// Responds with the user of the request.
#[expect(clippy::unnecessary_wraps, reason = "a handler like the others")]
fn review(cx: ReviewContext<'_>, review: Value) -> Result<Value, ApiError> {
    Ok(json!({
        "kind": review["kind"], "apiVersion": review["apiVersion"],
        "metadata": { "creationTimestamp": moment(cx.now) },
        "status": { "userInfo": user_info(cx.user) },
    }))
}
