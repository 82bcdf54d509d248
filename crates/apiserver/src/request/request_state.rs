use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::completion::Effects;
use crate::in_flight::{Origin, Permit};
use crate::warnings::Warnings;

/// The state of a request while it is handled.
pub(crate) struct RequestState {
    /// When it times out.
    pub(crate) deadline: Instant,
    /// Its origin, for the limits of requests in flight.
    pub(crate) origin: Origin,
    /// Its permit in the limits of requests in flight.
    pub(crate) permit: Permit,
    /// Warnings for the client.
    pub(crate) warnings: Warnings,
    /// Whether an admission or conversion webhook was called for it.
    pub(crate) called_webhooks: AtomicBool,
    /// Whether it has had effects, and so is completed even if its client disconnects.
    pub(crate) effects: Effects,
}

impl RequestState {
    pub(crate) fn new(deadline: Instant, origin: Origin, permit: Permit) -> Self {
        Self {
            deadline,
            origin,
            permit,
            warnings: Warnings::default(),
            called_webhooks: AtomicBool::new(false),
            effects: Effects::default(),
        }
    }
}
