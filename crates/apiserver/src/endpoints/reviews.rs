//! Reviews: kinds whose objects are not stored; the response to a create has the result.
//!
//! A review is a row of the table of kinds like any other. Its strategy has a handler
//! ([`Storage::Review`](crate::kinds::Storage)) in place of objects in the store.

use http::{Response, StatusCode};
use serde_json::json;

use crate::codec::{FieldValidation, answer_value};
use crate::error::ApiError;
use crate::kinds::{ReviewContext, ReviewHandler};
use crate::object::metadata;
use crate::request::Call;
use crate::response_body::Body;

/// Decodes a review, and performs it.
pub(crate) fn answer(call: &Call, handler: ReviewHandler) -> Result<Response<Body>, ApiError> {
    let row = &call.scope.row;
    let decoded = call.http.decode(row, call.cluster().rules())?;
    call.state.warnings.extend(FieldValidation::of(&call.query)?.judge(row, &decoded)?);
    let mut review = decoded.value;
    review["kind"] = json!(row.kind());
    review["apiVersion"] = json!(row.api_version());
    metadata(&mut review);
    let cx = ReviewContext {
        row,
        namespace: call.info.namespace(),
        user: &call.info.user,
        authenticator: call.server.authenticator(),
        authorizer: call.cluster().authorizer(),
        now: call.cluster().now(),
    };
    Ok(answer_value(StatusCode::CREATED, &handler(cx, review)?))
}
