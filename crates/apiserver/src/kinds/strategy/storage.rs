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
pub enum Storage {
    /// The generic path: the objects are in the store.
    Store,
    /// The kind is a review: its objects are not stored, and the response to a create has the result.
    Review(ReviewHandler),
    /// The metrics API: the objects are not stored, but measured.
    Metrics,
}

/// Performs a review: gets the object of the request, and returns that of the response.
pub type ReviewHandler = fn(ReviewContext<'_>, Value) -> Result<Value, ApiError>;

/// The context of a review besides its object.
#[derive(Clone, Copy)]
pub struct ReviewContext<'a> {
    /// The kind.
    pub row: &'a Row,
    /// The namespace in the URL.
    pub namespace: Option<&'a str>,
    /// The user who sent the request.
    pub user: &'a User,
    /// What authenticates tokens.
    pub authenticator: &'a Authenticator,
    /// What decides which user may do what.
    pub authorizer: &'a Authorizer,
    /// The time.
    pub now: Timestamp,
}
