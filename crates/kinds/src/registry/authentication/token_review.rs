//! `TokenReviews`.

use serde_json::{Value, json};

use super::user_info;
use crate::registry::{ReviewContext, Storage, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::validation::json::{text, texts};

/// The strategy of `TokenReviews`.
#[derive(Debug)]
pub(in crate::registry) struct TokenReviewStrategy;

impl Strategy for TokenReviewStrategy {
    fn storage(&self) -> Storage {
        Storage::Review(review)
    }
}

/// Authenticates the token of the review.
fn review(cx: ReviewContext<'_>, mut review: Value) -> Result<Value, ApiError> {
    let token = text(&review["spec"], "token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<String> = texts(&review["spec"], "audiences").map(str::to_owned).collect();
    if audiences.is_empty() {
        let accounts = cx.authenticator.accounts();
        audiences = accounts.map(|accounts| accounts.audiences().to_vec()).unwrap_or_default();
    }
    review["status"] = match cx.authenticator.bearer(token.as_bytes(), &audiences) {
        Ok(bearer) => {
            let mut status = json!({ "authenticated": true, "user": user_info(&bearer.user) });
            if !bearer.audiences.is_empty() {
                status["audiences"] = json!(bearer.audiences);
            }
            status
        }
        Err(error) => json!({ "user": {}, "error": error.to_string() }),
    };
    Ok(review)
}
