//! What handles requests for objects of a kind, as upstream's `rest.Storage`.

use jiff::Timestamp;
use serde_json::Value;

use crate::authn::Authenticator;
use crate::authz::Authorizer;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::user::User;

/// What handles requests for objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Storage {
    /// The generic path: the objects are in the store.
    Store,
    /// The kind is a review: its objects are not stored, and the response to a create has the result.
    Review(ReviewHandler),
    /// The metrics API: the objects are not stored, but measured.
    Metrics,
}

/// Performs a review: gets the object of the request, and returns that of the response.
pub(crate) type ReviewHandler = fn(ReviewContext<'_>, Value) -> Result<Value, ApiError>;

/// The context of a review besides its object.
#[derive(Clone, Copy)]
pub(crate) struct ReviewContext<'a> {
    /// The kind.
    pub(crate) row: &'a Row,
    /// The namespace in the URL.
    pub(crate) namespace: Option<&'a str>,
    /// The user who sent the request.
    pub(crate) user: &'a User,
    /// What authenticates tokens.
    pub(crate) authenticator: &'a Authenticator,
    /// What decides which user may do what.
    pub(crate) authorizer: &'a Authorizer,
    /// The time.
    pub(crate) now: Timestamp,
}
