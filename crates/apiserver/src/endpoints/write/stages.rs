//! The object of a write after each of its stages, in the stored version of its kind.

use std::sync::Arc;

use plumb_store::Object;
use serde_json::Value;

use crate::allocation::Reservation;

/// The stored object that an update changes.
pub(super) struct Current {
    /// The object in the store. The transaction has its revision as a precondition.
    pub(super) stored: Arc<Object>,
    /// The same, decoded, with the defaults of its version.
    pub(super) old: Value,
}

/// The object that a client requests.
pub(super) struct Requested(pub(super) Value);

/// An object with its defaults and its field managers.
pub(super) struct Defaulted(pub(super) Value);

/// An object after mutating admission.
#[derive(Clone)]
pub(super) struct Mutated(pub(super) Value);

/// An object with the fields that the server sets, and the reservation of what was allocated to it.
pub(super) struct Prepared {
    pub(super) object: Value,
    pub(super) reserved: Reservation,
}

/// An object that is valid by the rules of its kind.
pub(super) struct Validated {
    pub(super) object: Value,
    pub(super) reserved: Reservation,
}

/// An object that admission allows, in the form in which it is stored.
pub(super) struct Admitted {
    pub(super) object: Value,
    pub(super) reserved: Reservation,
}
