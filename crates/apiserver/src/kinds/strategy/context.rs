//! The context of a strategy besides the objects.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use plumb_resize::rules::Rules;
use plumb_store::Store;
use serde_json::Value;

use crate::allocation::Allocations;
use crate::kinds::Row;
use crate::user::User;

/// The context of a strategy besides the objects: the kind as it is served, the server's state, and the user of the
/// request.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The kind, in the version in which the object is.
    pub row: &'a Row,
    /// The stored objects.
    pub(crate) store: &'a Store,
    /// The rules for resizes.
    pub rules: &'a Rules,
    /// The allocations of cluster IPs and node ports.
    pub allocations: &'a Arc<Allocations>,
    /// The clock of the server.
    pub(crate) clock: &'a (dyn Fn() -> Timestamp + Send + Sync),
    /// The user of the request; none for the objects that the server itself creates.
    pub(crate) requester: Option<Requester<'a>>,
}

/// The user of a request, and its object.
#[derive(Clone, Copy)]
pub struct Requester<'a> {
    /// The user.
    pub(crate) user: &'a User,
    /// The address that the request came from; none for a request of this process.
    pub(crate) remote_address: Option<IpAddr>,
    /// The name of the object in the URL; empty if there is none.
    pub(crate) name: &'a str,
}

impl<'a> Context<'a> {
    /// The same request, about another kind or another version of the kind.
    pub(crate) fn with_row(self, row: &'a Row) -> Self {
        Self { row, ..self }
    }

    /// Fills in the defaults that the types of the fields have, whichever kind they are in.
    pub fn apply_defaults_of_types(self, new: &mut Value) {
        self.row.apply_defaults(new, self.rules);
    }

    /// The time.
    pub fn now(self) -> Timestamp {
        (self.clock)()
    }

    /// The user who sent the request.
    pub fn user(self) -> Option<&'a User> {
        self.requester.map(|requester| requester.user)
    }

    /// The address that the request came from.
    pub fn remote_address(self) -> Option<IpAddr> {
        self.requester?.remote_address
    }

    /// The name of the object in the URL.
    pub fn name_in_url(self) -> &'a str {
        self.requester.map_or("", |requester| requester.name)
    }
}
