//! `SelfSubjectReview` and `TokenReview`.

use serde_json::{Value, json};

use super::{text, texts};
use crate::call::Call;
use crate::error::ApiError;
use crate::object::moment;
use crate::user::User;

/// A user as reviews have it.
fn info(user: &User) -> Value {
    let mut info = json!({ "username": user.name() });
    if !user.uid().is_empty() {
        info["uid"] = json!(user.uid());
    }
    if !user.groups().is_empty() {
        info["groups"] = json!(user.groups());
    }
    if !user.extra().is_empty() {
        info["extra"] = json!(user.extra());
    }
    info
}

/// `SelfSubjectReview`.
#[expect(clippy::unnecessary_wraps, reason = "a handler like the others")]
pub(super) fn own(call: &Call, review: Value) -> Result<Value, ApiError> {
    Ok(json!({
        "kind": review["kind"], "apiVersion": review["apiVersion"],
        "metadata": { "creationTimestamp": moment(call.cluster().now()) },
        "status": { "userInfo": info(&call.user) },
    }))
}

/// `TokenReview`.
pub(super) fn of_token(call: &Call, mut review: Value) -> Result<Value, ApiError> {
    let token = text(&review["spec"], "token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences = texts(&review["spec"]["audiences"]);
    if audiences.is_empty() {
        audiences = call.server.accounts().map(|accounts| accounts.audiences().to_vec()).unwrap_or_default();
    }
    review["status"] = match call.server.authenticator().bearer(token.as_bytes(), &audiences) {
        Ok(bearer) => {
            let mut status = json!({ "authenticated": true, "user": info(&bearer.user) });
            if !bearer.audiences.is_empty() {
                status["audiences"] = json!(bearer.audiences);
            }
            status
        }
        Err(error) => json!({ "user": {}, "error": error.to_string() }),
    };
    Ok(review)
}
